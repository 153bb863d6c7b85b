"""The Python array API standard, 2024.12: every function is there and takes the standard's arguments; arrays have its attributes and methods."""
import inspect

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp

# Positional arguments by number, then keywords.
FUNCTIONS = {
    "arange 3 dtype device": "arange", "asarray 1 dtype device copy": "asarray", "empty 1 dtype device": "empty zeros ones", "full 2 dtype device": "full",
    "empty_like 1 dtype device": "empty_like zeros_like ones_like", "full_like 2 dtype device": "full_like", "eye 2 k dtype device": "eye",
    "from_dlpack 1 device copy": "from_dlpack", "linspace 3 num dtype device endpoint": "linspace", "meshgrid 2 indexing": "meshgrid", "tril 1 k": "tril triu",
    "astype 2 copy device": "astype", "can_cast 2": "can_cast isdtype result_type", "finfo 1": "finfo iinfo", "clip 1 min max": "clip", "round 1": "round",
    "one": "abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite isinf isnan log log1p log2 log10 logical_not negative "
           "positive real reciprocal sign signbit sin sinh square sqrt tan tanh trunc",
    "two": "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal floor_divide greater greater_equal hypot less "
           "less_equal logaddexp logical_and logical_or logical_xor maximum minimum multiply nextafter not_equal pow remainder subtract",
    "take 2 axis": "take take_along_axis", "matmul 2": "matmul broadcast_to permute_dims tile", "matrix_transpose 1": "matrix_transpose nonzero unique_all unique_counts "
    "unique_inverse unique_values", "tensordot 2 axes": "tensordot", "vecdot 2 axis": "vecdot roll repeat", "broadcast_arrays 2": "broadcast_arrays",
    "concat 1 axis": "concat expand_dims flip stack squeeze unstack", "moveaxis 3": "moveaxis where", "reshape 2 copy": "reshape",
    "argmax 1 axis keepdims": "argmax argmin count_nonzero max min all any", "searchsorted 2 side sorter": "searchsorted",
    "argsort 1 axis descending stable": "argsort sort", "sum 1 axis dtype keepdims": "sum prod", "mean 1 axis keepdims": "mean",
    "std 1 axis correction keepdims": "std var", "cumulative_sum 1 axis dtype include_initial": "cumulative_sum cumulative_prod", "diff 1 axis n prepend append": "diff",
    "fft 1 n axis norm": "fft.fft fft.ifft fft.rfft fft.irfft fft.hfft fft.ihfft", "fftn 1 s axes norm": "fft.fftn fft.ifftn fft.rfftn fft.irfftn",
    "fftfreq 1 d dtype device": "fft.fftfreq fft.rfftfreq", "fftshift 1 axes": "fft.fftshift fft.ifftshift",
    "cholesky 1 upper": "linalg.cholesky", "cross 2 axis": "linalg.cross linalg.vecdot", "det 1": "linalg.det linalg.eigh linalg.eigvalsh linalg.inv "
    "linalg.matrix_transpose linalg.slogdet linalg.svdvals", "diagonal 1 offset": "linalg.diagonal", "matrix_norm 1 keepdims ord": "linalg.matrix_norm",
    "matrix_power 2": "linalg.matmul linalg.matrix_power linalg.outer linalg.solve", "matrix_rank 1 rtol": "linalg.matrix_rank linalg.pinv", "qr 1 mode": "linalg.qr",
    "svd 1 full_matrices": "linalg.svd", "linalg tensordot 2 axes": "linalg.tensordot", "trace 1 offset dtype": "linalg.trace",
    "vector_norm 1 axis keepdims ord": "linalg.vector_norm",
}
CONSTANTS = "e inf nan newaxis pi bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128"
OPERATORS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
METHODS = ["to_device", *[f"__{name}__" for name in [*OPERATORS, *["r" + name for name in OPERATORS], "abs", "neg", "pos", "invert", "eq", "ne", "lt", "le", "gt", "ge", "bool",
           "int", "float", "complex", "index", "getitem", "setitem", "array_namespace", "dlpack", "dlpack_device"]]]


@pytest.mark.parametrize("form", FUNCTIONS)
def test_functions_take_the_arguments_of_the_standard(form):
    count = {"one": 1, "two": 2}.get(form) or int(next(word for word in form.split() if word.isdigit()))
    keywords = form.split()[form.split().index(str(count)) + 1:] if form not in ("one", "two") else []
    for name in FUNCTIONS[form].split():
        fun = jnp
        for part in name.split("."):
            fun = getattr(fun, part)
        inspect.signature(fun).bind(*range(count - ("num" in keywords)), **dict.fromkeys(keywords, 0))


def test_constants_and_dtypes_are_there():
    assert all([hasattr(jnp, name) for name in CONSTANTS.split()])


def test_arrays_have_the_attributes_and_methods():
    x = jnp.ones((2, 3))
    for name in [*METHODS, "dtype", "device", "mT", "ndim", "shape", "size", "T"]:
        assert hasattr(x, name), name
    assert x.__array_namespace__(api_version="2024.12") is jnp and x.device == jax.devices()[0]
    moved = x.to_device(jax.devices()[1])
    assert moved.device == jax.devices()[1] and np.array_equal(moved, x) and jnp.from_dlpack(x).shape == (2, 3)
    y = x
    for word, other in (("+=", 1), ("*=", 2), ("-=", 3), ("/=", 4), ("**=", 2), ("//=", 1), ("%=", 2)):
        names = {"y": y}
        exec(f"y {word} {other}", names)
        y = names["y"]
    assert np.array_equal(x, np.ones((2, 3))) and y.shape == x.shape
    with pytest.raises(ValueError, match="2024.12"):
        x.__array_namespace__(api_version="1999.01")


def test_the_namespace_tells_its_dtypes_and_devices():
    info = jnp.__array_namespace_info__()
    assert jnp.__array_api_version__ == "2024.12" and info.capabilities()["max dimensions"] >= 32 and info.default_device() is None
    assert jax.devices()[3] in info.devices() and jnp.zeros(2, device=info.default_device()).shape == (2,)
    assert info.default_dtypes() == {"real floating": np.float32, "complex floating": np.complex64, "integral": np.int32, "indexing": np.int32}
    assert set(info.dtypes()) == set("bool int8 int16 int32 uint8 uint16 uint32 float32 complex64".split())
    assert set(info.dtypes(kind=("bool", "signed integer"))) == {"bool", "int8", "int16", "int32"}
    with jax.enable_x64(True):
        assert info.default_dtypes(device=jax.devices()[0])["real floating"] == np.float64 and info.dtypes(kind="real floating") == {
            "float32": np.float32, "float64": np.float64}
    with pytest.raises(ValueError, match="nonsense"):
        info.dtypes(kind="nonsense")
    with pytest.raises(ValueError, match="nowhere"):
        info.dtypes(device="nowhere")


def test_older_names_of_arguments():
    x = jnp.array([-1.0, 0.5, 3.0])
    assert jnp.clip(x, a_min=0, a_max=1).tolist() == [0, 0.5, 1] == jnp.clip(x, 0, 1).tolist()
    with pytest.raises(ValueError, match="a_min"):
        jnp.clip(x, 0, a_min=1)
    with jax.disable_jit(disable=True):
        with jax.disable_jit(disable=False):
            assert not jax.config.jax_disable_jit
        assert jax.config.jax_disable_jit
    with pytest.raises(TypeError, match="disable"):
        jax.enable_x64(disable=True)
    mesh = jax.make_mesh((2,), ("i",), devices=jax.devices()[:2])
    same = jax.shard_map(lambda x: x, mesh=mesh, in_specs=jax.P("i"), out_specs=jax.P(), check_rep=False)
    assert same(jnp.zeros(2)).shape == (1,)
