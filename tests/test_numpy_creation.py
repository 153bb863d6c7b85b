"""Arrays from values, of equal entries, equally spaced, and of indices."""

import ml_dtypes
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from tests.numpy_agreement import agree, compare


@pytest.mark.parametrize("value,dtype,weak", [
    (3, "int32", True), (2.5, "float32", True), (1j, "complex64", True), (True, "bool", False), (np.float64(2), "float32", False),
    (np.int8(3), "int8", False), (np.arange(3), "int32", False), (np.arange(3.0), "float32", False), ([1, 2], "int32", False),
    ([1, 2.5], "float32", False), ([True, 2], "int32", False), ([1, 2j], "complex64", False), ([], "float32", False), ([[], []], "float32", False),
    ([np.int8(1), 2], "int8", False), ([np.float16(1), 2.0], "float16", False), ((1, 2), "int32", False), (range(3), "int32", False),
    ([np.arange(2), [3, 4]], "int32", False), (memoryview(b"abc"), "uint8", False), (np.arange(3)[::-1], "int32", False),
    (np.arange(4, dtype=">i4"), "int32", False), (ml_dtypes.bfloat16(2), "bfloat16", False),
])
def test_values_become_arrays_of_jaxs_dtype(value, dtype, weak):
    for made in (jnp.array(value), jnp.asarray(value), jax.jit(lambda: jnp.array(value))()):
        assert isinstance(made, jax.Array) and made.dtype == dtype and made.weak_type == weak
        np.testing.assert_array_equal(np.asarray(made, np.complex64), np.asarray(value, np.complex64))


def test_sequences_may_hold_arrays_and_traced_values():
    x = jnp.arange(2)
    assert jnp.array([x, [3, 4.5]]).tolist() == [[0, 1], [3, 4.5]] and jnp.array([x, x]).dtype == jnp.int32
    assert jax.jit(lambda a, b: jnp.array([a, b, 1.0]))(2.0, 3).tolist() == [2, 3, 1]
    assert jax.jit(lambda a: jnp.array([[a, 2 * a], [1, 0]]))(2).tolist() == [[2, 4], [1, 0]]
    assert jax.grad(lambda a: jnp.array([a, a * a]).sum())(3.0) == 7


def test_dtype_may_be_asked_for_in_every_spelling():
    for dtype in (jnp.float16, "float16", np.float16, np.dtype("float16")):
        assert jnp.array([1, 2], dtype).dtype == jnp.zeros(2, dtype).dtype == jnp.arange(3, dtype=dtype).dtype == jnp.float16
    assert jnp.array([1, 2], int).dtype == jnp.int32 and jnp.ones(2, float).dtype == jnp.float32 and jnp.array(1, bool).dtype == jnp.bool_
    assert jnp.array([1.7, -1.7], int).tolist() == [1, -1]
    with pytest.warns(UserWarning, match="64-bit"):
        assert jnp.zeros(2, "float64").dtype == jnp.float32
    with jax.enable_x64(True):
        assert jnp.zeros(2, "float64").dtype == jnp.float64 and jnp.array([1, 2]).dtype == jnp.int64


def test_copies():
    host = np.arange(3.0, dtype=np.float32)
    x = jnp.asarray(host)
    host[0] = 9
    assert x[0] == 0
    y, z = jnp.array(x), jnp.asarray(x)
    assert z is x and y is not x and jnp.copy(x) is not x and x.copy() is not x
    assert jnp.array(x, ndmin=3).shape == (1, 1, 3)


class Quacks:
    def __jax_array__(self):
        return jnp.arange(3)


class Numbers:
    def __array__(self, dtype=None, copy=None):
        return np.arange(3.0)


def test_objects_that_are_like_arrays():
    assert jnp.asarray(Quacks()).tolist() == [0, 1, 2] and jnp.add(Quacks(), 1).tolist() == [1, 2, 3] and (jnp.ones(3) * Quacks()).tolist() == [0, 1, 2]
    assert jnp.asarray(Numbers()).tolist() == [0, 1, 2]
    assert jnp.from_dlpack(np.arange(3)).tolist() == [0, 1, 2] and jnp.frombuffer(b"\1\2", "uint8").tolist() == [1, 2]


@pytest.mark.parametrize("call,error,words", [
    (lambda: jnp.array(None), ValueError, "None"), (lambda: jnp.array([1, None]), ValueError, "None"), (lambda: jnp.array("a"), TypeError, "numbers"),
    (lambda: jnp.array(["a"]), TypeError, "numbers"), (lambda: jnp.array({1, 2}), TypeError, "object"), (lambda: jnp.array({}), TypeError, "object"),
    (lambda: jnp.array(np.array(["2020"], "M8[Y]")), TypeError, "datetime64"), (lambda: jnp.array([[1, 2], [3]]), ValueError, "inhomogeneous"),
    (lambda: jnp.array([jnp.arange(2), 3]), TypeError, "one shape"), (lambda: jnp.array(2 ** 40), OverflowError, "int32"),
    (lambda: jnp.array([2 ** 40]), OverflowError, "int32"), (lambda: jnp.array(300, "int8"), OverflowError, "int8"), (lambda: jnp.int8(300), OverflowError, "int8"),
    (lambda: jnp.array(1j, float), TypeError, "complex"), (lambda: jnp.array([1, 2], order="F"), NotImplementedError, "order"),
    (lambda: jnp.zeros(3.0), TypeError, "shape"), (lambda: jnp.zeros((2, -1)), TypeError, "negative"), (lambda: jnp.zeros(3, "nonsense"), TypeError, "nonsense"),
    (lambda: jnp.zeros(3, object), TypeError, "numbers"), (lambda: jnp.zeros_like([1]), TypeError, "list"), (lambda: jnp.full(3, [1, 2, 3]), TypeError, "list"),
    (lambda: jnp.full(3, jnp.arange(2)), ValueError, "broadcast"), (lambda: jnp.arange(0, 1j), ValueError, "real"), (lambda: jnp.arange("a"), TypeError, "real"),
    (lambda: jnp.arange(0, 3, 0), ZeroDivisionError, "zero"), (lambda: jnp.linspace(0, 1, -1), ValueError, "non-negative"), (lambda: jnp.eye(-1), ValueError, "negative"),
    (lambda: jax.jit(jnp.arange)(3), TypeError, "jnp.arange returns depends on the value of stop"), (lambda: jax.jit(jnp.zeros)(3), TypeError, "value of shape, which is traced"), (lambda: jnp.tril(jnp.ones(3)), ValueError, "2D"),
    (lambda: jnp.diag(jnp.ones((2, 2, 2))), ValueError, "1d or 2d"), (lambda: jnp.diagonal(jnp.ones(2)), ValueError, "two dimensions"),
    (lambda: jnp.meshgrid(jnp.ones((2, 2))), ValueError, "1D"), (lambda: jnp.meshgrid(1, indexing="zz"), ValueError, "indexing"),
    (lambda: jnp.fill_diagonal(jnp.ones((2, 2)), 0), NotImplementedError, "inplace"),
    (lambda: jnp.ravel_multi_index((jnp.array([5]),), (3,)), ValueError, "invalid entry"),
    (lambda: jnp.vectorize(lambda x: x, signature="(n)(m)"), ValueError, "signature"),
])
def test_wrong_arguments_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_equal_entries():
    for name, value in (("zeros", 0), ("ones", 1)):
        fun, like = getattr(jnp, name), getattr(jnp, name + "_like")
        for dtype in ("float32", "int8", "bool", "bfloat16", "complex64", "int4"):
            for made in (fun((2, 3), dtype), jax.jit(lambda: fun((2, 3), dtype))(), like(jnp.ones((2, 3)), dtype)):
                assert made.dtype == dtype and made.shape == (2, 3) and (np.asarray(made).real.astype(float) == value).all()
        assert fun(3).shape == (3,) and fun(()).shape == () and fun([2, 1]).shape == (2, 1) and fun(np.int64(2)).shape == (2,)
        assert like(jax.ShapeDtypeStruct((2,), jnp.int8)).dtype == jnp.int8 and like(3).weak_type
    assert jnp.full(2, 3).weak_type and jnp.full(2, 3).dtype == jnp.int32 and jnp.full((2, 2), 1.5, "float16").dtype == jnp.float16
    assert jnp.full((2, 3), jnp.arange(3)).tolist() == [[0, 1, 2]] * 2 and jnp.full_like(jnp.ones(2, int), 2.7).tolist() == [2, 2]
    assert jnp.full_like(jnp.ones(2), jnp.arange(2)).tolist() == [0, 1] and jnp.full_like(jnp.ones(2), 4, shape=(1,)).tolist() == [4]
    assert jnp.zeros(1 << 17).sum() == 0 and jnp.empty((2,)).shape == (2,)


def test_equally_spaced_numbers_are_numpys_outside_and_inside_of_jit():
    agree_both("""
        np.arange(5)
        np.arange(2, 9, 3)
        np.arange(5, 0, -2)
        np.arange(0)
        np.arange(3.5)
        np.arange(0, 1, 0.1)
        np.arange(1, 0, 0.5)
        np.linspace(0, 1, 5)
        np.linspace(2, -1, 4, endpoint=False)
        np.linspace(0, 1, 1)
        np.linspace(0, 1, 0)
        np.linspace(0, 1j, 3)
        np.linspace(1, 10, 4, dtype=int)
        np.linspace(0, 1, 4, retstep=True)
        np.logspace(0, 3, 4)
        np.logspace(0, 3, 4, base=2)
        np.geomspace(1, 1000, 4)
        np.geomspace(-1, -1000, 4)
        np.geomspace(1, 256, 9, endpoint=False)
        np.eye(3)
        np.eye(2, 3, k=1)
        np.eye(3, k=-1, dtype=int)
        np.identity(2)
        np.tri(3, 4, 1, dtype=float)
    """)
    agree("""
        np.linspace(a, b, 3)
        np.linspace(a, b, 3, axis=-1)
        np.linspace(a, 1.0, 3, endpoint=False)
        np.geomspace(a + 1, b, 4)
    """, a=np.array([0.0, 2.0]), b=np.array([5.0, 3.0]))
    np.testing.assert_allclose(np.asarray(jnp.arange(1 << 17))[-2:], [(1 << 17) - 2, (1 << 17) - 1])


def agree_both(expressions):
    agree(expressions, traced=False)
    agree(expressions, traced=True)


def test_triangles_and_diagonals():
    agree("""
        [np.tril(x, k) for k in (-1, 0, 2)]
        [np.triu(x, k) for k in (-1, 0, 2)]
        [np.diag(v, k) for k in (-1, 0, 2)]
        [np.diag(m, k) for k in (-5, -1, 0, 2)]
        np.diagflat(m, 1)
        [np.diagonal(x, k, a, b) for k in (-1, 0, 1, 4) for a, b in ((0, 1), (2, 0), (-1, 1))]
        np.trace(m)
        np.trace(x, 1, 0, 2)
        np.vander(v)
        np.vander(v, 2, increasing=True)
    """, x=np.arange(24.0).reshape(2, 3, 4), m=np.arange(6.0).reshape(2, 3), v=np.array([1.0, 3.0, -2.0]))
    for k in (-1, 0, 1):
        compare(jnp.tril_indices(3, k, 4), np.tril_indices(3, k, 4), "tril_indices")
        compare(jnp.triu_indices(3, k, 4), np.triu_indices(3, k, 4), "triu_indices")
    compare(jnp.diag_indices(3, 3), np.diag_indices(3, 3), "diag_indices")
    compare(jnp.diag_indices_from(np.ones((2, 2))), np.diag_indices(2), "diag_indices_from")
    compare(jnp.mask_indices(3, jnp.triu, 1), np.mask_indices(3, np.triu, 1), "mask_indices")
    for shape, value, wrap in (((3, 3), 5, False), ((5, 2), 7, True), ((5, 2), 7, False), ((3, 3, 3), 1, False), ((4, 4), np.array([1, 2]), False)):
        wanted = np.zeros(shape, np.float32)
        np.fill_diagonal(wanted, value, wrap=wrap)
        compare(jnp.fill_diagonal(jnp.zeros(shape), value, wrap, inplace=False), wanted, f"fill_diagonal {shape}")


def test_grids_and_indices():
    agree("""
        np.meshgrid(a, b)
        np.meshgrid(a, b, indexing='ij', sparse=True)
        np.meshgrid(a, b, a)
        np.meshgrid(a)
        np.indices((2, 3))
        np.indices((2, 3), sparse=True)
        np.mgrid[0:2, 1:7:2]
        np.mgrid[0:1:3j]
        np.ogrid[0:2, 0:1:3j]
        np.r_[1, 2.5, 3:5]
        np.r_[a, 0, b]
        np.r_['0,2', a, a]
        np.c_[a, a]
        np.c_[a, np.ones((3, 2))]
        np.unravel_index(i, (2, 3))
    """, a=np.array([1.0, 2.0, 3.0]), b=np.array([4.0, 5.0]), i=np.array([0, 5, 3]))
    compare(jnp.ix_(np.arange(2), np.array([True, False, True])), np.ix_([0, 1], [True, False, True]), "ix_")
    i, j = np.array([0, 1, 4]), np.array([2, -1, 0])
    for mode in ("wrap", "clip"):
        for order in "CF":
            compare(jnp.ravel_multi_index((i, j), (2, 3), mode=mode, order=order), np.ravel_multi_index((i, j), (2, 3), mode=mode, order=order), mode)
    assert jnp.fromfunction(lambda i, j: i * 10 + j, (2, 3), dtype=int).tolist() == [[0, 1, 2], [10, 11, 12]]


def test_scalar_types():
    assert jnp.float32 == np.float32 and np.dtype(jnp.bfloat16) == ml_dtypes.bfloat16 and {np.float32: 1}[jnp.float32] == 1
    assert jnp.float32(3).dtype == jnp.float32 and not jnp.float32(3).weak_type and jnp.int8([1, 2]).dtype == jnp.int8
    assert isinstance(np.float32(1), jnp.float32) and jnp.issubdtype(jnp.bfloat16, jnp.floating) and jnp.float_ == jnp.float64
    assert jnp.isdtype(jnp.float32, "real floating") and not jnp.isdtype("int8", ("bool", "complex floating")) and jnp.isdtype("int8", jnp.int8)
    with pytest.raises(ValueError, match="kind"):
        jnp.isdtype("int8", "nonsense")
    assert jnp.finfo("bfloat16").bits == 16 and jnp.iinfo(jnp.int4).max == 7 and jnp.promote_types("int8", "uint8") == jnp.int16
    assert jnp.result_type(1, jnp.float16(2)) == jnp.float16 and jnp.can_cast("int8", "int16")
    assert jnp.iscomplexobj(1j) and not jnp.iscomplexobj(jnp.ones(2)) and jnp.isrealobj(np.ones(2)) and jnp.isscalar(jnp.float32(1)) and not jnp.isscalar("a")
    assert jnp.ndarray is jax.Array and jnp.newaxis is None and jnp.isscalar(3)


def test_vectorize_maps_over_leading_dimensions():
    a, b = np.arange(24.0).reshape(4, 2, 3), np.arange(6.0).reshape(2, 3)
    matvec = jnp.vectorize(jnp.matmul, signature="(n,m),(m)->(n)")
    np.testing.assert_allclose(matvec(a, b[0]), a @ b[0])
    np.testing.assert_allclose(matvec(a[:, None], b), np.einsum("anm,bm->abn", a, b))
    both = jnp.vectorize(lambda x, y: (x + y, (x - y)[None]), signature="(),()->(),(k)")
    s, d = both(b, b[:1])
    np.testing.assert_allclose(s, b + b[:1]), np.testing.assert_allclose(d[..., 0], b - b[:1])
    assert jnp.vectorize(lambda x, k: x * k, excluded={1})(b, 3).shape == (2, 3)
    with pytest.raises(ValueError, match="core dimension 'm'"):
        matvec(a, b[0, :2])
    with pytest.raises(TypeError, match="arguments"):
        matvec(a)
    np.testing.assert_allclose(jnp.apply_along_axis(jnp.cumsum, 1, a), np.cumsum(a, 1))
    np.testing.assert_allclose(jnp.apply_along_axis(lambda v: v.sum(), 0, a), a.sum(0))
    np.testing.assert_allclose(jnp.apply_over_axes(jnp.sum, a, (0, 2)), np.apply_over_axes(np.sum, a, (0, 2)))


def test_triangles_and_diagonals_of_weak_arrays_give_way_in_promotion():
    mask = jnp.full((3, 3), -jnp.inf)                    # the masks of attention are made so, and added to scores in bfloat16
    for m in (jnp.triu(mask, 1), jnp.tril(mask), jnp.diag(mask[0]), jnp.diag(mask, 1)):
        assert m.weak_type and (m + jnp.ones(m.shape, jnp.bfloat16)).dtype == jnp.bfloat16
    assert not jnp.triu(jnp.ones((2, 2))).weak_type


def test_files(tmp_path):
    jnp.save(tmp_path / "x.npy", jnp.arange(3.0))
    assert jnp.load(tmp_path / "x.npy").tolist() == [0, 1, 2] and isinstance(jnp.load(tmp_path / "x.npy"), jax.Array)
    jnp.savez(tmp_path / "x.npz", a=jnp.ones(2))
    assert jnp.load(tmp_path / "x.npz")["a"].tolist() == [1, 1]
    assert jnp.array_repr(jnp.arange(2)) == "Array([0, 1], dtype=int32)" and jnp.array_str(jnp.arange(2)) == "[0 1]"
