"""Reshaping, moving, joining, splitting, repeating and padding agree with NumPy."""
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from tests.numpy_agreement import agree, compare

X = np.arange(24.0).reshape(2, 3, 4)
M = np.arange(6.0).reshape(2, 3)
V = np.arange(5.0)


def test_shapes_and_axes():
    agree("""
        np.reshape(x, (4, 6))
        np.reshape(x, (-1, 8))
        np.reshape(x, 24)
        np.reshape(x, (4, 3, 2), order='F')
        np.ravel(x)
        np.ravel(m, order='F')
        np.transpose(x)
        np.transpose(x, (1, -1, 0))
        np.permute_dims(x, (2, 0, 1))
        np.matrix_transpose(x)
        np.swapaxes(x, 0, -1)
        np.moveaxis(x, 0, -1)
        np.moveaxis(x, (0, 2), (1, 0))
        np.rollaxis(x, 2)
        np.rollaxis(x, 0, 2)
        np.expand_dims(x, (0, -1))
        np.squeeze(x[None, :, :1], 0)
        np.squeeze(x[:1, :1])
        np.broadcast_to(m, (4, 2, 3))
        np.broadcast_arrays(m, v[:3], 1.0)
        np.atleast_1d(m, v, 1.0)
        np.atleast_2d(m, v, 1.0)
        np.atleast_3d(x, m, v, 1.0)
        np.flip(x)
        np.flip(x, (0, -1))
        np.fliplr(m)
        np.flipud(m)
        [np.rot90(x, k, axes) for k in range(-1, 4) for axes in ((0, 1), (2, 1))]
        [np.roll(x, s, a) for s, a in ((1, None), (-5, 1), ((1, 2), (0, 2)), (7, (0, 1)), ((1, 2), 1))]
        np.repeat(x, 2, 1)
        np.repeat(m, 3)
        np.repeat(m, 0, 0)
        [np.tile(m, r) for r in (2, (2, 1), (2, 1, 3), ())]
        np.resize(m, (4, 5))
        np.resize(m, (1, 2))
    """, x=X, m=M, v=V)
    assert (jnp.shape(M), jnp.ndim(M), jnp.size(M), jnp.size(M, 1), jnp.shape(3.0)) == ((2, 3), 2, 6, 3, ())


def test_zero_sized_arrays():
    agree("""
        np.reshape(e, (3, 0))
        np.reshape(e, (-1, 3))
        np.concatenate([e, e], 1)
        np.stack([e, e])
        np.flip(e)
        np.roll(e, 1)
        np.tile(e, 2)
        np.pad(e, ((0, 0), (1, 2)))
        np.repeat(e, 2, 0)
        np.split(e, 3, 1)
    """, e=np.zeros((0, 3)))


def test_joining_and_splitting():
    agree("""
        np.concatenate([x, x + 1], -1)
        np.concatenate([m, v], None)
        np.concatenate([m, m > 2])
        np.concatenate(x)
        np.concat([m, m])
        [np.stack([m, m + 1], a) for a in (0, 1, -1)]
        np.stack(x, 1)
        [f([v, v]) for f in (np.hstack, np.vstack, np.dstack, np.column_stack)]
        [f([m, m]) for f in (np.hstack, np.vstack, np.dstack, np.column_stack)]
        [f([x, x]) for f in (np.hstack, np.vstack, np.dstack)]
        np.append(m, v)
        np.append(m, m, 1)
        np.block([[m, m], [np.ones((1, 3)), np.zeros((1, 3))]])
        np.block([v, 1.0])
        np.block([[[m]]])
        np.split(x, 2, 1 - 1)
        np.split(v, [1, 3])
        np.split(v, [2, 2, 9])
        np.split(v, [-2])
        np.array_split(v, 3)
        np.hsplit(m, 3)
        np.vsplit(m, 2)
        np.dsplit(x, 2)
        np.unstack(x, axis=1)
    """, x=X, m=M, v=V)


def test_insertion_and_removal():
    for array in (M, V, X):
        for axis in (None, 0, array.ndim - 1):
            n = array.size if axis is None else array.shape[axis]
            for obj in (0, 1, -1, slice(0, 2), [0, 1, 1], np.array([n])):
                known = np.asarray(obj) if isinstance(obj, list) else obj
                compare(jnp.insert(array, known, 9.0, axis), np.insert(array.astype(np.float32), obj, 9.0, axis), f"insert {obj} {axis}")
                if not isinstance(obj, np.ndarray):
                    compare(jnp.delete(array, known, axis), np.delete(array.astype(np.float32), obj, axis), f"delete {obj} {axis}")
    compare(jnp.insert(M, 1, np.array([7.0, 8.0, 9.0]), axis=0), np.insert(M.astype(np.float32), 1, [7, 8, 9], axis=0), "row")
    compare(jnp.insert(M, 1, np.array([7.0, 8.0]), axis=1), np.insert(M.astype(np.float32), 1, [7, 8], axis=1), "column")
    compare(jnp.delete(M, np.array([True, False, True]), 1), np.delete(M.astype(np.float32), [True, False, True], 1), "mask")
    traced = jax.jit(lambda v, i: jnp.delete(v, i))(V, 2)
    compare(traced, np.delete(V.astype(np.float32), 2), "traced index")
    several = jax.jit(lambda v, i: jnp.delete(v, i, assume_unique_indices=True))(V, np.array([3, -5]))
    compare(several, np.delete(V.astype(np.float32), [3, 0]), "traced indices")
    assert jnp.trim_zeros(jnp.array([0, 0, 1, 0, 2, 0])).tolist() == [1, 0, 2]


MODES = ["constant", "edge", "linear_ramp", "maximum", "mean", "median", "minimum", "reflect", "symmetric", "wrap"]


@pytest.mark.parametrize("mode", MODES)
def test_pad_has_all_of_numpys_modes(mode):
    widths = [1, (2, 1), ((0, 2), (3, 0)), ((7, 8), (9, 6))]
    for array in (M + 0.5, np.array([[5, -2, 4], [1, 0, 7]])):
        with jax.enable_x64(True):
            got = jax.jit(lambda a: [jnp.pad(a, w, mode) for w in widths])(array)
        for g, w in zip(got, widths):
            compare(g, np.pad(array, w, mode), f"{mode} {w}")


def test_options_of_pad():
    agree("""
        np.pad(m, 2, 'constant', constant_values=7)
        np.pad(m, 2, 'constant', constant_values=((1, 2), (3, 4)))
        np.pad(m, ((1, 2), (0, 3)), 'linear_ramp', end_values=((1, 2), (3, 4)))
        np.pad(m, 4, 'mean', stat_length=2)
        np.pad(m, 4, 'maximum', stat_length=((1, 2), (2, 1)))
        np.pad(m, 5, 'reflect', reflect_type='odd')
        np.pad(m, 5, 'symmetric', reflect_type='odd')
        np.pad(m[:1, :1], 2, 'reflect')
        np.pad(n, 3, 'mean')
        np.pad(n, 3, 'linear_ramp', end_values=9)
    """, m=M, n=np.array([[5, -2, 4]]))
    def by_function(vector, width, axis, kwargs):
        return vector.at[:width[0]].set(kwargs["value"])
    assert jnp.pad(jnp.ones(2), (2, 1), by_function, value=5).tolist() == [5, 5, 1, 1, 0]
    assert jnp.pad(jnp.ones((2, 2)), {1: (1, 0)}).tolist() == [[0, 1, 1], [0, 1, 1]]


def test_counts_may_be_arrays():
    counts = np.array([2, 0, 3])
    compare(jnp.repeat(M, jnp.array(counts), 1), np.repeat(M.astype(np.float32), counts, 1), "known counts")
    repeat = jax.jit(lambda m, c, n: jnp.repeat(m, c, 1, total_repeat_length=n), static_argnums=2)
    compare(repeat(M, counts, 5), np.repeat(M.astype(np.float32), counts, 1), "traced counts")
    assert repeat(M, counts, 7)[0].tolist() == [0, 0, 2, 2, 2, 2, 2] and repeat(M, counts, 3)[0].tolist() == [0, 0, 2]
    assert jax.jit(lambda m, s: jnp.roll(m, s, 1))(M, -1)[0].tolist() == [1, 2, 0]


def test_view_reads_the_same_bytes():
    x = np.array([[1.5, -2.0], [0.0, 3.25]], np.float32)
    for dtype in (np.int32, np.uint8, np.int16, np.float16, np.complex64, np.float32):
        got, wanted = jnp.asarray(x).view(dtype), x.view(dtype)
        assert got.dtype == wanted.dtype and got.tobytes() == wanted.tobytes() and got.shape == wanted.shape
    z = np.array([[1 + 2j, 3 - 4j]], np.complex64)
    compare(jnp.asarray(z).view(np.float32), z.view(np.float32), "complex")
    compare(jnp.array([True, False]).view(np.uint8), np.array([1, 0], np.uint8), "bool")
    with pytest.raises(ValueError):
        jnp.ones(3, np.float16).view(np.float32)


def test_bits():
    a = np.array([[1, 0, 1, 1, 0, 0, 1, 0, 1], [0, 1, 1, 0, 0, 0, 0, 0, 0]], np.uint8)
    agree("""
        [np.packbits(a, axis=axis, bitorder=order) for axis in (None, 0, 1) for order in ('big', 'little')]
        [np.unpackbits(b, axis=axis, bitorder=order) for axis in (None, 0, 1) for order in ('big', 'little')]
        [np.unpackbits(b, count=c) for c in (3, -3, 40)]
    """, a=a, b=np.array([[5, 200], [0, 255]], np.uint8))


@pytest.mark.parametrize("call,error,words", [
    (lambda: jnp.reshape(M, (4, 2)), TypeError, "f32\\[2,3\\].*6 elements.*8"),
    (lambda: jnp.reshape(M, (-1, -1)), TypeError, "unknown axis"),
    (lambda: jnp.reshape(M, (-1, 4)), TypeError, "divide"),
    (lambda: jnp.reshape(M, 2.5), TypeError, "ints"),
    (lambda: jnp.reshape([1, 2], 2), TypeError, "list"),
    (lambda: jnp.transpose(M, (0, 0)), TypeError, "permutation"),
    (lambda: jnp.moveaxis(M, 0, 5), ValueError, "bounds"),
    (lambda: jnp.squeeze(M, 0), ValueError, "size"),
    (lambda: jnp.broadcast_to(M, (3,)), ValueError, "broadcast"),
    (lambda: jnp.concatenate([]), ValueError, "at least one"),
    (lambda: jnp.concatenate([1, 2]), ValueError, "Zero-dimensional"),
    (lambda: jnp.concatenate([M, V]), TypeError, "dimensions"),
    (lambda: jnp.concatenate([M, M], 2), ValueError, "bounds"),
    (lambda: jnp.concatenate([[1], [2]]), TypeError, "list"),
    (lambda: jnp.stack([M, V]), ValueError, "dimensions"),
    (lambda: jnp.stack(3), TypeError, "sequence"),
    (lambda: jnp.split(V, 2), ValueError, "equal division"),
    (lambda: jnp.block([(M,)]), ValueError, "tuples"),
    (lambda: jnp.repeat(V, -1), ValueError, "negative"),
    (lambda: jnp.pad(M, 1, "nonsense"), NotImplementedError, "nonsense"),
    (lambda: jnp.pad(M, -1), ValueError, "negative"),
    (lambda: jnp.pad(M, 1.5), TypeError, "integral"),
    (lambda: jnp.pad(M, ((1,), (2,))), ValueError, "Valid shapes"),
    (lambda: jnp.pad(M, 1, "wrap", stat_length=2), ValueError, "stat_length"),
    (lambda: jnp.pad(np.zeros((0, 2)), 1, "edge"), ValueError, "empty"),
    (lambda: jax.jit(jnp.reshape)(M, 6), TypeError, "jnp.reshape returns depends on the value of shape"),
    (lambda: jnp.delete(V, 7), IndexError, "bounds"),
    (lambda: jnp.insert(V, 7, 0), IndexError, "bounds"),
])
def test_wrong_arguments_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_these_functions_differentiate_and_batch():
    def f(m):
        parts = jnp.split(jnp.concatenate([m, jnp.flip(m, 0)], 0), 2)
        return sum([(jnp.pad(p, 1, "reflect") * jnp.arange(p.shape[1] + 2.0)).sum() for p in parts]) + (jnp.roll(m, 1, 1) * m).sum() + jnp.repeat(m, 2, 1)[0, 3]
    with jax.enable_x64(True):
        grad = jax.jit(jax.grad(f))(M)
        numeric = np.zeros_like(M)
        g = jax.jit(f)
        for i in np.ndindex(M.shape):
            d = np.zeros_like(M)
            d[i] = 1e-6
            numeric[i] = (float(g(M + d)) - float(g(M - d))) / 2e-6
        np.testing.assert_allclose(grad, numeric, atol=1e-6)
    batched = jax.vmap(lambda m: [jnp.flip(m), jnp.tile(m, 2), jnp.pad(m, 1, "edge"), jnp.stack([m, m], 1), jnp.insert(m, 1, 0.0, axis=1)])(X)
    for i in range(2):
        for got, want in zip(batched, [np.flip(X[i]), np.tile(X[i], 2), np.pad(X[i], 1, "edge"), np.stack([X[i], X[i]], 1), np.insert(X[i], 1, 0.0, axis=1)]):
            np.testing.assert_allclose(got[i], want)
