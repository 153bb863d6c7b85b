"""Platforms other than the CPU, without having one: plugins are found and refused in words; programs for other platforms call nothing that
only the CPU has; the decompositions written for them, compiled for the CPU, agree with LAPACK; and a device's memories."""
import _ctypes
import importlib
import re
import warnings

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.core import config
from mini_jax.runtime import platforms, xla
from mini_jax.runtime.executable import Executable
from mini_jax.runtime.sharding import on_device
from mini_jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding, TransferToMemoryKind
from tests.test_primitives import CASES, application, draw, usual_dtype
from tests.test_public_walk import FAMILIES, arrays_in, chosen, evaluator

NO_PLUGIN = _ctypes.__file__                     # a shared library, but of no platform


# --- plugins ------------------------------------------------------------------------------------------------------------------------------

@pytest.fixture
def site(tmp_path, monkeypatch):
    """A directory of installed packages: write(path, text) puts a file there."""
    def write(path, text=""):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.parent.parent.name == "jax_plugins":
            (file.parent / "__init__.py").touch()
        file.write_text(text)
        importlib.invalidate_caches()
        platforms.plugins.cache_clear()
        return str(file)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("PJRT_NAMES_AND_LIBRARY_PATHS", "TPU_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    yield write
    monkeypatch.undo()
    importlib.invalidate_caches()
    platforms.plugins.cache_clear()


def test_a_plugin_is_found_by_its_package_or_its_entry_point_and_nothing_of_it_is_imported(site):
    raises = "raise AssertionError('imported')"
    site("jax_plugins/xla_warp7/__init__.py", raises)
    library = site("jax_plugins/xla_warp7/xla_warp_plugin.so")
    site("hull/__init__.py", raises), site("hull/drive/__init__.py", raises), site("hull/drive/helper.so")
    other = site("hull/drive/pjrt_plugin_impulse.so")
    site("impulse-1.0.dist-info/METADATA", "Name: impulse\nVersion: 1.0\n")
    site("impulse-1.0.dist-info/entry_points.txt", "[jax_plugins]\nimpulse = hull.drive:initialize\n")
    found = platforms.plugins()
    assert found["warp"] == ("warp", "the plugin jax_plugins.xla_warp7", library)
    assert found["impulse"] == ("impulse", "the plugin hull.drive", other)


@pytest.mark.parametrize("name, platform", [("xla_cuda13", "cuda"), ("xla_cuda12", "cuda"), ("xla_rocm7", "rocm"), ("metal_plugin", "metal"),
                                            ("pjrt_iree", "iree"), ("my-npu", "my_npu"), ("13", "13")])
def test_a_platform_is_what_its_plugin_is_called_after(name, platform):
    assert platforms._platform(name) == platform


def test_the_environment_names_libraries_too(site, monkeypatch):
    monkeypatch.setenv("PJRT_NAMES_AND_LIBRARY_PATHS", "warp:/a/b.so,Impulse:/c.so")
    platforms.plugins.cache_clear()
    assert platforms.plugins()["warp"].library == "/a/b.so" and platforms.plugins()["impulse"].library == "/c.so"
    monkeypatch.setenv("PJRT_NAMES_AND_LIBRARY_PATHS", "warp")
    platforms.plugins.cache_clear()
    with pytest.raises(RuntimeError, match="PJRT_NAMES_AND_LIBRARY_PATHS='warp'.*no pair name:path"):
        platforms.plugins()


def test_options_choose_and_order_platforms(site):
    site("jax_plugins/xla_cuda13/a.so"), site("jax_plugins/aaa/a.so"), site("libtpu/__init__.py"), site("libtpu/libtpu.so")
    assert platforms.platforms() == ("cuda", "tpu", "aaa", "cpu")
    for text, order in (("cpu", ("cpu",)), ("aaa, GPU", ("aaa", "cuda", "cpu")), ("cpu,tpu", ("cpu", "tpu")), ("", ("cuda", "tpu", "aaa", "cpu"))):
        with config.options["platforms"](text):
            assert platforms.platforms() == order
    with config.options["platform_name"]("tpu"):
        assert platforms.platforms() == ("tpu", "cpu")
    with config.options["platforms"]("warp,cpu"), pytest.raises(RuntimeError, match="unknown platform 'warp'.*'warp,cpu'; available: cuda, tpu, aaa, cpu"):
        platforms.platforms()
    for name in ("warp", "rocm"):
        with pytest.raises(RuntimeError, match=f"unknown backend '{name}': available are cuda, tpu, aaa, cpu"):
            jax.devices(name)


def test_a_plugin_that_does_not_start_is_named_with_its_library_and_the_reason(site):
    site("jax_plugins/hollow/__init__.py"), site("jax_plugins/torn/plugin.so", "no library at all")
    with pytest.raises(RuntimeError, match="the platform hollow: the plugin jax_plugins.hollow has no library"):
        jax.devices("hollow")
    with pytest.raises(RuntimeError, match=r"the platform torn \(the plugin jax_plugins.torn, library .*torn/plugin.so\) did not start: "):
        jax.devices("torn")
    for path, reason in (("/nowhere/x.so", "there is no such file"), (NO_PLUGIN, "no PJRT plugin: a library of one has a function GetPjrtApi")):
        with pytest.raises(RuntimeError, match=f"the platform strange .*{reason}"):
            platforms._start_plugin(platforms.Plugin("strange", "PJRT_NAMES_AND_LIBRARY_PATHS", path))


def test_a_plugin_older_than_jaxlib_is_not_loaded(site):
    site("jax_plugins/xla_warp7/xla_warp_plugin.so"), site("jax_warp7_pjrt-0.7.2.dist-info/METADATA", "Name: jax-warp7-pjrt\nVersion: 0.7.2\n")
    with pytest.raises(RuntimeError, match="the platform warp .* is of release 0.7.2, older than jaxlib's.*install equal ones"):
        jax.devices("warp")


def test_a_default_that_does_not_start_gives_way_with_a_warning_and_a_named_one_does_not(site):
    site("jax_plugins/torn/plugin.so", "no library at all")
    with pytest.warns(UserWarning, match="the platform torn .* did not start(.|\n)*MINI_JAX_PLATFORMS=cpu"):
        assert platforms.find(None).platform == "cpu"
    with config.options["platforms"]("torn"), pytest.raises(RuntimeError, match="the platform torn .* did not start"):
        platforms.find(None)
    with config.options["platforms"]("cpu,torn"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert platforms.find(None).platform == "cpu"


# --- memories -----------------------------------------------------------------------------------------------------------------------------

def sharded_over(count):
    return NamedSharding(Mesh(np.array(jax.devices()[:count]), ("x",)), P("x"))


@pytest.mark.parametrize("sharding", [SingleDeviceSharding(jax.devices()[1]), sharded_over(1), sharded_over(4)], ids=["one device", "a mesh of one", "a mesh"])
def test_arrays_go_to_other_memories_and_come_back(sharding):
    x = np.arange(8.0, dtype=np.float32)
    there = sharding.with_memory_kind("pinned_host")
    assert there.memory_kind == "pinned_host" and sharding.memory_kind == "device" and there != sharding and there.device_set == sharding.device_set
    assert there.with_memory_kind("device") == sharding and "pinned_host" in repr(there)
    for value in (x, jax.device_put(x, sharding), jax.device_put(x, there), jnp.asarray(x)):
        moved = jax.device_put(value, there)
        assert moved.sharding == there and all([s.data.sharding.memory_kind == "pinned_host" for s in moved.addressable_shards])
        back = jax.device_put(moved, jax.memory.Space.Device)
        assert back.sharding == sharding
        np.testing.assert_array_equal(moved, x), np.testing.assert_array_equal(back, x)
        assert jax.device_put(back, jax.memory.Space.Host).sharding == there == jax.device_put(back, TransferToMemoryKind("pinned_host")).sharding
    kinds = {memory.kind for memory in jax.devices()[0].addressable_memories()}
    for kind in kinds:
        assert jax.device_put(x, TransferToMemoryKind(kind)).sharding.memory_kind == kind
    assert jax.devices()[0].default_memory().kind == "device" and jax.devices()[0].memory_stats() is None


def test_programs_take_arrays_from_any_memory_and_leave_results_in_their_own():
    f = jax.jit(lambda x: x * 2)
    for sharding in (SingleDeviceSharding(jax.devices()[0]), sharded_over(2)):
        x = jax.device_put(np.ones(4, np.float32), sharding.with_memory_kind("pinned_host"))
        for y in (f(x), f(x), x + x):                     # the second call by the fast path
            assert y.sharding.memory_kind == "device" and np.asarray(y).tolist() == [2.0] * 4
        assert f(jax.device_put(x, sharding)).tolist() == [2.0] * 4


def test_memories_that_are_not_there_are_refused_with_those_that_are():
    for sharding in (SingleDeviceSharding(jax.devices()[0]), sharded_over(2)):
        with pytest.raises(ValueError, match="device.*pinned_host.*unpinned_host.*Got memory kind: attic"):
            sharding.with_memory_kind("attic")
        with pytest.raises(NotImplementedError, match="memory of the kind 'pinned_host'.*device_put"):
            jax.jit(lambda x: x, out_shardings=sharding.with_memory_kind("pinned_host"))(jnp.ones(2))
    spread = jax.pmap(lambda x: x)(jnp.ones((2, 1)))
    with pytest.raises(NotImplementedError, match="pmap"):
        spread.sharding.with_memory_kind("pinned_host")


# --- what programs for other platforms call ---------------------------------------------------------------------------------------------

XLAS_OWN = {"Qr", "ProductOfElementaryHouseholderReflectors"}      # expanded by XLA on all platforms
ON_CPU_ALONE = {"eig", "hessenberg", "schur", "tridiagonal"}       # by LAPACK; and two options of others


def called(fun, *args, platform):
    text = jax.jit(fun).trace(*args).lower(lowering_platforms=(platform,)).as_text()
    return set(re.findall(r"custom_call @(\w+)", text))


def test_primitives_call_nothing_on_other_platforms_that_only_the_cpu_has():
    refused = set()
    for case in CASES:
        primitive, sample = case.values
        for platform in ("cuda", "tpu"):
            try:
                assert called(application(primitive, sample), *draw(sample, usual_dtype(primitive, sample)), platform=platform) <= XLAS_OWN, case.id
            except NotImplementedError as error:
                assert re.match(rf"lax.linalg.{primitive.name}\b.*is there on CPU only.*not on {platform}.*device_put", str(error)), (case.id, error)
                refused.add(primitive.name)
    assert refused == ON_CPU_ALONE | {"qr", "tridiagonal_solve"}


@pytest.mark.filterwarnings("ignore")
def test_library_functions_call_nothing_on_other_platforms_that_only_the_cpu_has():
    arrays, refused = arrays_in(np.float32), set()
    for name, family in FAMILIES.items():
        for text in [] if family.eager else chosen(name, 1):
            try:
                assert called(evaluator([text]), arrays, platform="tpu") <= XLAS_OWN, text
            except NotImplementedError as error:
                refused.update(re.findall(r"^lax.linalg.(\w+)", str(error)) or [f"{text}: {error}"])
    assert refused <= ON_CPU_ALONE | {"qr"}


def test_python_functions_are_refused_on_other_platforms_by_name():
    x = jnp.ones(2)
    for fun in (lambda x: jax.pure_callback(np.sin, x, x), lambda x: jax.debug.print("{}", x) or x):
        with pytest.raises(NotImplementedError, match="_callback: a program for tpu can.t call Python functions"):
            called(fun, x, platform="tpu")
    choice = lambda x: lax.platform_dependent(x, tpu=jnp.sin, default=lambda x: jax.pure_callback(np.sin, x, x))
    assert "callback" not in str(called(choice, x, platform="tpu"))


# --- decompositions without LAPACK -------------------------------------------------------------------------------------------------------

def elsewhere(fun, *args):
    """fun(*args) by the program for a TPU, which is compiled for the CPU."""
    traced = jax.jit(fun).trace(*args)
    lowered = traced.lower(lowering_platforms=("tpu",))
    assert "lapack" not in lowered.as_text()
    device = jax.devices()[0]
    types, one = traced.jaxpr.out_avals, on_device(device)
    run = Executable(xla.compile(lowered.as_text(), [device]), traced.jaxpr.in_avals, types, [one] * len(args), [one] * len(types), devices=[device],
                     kept=lowered._program.kept)
    return jax.tree.map(np.asarray, traced.out_tree.unflatten(run(args)))


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def matrix(rng, dtype, *shape):
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def test_decompositions_without_lapack_are_as_accurate_as_its():
    rng, dtype = np.random.default_rng(0), np.complex128
    eps = np.finfo(dtype).eps
    tall, wide, square = matrix(rng, dtype, 2, 7, 4), matrix(rng, dtype, 3, 5), matrix(rng, dtype, 2, 5, 5)
    tall[1] = matrix(rng, dtype, 7, 2) @ matrix(rng, dtype, 2, 4)                                                  # of rank 2
    hermitian, diagonals, right = square + adjoint(square), matrix(rng, dtype, 3, 2, 6), matrix(rng, dtype, 2, 6, 3)
    diagonals[1, 0, 2] = 0                                                                                         # rows must change places

    def everything(tall, wide, square, hermitian, dl, d, du, right):
        return {"qr": [lax.linalg.qr(x, full_matrices=full) for x, full in ((tall, True), (wide, False))],
                "svd": [lax.linalg.svd(tall, full_matrices=True), lax.linalg.svd(wide, full_matrices=False)],
                "lu": [lax.linalg.lu(x) for x in (tall[:1], wide, square)], "eigh": [lax.linalg.eigh(hermitian), lax.linalg.eigh(hermitian[0, :2, :2])],
                "solve": jnp.linalg.solve(square, hermitian),
                "tridiagonal": lax.linalg.tridiagonal_solve(dl, d, du, right), "cholesky": lax.linalg.cholesky(square @ adjoint_of(square))}
    adjoint_of = lambda x: jnp.conj(jnp.swapaxes(x, -1, -2))
    operands = (tall, wide, square, hermitian, *diagonals, right)
    with jax.enable_x64(True):
        found = elsewhere(everything, *operands)
        lapack = jax.tree.map(np.asarray, jax.jit(lambda *x: {k: v for k, v in everything(*x).items() if k in ("lu", "tridiagonal", "solve", "cholesky")})(*operands))
    near = lambda a, b, size=100: np.testing.assert_allclose(a, np.broadcast_to(b, a.shape), atol=size * eps * max(1, abs(b).max()), rtol=0)
    for (q, r), x in zip(found["qr"], (tall, wide)):
        near(q @ r, x), near(adjoint(q) @ q, np.eye(q.shape[-1])), near(np.tril(r, -1), 0 * r)
    for (u, s, vh), x in zip(found["svd"], (tall, wide)):
        k = s.shape[-1]
        near((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x), near(adjoint(u) @ u, np.eye(u.shape[-1])), near(vh @ adjoint(vh), np.eye(vh.shape[-2]))
        near(s, np.linalg.svd(x, compute_uv=False))
        assert (np.diff(s) <= 0).all() and (s >= 0).all()
    for (v, w), x in zip(found["eigh"], (hermitian, hermitian[0, :2, :2])):
        near(x @ v, v * w[..., None, :]), near(adjoint(v) @ v, np.eye(v.shape[-1])), near(w, np.linalg.eigvalsh(x))
        assert (np.diff(w) >= 0).all()
    for (factors, pivots, permutation), (factors_, pivots_, permutation_) in zip(found["lu"], lapack["lu"]):
        near(factors, factors_)
        assert np.array_equal(pivots, pivots_) and np.array_equal(permutation, permutation_)
    for name in ("tridiagonal", "solve", "cholesky"):
        near(found[name], lapack[name], 2000)


def test_decompositions_without_lapack_of_matrices_with_little_in_them():
    zero, one = np.zeros((3, 3), np.float32), np.eye(3, dtype=np.float32)
    repeated = np.diag(np.array([2, 1, 2, 1, 1], np.float32))
    def f(zero, one, repeated, nan):
        return [lax.linalg.svd(x) for x in (zero, one)], [lax.linalg.eigh(x) for x in (zero, repeated)], lax.linalg.eigh(nan)[1], lax.linalg.lu(zero)[0]
    svds, eighs, nan, lu = elsewhere(f, zero, one, repeated, np.full((3, 3), np.nan, np.float32))
    for (u, s, vh), x in zip(svds, (zero, one)):
        np.testing.assert_allclose((u * s) @ vh, x, atol=1e-6), np.testing.assert_allclose(u @ u.T, one, atol=1e-6), np.testing.assert_allclose(vh @ vh.T, one, atol=1e-6)
    for (v, w), x in zip(eighs, (zero, repeated)):
        np.testing.assert_allclose((v * w) @ v.T, x, atol=1e-6)
        assert np.array_equal(np.sort(np.diag(x)), w)
    assert np.isnan(nan).all() and np.array_equal(lu, zero)
