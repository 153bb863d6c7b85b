"""The cache on disk: a second start compiles nothing, whatever may go wrong with the directory costs one warning, and what others may have
written is not run."""
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
import lowering.digest
import lowering.program
from lowering.emit import rules
from mini_jax import lax
from mini_jax.core import config
from mini_jax.core.program import JaxprEqn
from mini_jax.runtime import disk_cache, dispatch, lean, xla
from mini_jax.sharding import Mesh, NamedSharding, PartitionSpec as P

x = np.arange(1, 9, dtype=np.float32)


@pytest.fixture
def start(tmp_path, monkeypatch):
    """start(): as a new process starts, which remembers nothing; it gives the list of the programs that XLA compiles from then on. They are
    kept in `start.directory`."""
    directory = tmp_path / "cache"
    names, compile = [], xla.compile
    monkeypatch.setattr(xla, "compile", lambda text, *args, **kwargs: names.append(text.split("@")[1].split()[0]) or compile(text, *args, **kwargs))
    monkeypatch.setattr(xla, "LOADED", time.time() + 3600)                 # so that files that are being edited don't matter
    lowering.digest.package.cache_clear()

    def anew():
        jax.clear_caches()
        disk_cache._directories.clear()
        names.clear()
        return names
    anew.directory = directory
    with _set("compilation_cache_dir", str(directory)):
        yield anew
    lowering.digest.package.cache_clear()
    jax.clear_caches()


def _set(name, value):
    """A block in which an option has a value."""
    return config.options[name](value)


def files(start, kind="code"):
    return sorted(start.directory.glob(f"*.{kind}"))


def f(x):
    return jnp.tanh(x) * 2 - x


# --- another process ----------------------------------------------------------------------------------------------------------

PROGRAMS = '''
import json, sys
import numpy as np
import mini_jax as jax, mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.runtime import xla
from mini_jax.sharding import Mesh, NamedSharding, PartitionSpec as P

count, compile = 0, xla.compile
def counted(*args, **kwargs):
    global count
    count += 1
    return compile(*args, **kwargs)
xla.compile = counted

x = np.linspace(0, 1, 8, dtype=np.float32)
mesh = Mesh(np.array(jax.devices()), "d")

def step(p, x):
    return jax.tree.map(lambda a, g: a - 0.1 * g, p, jax.grad(lambda p: jnp.mean((jnp.tanh(x @ p["w"]) + p["b"]) ** 2))(p))

results = {
    "eager": jnp.sin(x) + x[2:5].sum(),
    "step": jax.jit(step, donate_argnums=0)({"w": jnp.ones((8, 8)), "b": jnp.zeros(8)}, x),
    "scan": lax.scan(lambda c, y: (c + y, c * y), 0.0, x),
    "while": lax.while_loop(lambda c: c < 9, lambda c: c * 2 + 1, 1),
    "random": jax.random.normal(jax.random.key(3), (5,)),
    "sorted": jnp.sort(x[::-1]),
    "solved": jnp.linalg.solve(jnp.eye(8) * 2 + x, x),
    "pmap": jax.pmap(lambda x: lax.psum(x, "i"), axis_name="i")(x.reshape(4, 2)),
    "shard_map": jax.shard_map(lambda x: x + lax.psum(x, "d"), mesh=mesh, in_specs=P("d"), out_specs=P("d"))(x),
    "spread": jax.jit(lambda x: x * x)(jax.device_put(x, NamedSharding(mesh, P("d")))),
    "on another device": jnp.cos(jax.device_put(x, jax.devices()[2])),
    "captured": jax.jit(lambda y: y + jnp.asarray(x) * 3)(x),
}
ref = jax.new_ref(x)
jax.jit(lambda: ref.__setitem__(slice(1, 3), 7.0))()
results["ref"] = ref[...]
print(json.dumps([count, jax.tree.map(lambda a: np.asarray(a).tolist(), results)]))
'''


def _processes(number, directory, **environment):
    """Run PROGRAMS in so many processes at once."""
    flags = f"--xla_force_host_platform_device_count=4 {' '.join(flag for flag in os.environ['XLA_FLAGS'].split() if 'device_count' not in flag)}"
    environment = {**os.environ, "MINI_JAX_COMPILATION_CACHE_DIR": str(directory), "XLA_FLAGS": flags, **environment}
    running = [subprocess.Popen([sys.executable, "-c", PROGRAMS], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
               for _ in range(number)]
    ends = [process.communicate(timeout=120) for process in running]
    assert all([process.returncode == 0 for process in running]), ends
    assert "cache" not in "".join([error for _, error in ends])
    return [json.loads(out.splitlines()[-1]) for out, _ in ends]


def test_a_second_start_compiles_nothing_and_gives_the_same(tmp_path):
    first = _processes(2, tmp_path)                                # which write at the same time
    (count, results), = _processes(1, tmp_path)
    assert count == 0 < min([count for count, _ in first])
    assert all([results == before for _, before in first])
    assert not list(tmp_path.glob("*.writing"))


# --- what is found, and what is not ----------------------------------------------------------------------------------------------


def test_what_was_compiled_is_loaded_and_neither_lowered_nor_compiled(start, monkeypatch):
    y = np.asarray(jax.jit(f)(x))
    assert start() == [] and len(files(start)) == len(files(start, "known")) == 1
    written, lower_at = [], dispatch.lower_at
    monkeypatch.setattr(dispatch, "lower_at", lambda *args, **kwargs: written.append(args) or lower_at(*args, **kwargs))
    compiled = start()
    jitted = jax.jit(f)
    assert np.array_equal(jitted(x), y) and np.array_equal(jnp.sin(x), np.sin(x)) is not None
    assert compiled == ["sin"] and len(written) == 1


def test_functions_made_anew_find_it_and_so_do_others_of_equal_text(start):
    jax.jit(lambda x: jnp.sin(x) * 3)(x)
    compiled = start()
    jax.jit(lambda x: jnp.sin(x) * 3)(x)
    assert compiled == []
    jax.jit(lambda x: jnp.sin(x) * 3.5)(x)
    assert len(compiled) == 1


def _instructions(compiled):
    """The instructions of a compiled program with the names of what they come from; the numbers of places may be others."""
    return [line.split(" stack_frame_id=")[0] for line in compiled.as_text().splitlines() if " = " in line]


@pytest.mark.parametrize("least", [0, lean.LEAST], ids=["lean", "whole"])
def test_a_loaded_executable_is_all_that_a_compiled_one_is(start, monkeypatch, least):
    monkeypatch.setattr(lean, "LEAST", least)

    def stages():
        made = jax.jit(f, donate_argnums=0).lower(jnp.ones(8)).compile()
        memory = made.memory_analysis()
        return made, made.cost_analysis()["flops"], memory.temp_size_in_bytes, memory.alias_size_in_bytes, _instructions(made)
    start()
    first, *facts = stages()
    compiled = start()
    second, *again = stages()
    assert facts == again and facts[0] > 0 and compiled == []
    given = [jnp.ones(8), jnp.ones(8)]
    assert np.array_equal(first(given[0]), second(given[1])) and [a.is_deleted() for a in given] == [True, True]
    jitted, calls = jax.jit(f), []
    jitted(jnp.ones(8))
    sys.setprofile(lambda frame, event, _: event == "call" and calls.append(frame.f_code.co_name))
    try:
        jitted(jnp.ones(8))
    finally:
        sys.setprofile(None)
    assert "cache_miss" not in calls and compiled == ["jit_f"]       # this one donates nothing, so it is another program


def test_programs_over_several_devices_keep_their_shardings(start):
    mesh = Mesh(np.array(jax.devices()[:4]), "d")
    spread = jax.device_put(x, NamedSharding(mesh, P("d")))

    def results():
        return jax.jit(lambda x: x[::-1] * 2)(spread), jax.pmap(lambda x: lax.pmean(x, "i") - x, "i")(x.reshape(2, 4)), jax.shard_map(
            lambda x: lax.all_gather(x, "d", tiled=True), mesh=mesh, in_specs=P("d"), out_specs=P(), check_vma=False)(spread)
    start()
    before = results()
    compiled = start()
    for a, b in zip(before, results()):
        assert np.array_equal(a, b) and a.sharding == b.sharding
    assert compiled == []


@pytest.mark.parametrize("other", ["options", "donation", "device", "type", "x64", "unused", "processor", "jaxlib", "flags"])
def test_whatever_changes_the_machine_code_is_a_miss(start, other, monkeypatch):
    start()
    jax.jit(f)(x)
    compiled, fun, arg = start(), jax.jit(f), x
    if other == "options":
        fun = jax.jit(f, compiler_options={"xla_cpu_enable_fast_min_max": True})
    elif other == "donation":
        fun, arg = jax.jit(f, donate_argnums=0), jnp.asarray(x)
    elif other == "device":
        arg = jax.device_put(x, jax.devices()[1])
    elif other == "type":
        arg = x[:4]
    elif other == "unused":
        fun = jax.jit(f, keep_unused=True)
        fun(x)
        assert compiled == []                                     # it uses all that it has
        jax.jit(lambda x, y: f(x))(x, x)
        start()
        two = jax.jit(lambda x, y: f(x), keep_unused=True)
        fun = lambda x: two(x, x)
    elif other == "processor":
        monkeypatch.setattr(disk_cache, "processor", lambda: b"another")
    elif other in ("jaxlib", "flags"):
        if other == "jaxlib":
            monkeypatch.setattr(xla.jaxlib, "__version__", "0.0.1")
        else:
            made = xla.compile_options

            def flagged(*args, **kwargs):
                options = made(*args, **kwargs)
                options.executable_build_options.debug_options.xla_cpu_enable_fast_math = True
                return options
            monkeypatch.setattr(xla, "compile_options", flagged)
        xla._surroundings.cache_clear()
    with _set("enable_x64", other == "x64"):
        if other == "x64":
            arg = x.astype(np.float64)
        fun(arg)
    xla._surroundings.cache_clear()
    assert len([name for name in compiled if name != "device_put"]) == 1


def test_programs_that_call_python_are_not_stored(start):
    def shout(x):
        return jax.pure_callback(lambda x: np.asarray(x) + 1, jax.ShapeDtypeStruct((8,), np.float32), x)
    start()
    for _ in range(2):
        compiled = start()
        assert np.array_equal(jax.jit(shout)(x), x + 1) and "jit_shout" in compiled
    assert files(start) == files(start, "known") == []


def test_what_xla_can_not_write_down_runs_and_is_not_stored(start, monkeypatch):
    def refused(executable):
        raise NotImplementedError("LessThan is not serializable")           # XLA's words for some sorts
    monkeypatch.setattr(xla, "serialize_executable", refused)
    compiled = start()
    assert np.array_equal(jax.jit(lambda x: x + 1)(x), x + 1) and len(compiled) == 1
    assert files(start) == []


def test_what_is_too_quick_or_too_small_is_not_stored_and_nothing_is_where_it_is_switched_off(start):
    for name, value in [("persistent_cache_min_compile_time_secs", 100), ("persistent_cache_min_entry_size_bytes", 1 << 30), ("enable_compilation_cache", False)]:
        with _set(name, value):
            start()
            jax.jit(f)(x)
            assert files(start) == []
    start()
    jax.jit(f)(x)
    assert len(files(start)) == 1


def test_warnings_of_lowering_and_what_it_registers_come_at_every_start(start):
    start()
    for _ in range(2):
        start()
        with pytest.warns(UserWarning, match="donated buffers were not usable"):
            jax.jit(lambda x: x[:2], donate_argnums=0)(jnp.asarray(x))
    assert files(start, "known") == []


# --- without what only a reader needs ----------------------------------------------------------------------------------------------


def train(w, x):
    """A program with fused loops, in a loop and outside of one, products, a branch, and a scatter."""
    loss = lambda w: jnp.mean(lax.fori_loop(0, 3, lambda i, y: jnp.tanh(y @ w) * 2 + i, x) ** 2)
    w = lax.cond(w[0, 0] > 0, lambda w: w - 0.1 * jax.grad(loss)(w) ** 2, lambda w: jnp.exp(w) * 2 - w, w)
    return w, (w * 2 - 1).at[0].add(w[1] * 3), (w.sum(), jnp.sum(w * w, 1))


def _executable_of(fun, *args):
    return xla.serialize_executable(jax.jit(fun).lower(*args).compile().runtime_executable())


@pytest.mark.parametrize("threshold", ["auto", "eager"])
def test_a_lean_executable_gives_the_bits_of_the_whole_one(start, monkeypatch, threshold):
    monkeypatch.setattr(lean, "LEAST", 0)
    loaded, load = [], xla.deserialize_executable
    monkeypatch.setattr(xla, "deserialize_executable", lambda code, *args, **kwargs: loaded.append(len(code)) or load(code, *args, **kwargs))
    w, data = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8), np.ones((16, 8), np.float32)
    both = (w, data), (-w, data)                                                 # one for each branch
    with _set("outline", threshold):
        start()
        made = jax.jit(train).lower(*both[0]).compile()
        expected, shown, size = [made(*given) for given in both], _instructions(made), len(xla.serialize_executable(made.runtime_executable()))
        compiled = start()
        again = jax.jit(train).lower(*both[0]).compile()
        assert jax.tree.all(jax.tree.map(np.array_equal, expected, [again(*given) for given in both]))
        assert compiled == [] and loaded[-1] < 0.9 * size
        assert _instructions(again) == shown and loaded[-1] > 0.9 * size         # the whole one is loaded to be shown


def test_only_bodies_that_are_machine_code_go(start, monkeypatch):
    monkeypatch.setattr(lean, "LEAST", 0)
    whole = _executable_of(f, x)
    shorter = lean.lean(whole)
    assert len(shorter) < len(whole) and b"kLoop" in whole and b"kLoop" not in shorter
    assert "custom-call" in xla.hlo_text(xla.deserialize_executable(shorter, jax.devices()[:1]))
    library = whole.replace(b"kLoop", b"kCuqq")                                  # a kind of which nothing is known
    assert lean.lean(library) is None


def test_what_has_another_form_stays_whole(start, monkeypatch):
    monkeypatch.setattr(lean, "LEAST", 0)
    whole = _executable_of(f, x)
    assert lean.lean(_executable_of(lambda x: x, x)) is None                     # nothing is fused
    for other in (b"", b"no executable", whole[:-3], whole[:len(whole) // 2], whole[40:], whole.replace(b"fusion", b"fusing"), bytes(1000)):
        assert lean.lean(other) is None
    monkeypatch.setattr(lean, "KNOWN", False)
    assert lean.lean(whole) is None


# --- ahead of time -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def threads(start, monkeypatch):
    """The names of the threads that loaded executables, all of which count as large."""
    names, load = [], xla.deserialize_executable
    monkeypatch.setattr(disk_cache, "LARGE", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(xla, "deserialize_executable", lambda *args, **kwargs: names.append(threading.current_thread().name) or load(*args, **kwargs))
    return names


def test_what_the_last_run_used_is_loaded_by_a_thread_once_the_first_program_is_asked_for(start, threads):
    one, two, three = jax.jit(f), jax.jit(lambda x: f(x) * 3), jax.jit(lambda x: f(x) - 5, device=jax.devices()[3])
    start()
    expected = [one(x), two(x), three(x)]
    compiled = start()
    found = [one(x), three(x), two(x)]
    assert compiled == [] and threads == ["mini_jax loading ahead"] * 3
    assert all(map(np.array_equal, expected, [found[0], found[2], found[1]]))


def test_a_wrong_guess_costs_nothing_but_its_loading_and_is_put_right(start, threads):
    start()
    jax.jit(f)(x)
    start()
    jax.jit(lambda x: f(x) / 3)(x)
    list_, = files(start, "ahead")
    assert b"lambda" in list_.read_bytes() and b"jit_f-" not in list_.read_bytes()
    start()
    del threads[:]
    assert np.allclose(jax.jit(f)(x), np.tanh(x) * 2 - x)
    list_.write_bytes(list_.read_bytes()[:-3])
    compiled = start()
    with pytest.warns(UserWarning, match="damaged"):
        jax.jit(f)(x)
    assert compiled == []


def test_what_can_not_be_loaded_ahead_is_loaded_when_it_is_asked_for(start, threads, monkeypatch):
    """So it is with programs that call LAPACK, which XLA does not know before one of them is lowered."""
    start()
    jax.jit(f)(x)
    load = xla.deserialize_executable

    def later(*args, **kwargs):
        loaded = load(*args, **kwargs)
        if "ahead" in threads[-1]:
            raise xla.XlaRuntimeError("NOT_FOUND: no foreign function")
        return loaded
    monkeypatch.setattr(xla, "deserialize_executable", later)
    compiled = start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.allclose(jax.jit(f)(x), np.tanh(x) * 2 - x)
    assert compiled == [] and threads == ["mini_jax loading ahead", "MainThread"] and len(files(start)) == 1


def test_where_python_is_about_to_end_and_starts_no_more_threads_nothing_is_loaded_ahead(start, threads, monkeypatch):
    def refused(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")
    start()
    jax.jit(f)(x)
    compiled = start()
    monkeypatch.setattr(threading.Thread, "start", refused)
    assert np.allclose(jax.jit(f)(x), np.tanh(x) * 2 - x)
    assert compiled == [] and threads == ["MainThread"]


# --- damage ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [lambda data: data[:-7], lambda data: b"", lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
                                    lambda data: b"something else", lambda data: data + b"!"], ids=["cut", "empty", "bit", "other", "longer"])
def test_a_damaged_file_is_replaced_with_a_warning(start, damage):
    start()
    jax.jit(f)(x)
    for kind in ("code", "known"):
        file, = files(start, kind)
        good = file.read_bytes()
        file.write_bytes(damage(good))
        compiled = start()
        with pytest.warns(UserWarning, match="damaged"):
            assert np.allclose(jax.jit(f)(x), np.tanh(x) * 2 - x)
        assert len(compiled) == (kind == "code") and len(file.read_bytes()) == pytest.approx(len(good), rel=0.02)


def test_what_xla_can_not_load_is_replaced_with_a_warning(start):
    start()
    jax.jit(f)(x)
    file, = files(start)
    content = file.read_bytes()
    key = bytes.fromhex(file.stem[-64:])
    os.unlink(file)
    from zlib import compress
    disk_cache._directory().write(file.name, key, disk_cache._HEAD.pack(1.0, 0) + compress(b"no executable"))
    assert file.exists() and file.read_bytes() != content
    compiled = start()
    with pytest.warns(UserWarning, match="XLA can't load it"):
        jax.jit(f)(x)
    assert len(compiled) == 1
    start()
    jax.jit(f)(x)
    assert compiled == []


def test_a_file_under_another_name_is_not_taken(start):
    start()
    jax.jit(f)(x)
    jax.jit(lambda x: x * 5)(x)
    one, other = files(start)
    content = one.read_bytes()
    shutil.copy(other, one)                                     # whole, but of another program
    start()
    with pytest.warns(UserWarning, match="damaged"):
        assert np.allclose(jax.jit(f)(x), np.tanh(x) * 2 - x) and np.allclose(jax.jit(lambda x: x * 5)(x), x * 5)
    assert len(one.read_bytes()) == pytest.approx(len(content), rel=0.02)


# --- directories that are not to be trusted -------------------------------------------------------------------------------------------


def test_a_directory_that_others_may_write_is_refused(start):
    start.directory.mkdir()
    for mode in (0o777, 0o1777, 0o775, 0o702):
        start.directory.chmod(mode)
        compiled = start()
        with pytest.warns(UserWarning, match="written by others.*chmod go-w") as told:
            jax.jit(f)(x), jax.jit(f)(x[:3])
        assert len(told) == 1 and len(compiled) == 2 and not list(start.directory.iterdir())
    start.directory.chmod(0o755)
    start()
    jax.jit(f)(x)
    assert len(files(start)) == 1


def test_a_directory_of_another_user_is_refused(start, monkeypatch):
    start.directory.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(start.directory, 12345, -1)
    else:
        me = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    compiled = start()
    with pytest.warns(UserWarning, match="another user"):
        jax.jit(f)(x)
    assert len(compiled) == 1 and not list(start.directory.iterdir())


def test_a_file_that_others_may_write_is_not_run(start):
    start()
    jax.jit(f)(x)
    file, = files(start)
    file.chmod(0o666)
    compiled = start()
    with pytest.warns(UserWarning, match="written by others"):
        jax.jit(f)(x)
    assert len(compiled) == 1


@pytest.mark.parametrize("place, why", [("gs://bucket/cache", "file system"), (__file__, "File exists|not a directory|Not a directory")])
def test_what_is_no_directory_is_refused(start, place, why):
    start()
    with _set("compilation_cache_dir", place), pytest.warns(UserWarning, match=why):
        jax.jit(f)(x)


# --- directories that fail ------------------------------------------------------------------------------------------------------------


def _one_warning(start, match):
    """Two programs compile and give what they should, with one warning."""
    compiled = start()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert np.allclose(jax.jit(f)(x), np.tanh(x) * 2 - x) and np.allclose(jax.jit(f)(x[:3]), (np.tanh(x) * 2 - x)[:3])
    assert len(told) == 1 and match in str(told[0].message) and len(compiled) == 2


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_directory_that_can_only_be_read_is_read(start, monkeypatch, error):
    start()
    jnp.sin(x)

    def refuse(*_, **__):
        raise OSError(error, os.strerror(error))
    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    _one_warning(start, "not written to any more")
    assert jnp.sin(x) is not None and start() == []
    jnp.sin(x)
    assert start() == []


def test_a_full_disk_leaves_nothing_behind(start, monkeypatch):
    replace = os.replace

    def full(source, target):
        if Path(target).parent == start.directory:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return replace(source, target)
    monkeypatch.setattr(os, "replace", full)
    _one_warning(start, "No space left")
    assert not list(start.directory.iterdir())


def test_a_directory_gone_in_mid_run_is_missed_once(start):
    start()
    jnp.sin(x)
    shutil.rmtree(start.directory)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert np.allclose(jax.jit(f)(x), np.tanh(x) * 2 - x) and np.allclose(jax.jit(f)(x[:3]), (np.tanh(x) * 2 - x)[:3])
    assert len(told) == 1 and "not used any more" in str(told[0].message)


def test_a_disk_that_takes_longer_than_it_saves_is_left_alone(start, monkeypatch):
    read = disk_cache._Directory.read
    monkeypatch.setattr(disk_cache, "_PATIENCE", 0.2)
    monkeypatch.setattr(disk_cache._Directory, "read", lambda *args: time.sleep(0.3) or read(*args))
    _one_warning(start, "more than it saves")


def test_failures_are_raised_where_that_is_asked_for(start):
    start.directory.mkdir()
    start.directory.chmod(0o777)
    start()
    with _set("raise_persistent_cache_errors", True), pytest.raises(RuntimeError, match="written by others"):
        jax.jit(f)(x)


# --- its size ---------------------------------------------------------------------------------------------------------------------------


def test_what_was_used_longest_ago_goes_first(start):
    start()
    functions = [jax.jit(lambda x, n=n: x * n + jnp.sin(x)) for n in range(12)]
    for fun in functions[:8]:
        fun(x)
    ages = {}
    for age, file in enumerate(files(start) + files(start, "known")):
        ages[file] = time.time() - 1000
        os.utime(file, (ages[file],) * 2)
    total = sum([file.stat().st_size for file in start.directory.iterdir()])
    with _set("compilation_cache_max_size", total):
        compiled = start()
        functions[3](x)                                     # which makes it the one used last
        assert compiled == []
        used = {file for file in start.directory.iterdir() if file.stat().st_mtime > time.time() - 500}
        assert {file.suffix for file in used} == {".code", ".known"}
        for fun in functions[8:]:
            fun(x)
        kept = list(start.directory.iterdir())
        assert sum([file.stat().st_size for file in kept]) <= total and used <= set(kept) and len(files(start)) < 12
        compiled = start()
        functions[3](x), functions[11](x)
        assert compiled == []
    with _set("compilation_cache_max_size", 100):
        start()
        jax.jit(lambda x: jnp.exp(x) - 2)(x)                # larger than all that there is room for
        assert len(files(start)) < 12


def test_what_a_process_that_ended_was_writing_is_cleared_away(start):
    start.directory.mkdir(mode=0o700)
    old, new = start.directory / "a.writing", start.directory / "b.writing"
    for file, age in ((old, 7200), (new, 1)):
        file.write_bytes(b"half")
        os.utime(file, (time.time() - age,) * 2)
    foreign = start.directory / "notes.txt"
    foreign.write_text("x" * 9999)
    start()
    with _set("compilation_cache_max_size", 1 << 20):
        jax.jit(f)(x)
    assert not old.exists() and new.exists() and foreign.exists()


# --- many at once ---------------------------------------------------------------------------------------------------------------------------


def test_threads_that_write_the_same_agree(start):
    start()
    directory, key, name, content = disk_cache._directory(), bytes(32), "x-" + "00" * 32 + ".code", os.urandom(1 << 16)
    seen = set()

    def work():
        for _ in range(20):
            directory.write(name, key, content)
            seen.add(directory.read(name, key))
    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads], [thread.join() for thread in threads]
    assert seen == {content} and [file.name for file in start.directory.iterdir()] == [name]


# --- digests of programs ----------------------------------------------------------------------------------------------------------------------


def _digest(fun, *args, settings=()):
    return lowering.digest.digest(jax.jit(fun).trace(*(args or (x,))).jaxpr.jaxpr, settings)


def test_equal_programs_have_equal_digests_and_others_others(start):
    same = [_digest(lambda x: jnp.sin(x) * 2 + y) for y in (np.ones(8, np.float32), np.zeros(8, np.float32))]       # captured: types count, values don't
    assert same[0] == same[1] is not None
    different = [
        _digest(lambda x: x * 2.0), _digest(lambda x: x * -2.0), _digest(lambda x: x + 0.0), _digest(lambda x: x + -0.0),
        _digest(lambda x: x + float("nan")), _digest(lambda x: (x, x)), _digest(lambda x: (x, x * 1)), _digest(lambda x: x[1:]), _digest(lambda x: x[:-1]),
        _digest(lambda x: jnp.sum(x)), _digest(lambda x: jnp.sum(x, keepdims=True)), _digest(lambda x, y: x - y, x, x), _digest(lambda x, y: y - x, x, x),
        _digest(lambda x: x.astype(jnp.bfloat16)), _digest(lambda x: x.astype(jnp.float16)), _digest(jax.jit(f)), _digest(f), _digest(f, x[:3]),
        _digest(f, settings=(True,)), _digest(f, settings=(1,)), _digest(f, settings=(1.0,)), _digest(f, settings=("1",)), _digest(f, settings=((1,),)),
        _digest(lambda x: lax.scan(lambda c, y: (c, c), x[0], x, unroll=True)), _digest(lambda x: lax.scan(lambda c, y: (c, c), x[0], x, unroll=1)),
        _digest(lambda x: lax.fori_loop(0, 3, lambda i, x: x * 2, x)), _digest(lambda x: lax.fori_loop(0, 4, lambda i, x: x * 2, x)),
        *[_digest(lambda key: jax.random.bits(key, (3,)), jax.random.key(0, impl=impl)) for impl in ("threefry2x32", "rbg")], *same[:1]]
    assert len(set(different)) == len(different) and None not in different


def test_options_that_change_programs_are_in_the_digest(start):
    digests = {_digest(f)}
    for name, value in [("enable_x64", True), ("default_matmul_precision", "high"), ("outline", "off")]:
        with _set(name, value):
            digests.add(_digest(f))
    assert len(digests) == 4


def test_there_is_no_digest_where_lowering_could_depend_on_more(start, monkeypatch):
    assert _digest(lambda x: jax.pure_callback(np.sin, x, x)) is None                                # a function in its parameters
    jaxpr = jax.make_jaxpr(lambda x: jnp.sin(x))(x).jaxpr
    assert lowering.digest.digest(jaxpr, (object(),)) is None
    sin = jaxpr.eqns[0].primitive
    theirs = {}
    exec("def rule(e, eqn, x): return x", theirs)                                                    # a rule that a user registered
    monkeypatch.setitem(rules, sin, theirs["rule"])
    assert lowering.digest.digest(jaxpr, ()) is None
    monkeypatch.undo()
    monkeypatch.setattr(xla, "LOADED", 0.0)                                                          # files were changed since the package was loaded
    lowering.digest.package.cache_clear()
    assert lowering.digest.digest(jaxpr, ()) is None


class _Untouchable:
    """A parameter that must not be looked at."""
    __hash__ = object.__hash__

    def __getattribute__(self, name):
        raise AssertionError("read")

    def __call__(self, *_):
        raise AssertionError("called")


@jax.custom_jvp
def _one(x):
    return x * 2


@jax.custom_vjp
def _two(x):
    return x * 3


_one.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
_two.defvjp(lambda x: (x, None), lambda _, ct: (ct,))


def test_lowering_reads_none_of_what_digests_pass_over():
    traced = jax.jit(lambda x: _one(x) + _two(x) + jax.checkpoint(jnp.sin)(x)).trace(x).jaxpr.jaxpr
    seen = set()

    def poisoned(eqn):
        unread = lowering.digest.UNREAD.get(eqn.primitive.name, ())
        seen.add(eqn.primitive.name)
        return JaxprEqn(eqn.primitive, eqn.invars, eqn.outvars, {k: _Untouchable() if k in unread else v for k, v in eqn.params.items()}, eqn.effects, eqn.source)
    text = lowering.program.lower(traced, (), name="f").text
    assert lowering.program.lower(traced.replace(eqns=[poisoned(eqn) for eqn in traced.eqns]), (), name="f").text == text
    assert seen >= set(lowering.digest.UNREAD)
