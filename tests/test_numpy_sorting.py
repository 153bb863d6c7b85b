"""Sorting, searching, selecting and sets agree with NumPy, and with a static size they run under jit."""
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from tests.numpy_agreement import agree, compare

rng = np.random.default_rng(3)
X = rng.integers(0, 6, size=(3, 5))
F = np.where(rng.random((3, 5)) > 0.2, rng.normal(size=(3, 5)), np.nan)
Z = rng.integers(0, 3, size=6) + 1j * rng.integers(0, 3, size=6)
V = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3])


def test_sorts():
    agree("""
        [np.sort(a, axis=axis) for a in (x, f) for axis in (None, 0, 1, -1)]
        [np.argsort(a, axis=axis, stable=True) for a in (x, f) for axis in (None, 0, -1)]
        np.sort(z)
        np.sort_complex(z)
        np.lexsort((x[0], x[1]))
        np.lexsort((z.imag, z.real))
        np.lexsort(x)
    """, x=X, f=F, z=Z)
    np.testing.assert_array_equal(jnp.sort(X, descending=True), -np.sort(-X))
    np.testing.assert_array_equal(jnp.argsort(X, descending=True), np.argsort(-X, stable=True))
    assert jnp.argsort(X, dtype="int8").dtype == jnp.int8
    for kth in (0, 2, -1):
        part = np.asarray(jnp.partition(X, kth))
        assert (part[:, kth] == np.sort(X)[:, kth]).all()
        assert (np.take_along_axis(X, np.asarray(jnp.argpartition(X, kth)), -1) == part).all()


@pytest.mark.parametrize("method", ["scan", "scan_unrolled", "sort", "compare_all"])
def test_searchsorted_by_all_methods(method):
    a, nan = np.array([-1.0, 0.0, 0.0, 2.5, 2.5, 2.5, 7.0]), np.array([0.0, 1.0, np.nan, np.nan])
    v = np.array([[-5.0, -1.0, 0.0, 1.0], [2.5, 7.0, 8.0, np.inf]])
    with jax.enable_x64(True):
        got = jax.jit(lambda a, v, nan: [jnp.searchsorted(a, v, side, method=method) for side in ("left", "right")]
                      + [jnp.searchsorted(nan, np.array([0.5, np.nan]), side, method=method) for side in ("left", "right")]
                      + [jnp.searchsorted(a[:0], v, method=method), jnp.searchsorted(a, 1, method=method)])(a, v, nan)
    wanted = [np.searchsorted(a, v, side) for side in ("left", "right")] + [np.searchsorted(nan, [0.5, np.nan], side) for side in ("left", "right")]
    for g, w in zip(got, [*wanted, np.zeros((2, 4), int), np.searchsorted(a, 1)]):
        compare(g, w, method)


def test_bins_and_counts():
    agree("""
        [np.digitize(v, b, right) for b in (edges, edges[::-1]) for right in (False, True)]
        np.searchsorted(v, edges, sorter=np.argsort(v))
    """, v=V + 0.0, edges=np.array([1.0, 3.0, 5.0]))
    compare(jnp.bincount(V), np.bincount(V), "bincount")
    compare(jnp.bincount(V, minlength=12), np.bincount(V, minlength=12), "minlength")
    compare(jnp.bincount(V, weights=V / 2), np.bincount(V, weights=V / 2).astype(np.float32), "weights")
    assert jax.jit(lambda v: jnp.bincount(v, length=4))(V).tolist() == np.bincount(V)[:4].tolist()
    with pytest.raises(ValueError, match="negative"):
        jnp.bincount(np.array([-1]))
    with pytest.raises(TypeError, match="integer"):
        jnp.bincount(np.array([1.0]))
    with pytest.raises(jax.errors.ConcretizationTypeError, match="length"):
        jax.jit(jnp.bincount)(V)


def test_places_of_what_is_not_zero():
    x = np.array([[0, 3, 0], [1, 0, 2]])
    for name in ("nonzero", "argwhere", "flatnonzero"):
        compare(getattr(jnp, name)(x), getattr(np, name)(x), name)
    compare(jnp.where(x), np.where(x), "where")
    def sized(x):
        return [jnp.nonzero(x, size=4), jnp.nonzero(x, size=2), jnp.nonzero(x, size=4, fill_value=(7, -1)), jnp.argwhere(x, size=4, fill_value=-1),
                jnp.flatnonzero(x, size=5, fill_value=9), jnp.where(x, size=4)]
    n, few, filled, rows, flat, where = [np.asarray(r).tolist() for r in jax.jit(sized)(x)]
    assert n == where == [[0, 1, 1, 0], [1, 0, 2, 0]] and few == [[0, 1], [1, 0]] and filled == [[0, 1, 1, 7], [1, 0, 2, -1]]
    assert rows == [[0, 1], [1, 0], [1, 2], [-1, -1]] and flat == [1, 3, 5, 9, 9]
    with pytest.raises(jax.errors.ConcretizationTypeError, match="size"):
        jax.jit(jnp.nonzero)(x)
    with pytest.raises(ValueError, match="fill_value"):
        jnp.nonzero(x, size=4, fill_value=(1, 2, 3))


def test_sets():
    names = {"v": V, "w": np.array([5, 7, 1, 1]), "f": np.array([np.nan, 2.0, np.nan, 1.0]), "m": np.array([[1, 2], [0, 3], [1, 2], [0, 2]]), "z": Z}
    agree("""
        np.unique(v)
        np.unique(v, return_index=True, return_inverse=True, return_counts=True)
        np.unique(m, return_inverse=True)
        np.unique(m, axis=0, return_index=True, return_counts=True)
        np.unique(m, axis=1)
        np.unique(z)
        np.unique(f)
        np.unique(f, equal_nan=False)
        list(np.unique_all(v))
        list(np.unique_counts(v))
        list(np.unique_inverse(m))
        np.sort(np.unique_values(v))
        np.union1d(v, w)
        np.intersect1d(v, w)
        np.intersect1d(v, w, return_indices=True)
        np.setdiff1d(v, w)
        np.setdiff1d(w, v, assume_unique=True)
        np.setxor1d(v, w)
        np.isin(m, w)
        np.isin(m, np.arange(2, 60))
        np.isin(v, w, invert=True)
    """, traced=False, **names)


def test_indices_and_counts_have_the_default_integer_whatever_the_values_have():
    narrow = np.array([3, 1, 1, 2], np.int32)
    for x64, index in ((False, np.int32), (True, np.int64), (False, np.int32)):
        with jax.enable_x64(x64):
            found = [*jnp.unique(narrow, True, True, True)[1:], *jnp.unique(narrow, True, True, True, size=6, fill_value=0)[1:],
                     *jnp.intersect1d(narrow, narrow[:1], return_indices=True)[1:], *jnp.intersect1d(narrow, narrow[:0], return_indices=True)[1:],
                     jnp.argsort(narrow), *jnp.nonzero(narrow), jnp.bincount(narrow), jnp.linalg.lstsq(np.eye(2), np.ones(2))[2]]
            assert {x.dtype for x in found} == {np.dtype(index)}


def test_sets_of_a_static_size_run_under_jit():
    def sized(v, w):
        return [jnp.unique(v, size=9), jnp.unique(v, size=3), jnp.unique(v, size=9, fill_value=-1), jnp.unique(v, size=8, return_counts=True, return_index=True, return_inverse=True),
                jnp.union1d(v, w, size=9, fill_value=0), jnp.intersect1d(v, w, size=4, fill_value=0), jnp.setdiff1d(v, w, size=7, fill_value=0),
                jnp.setxor1d(v, w, size=8, fill_value=0), jnp.isin(v, w)]
    w = np.array([5, 7, 1, 1])
    out = [[np.asarray(leaf).tolist() for leaf in r] if isinstance(r, tuple) else np.asarray(r).tolist() for r in jax.jit(sized)(V, w)]
    assert out[:3] == [[1, 2, 3, 4, 5, 6, 9, 1, 1], [1, 2, 3], [1, 2, 3, 4, 5, 6, 9, -1, -1]]
    values, index, inverse, counts = out[3]
    assert values == [1, 2, 3, 4, 5, 6, 9, 1] and counts == [2, 1, 2, 1, 2, 1, 1, 0] and index[:7] == [1, 6, 0, 2, 4, 7, 5]
    assert np.array(values)[inverse].tolist() == V.tolist()
    assert out[4:] == [[1, 2, 3, 4, 5, 6, 7, 9, 0], [1, 5, 0, 0], [2, 3, 4, 6, 9, 0, 0], [2, 3, 4, 6, 7, 9, 0, 0], np.isin(V, w).tolist()]
    with pytest.raises(jax.errors.ConcretizationTypeError, match="size"):
        jax.jit(jnp.unique)(V)


def test_selection():
    x = np.arange(6.0).reshape(2, 3)
    agree("""
        np.select([x > 4, x > 1], [x * 10, x * 100], -1.0)
        np.select([x > 4], [7.0])
        np.piecewise(x, [x < 2, x > 4], [lambda t: -t, lambda t: t * 10, 7.0])
        np.piecewise(x, [x < 2], [lambda t: -t])
        np.piecewise(x[1], x[1] < 4, [1.0, 2.0])
        np.choose(i, [x, x + 10])
        np.choose(i + 1, [x, x + 10], mode='clip')
        np.choose(i - 3, [x, x + 10], mode='wrap')
    """, traced=False, x=x, i=np.array([[0, 1, 0], [1, 1, 0]]))
    mask = np.array([True, False, True])
    compare(jnp.compress(mask, x, axis=1), np.compress(mask, x, axis=1).astype(np.float32), "compress")
    compare(jnp.compress(mask, x), np.compress(mask, x).astype(np.float32), "compress flat")
    compare(jnp.asarray(x).compress(mask, axis=1), x.compress(mask, axis=1).astype(np.float32), "the method")
    compare(jnp.extract(x > 2, x), np.extract(x > 2, x).astype(np.float32), "extract")
    wanted = x.copy()
    np.place(wanted, x > 2, [7, 8])
    compare(jnp.place(x, x > 2, np.array([7.0, 8.0]), inplace=False), wanted.astype(np.float32), "place")
    assert jax.jit(lambda x: jnp.extract(x > 2, x, size=5, fill_value=-1))(x).tolist() == [3, 4, 5, -1, -1]
    with pytest.raises(ValueError, match="functions"):
        jnp.piecewise(x, [x > 0], [1, 2, 3])
    with pytest.raises(ValueError, match="invalid entry"):
        jnp.choose(np.array([5]), [x[0], x[1]])


def test_sampled_functions():
    x = np.array([0.0, 0.5, 1.5, 3.0])
    agree("""
        np.interp(q, x, y)
        np.interp(q, x, y, left=-7.0, right=9.0)
        np.interp(q, x, y, period=2.5)
        np.interp(1.2, x, y)
        np.gradient(y)
        np.gradient(m)
        np.gradient(m, axis=1)
        np.gradient(m, 2.0, 0.5)
        np.gradient(y, x)
        np.trapezoid(y)
        np.trapezoid(y, x)
        np.trapezoid(m, dx=0.5, axis=0)
        np.unwrap(p)
        np.unwrap(p, discont=4.0)
        np.unwrap(p, period=4.0)
        np.unwrap(n, period=4)
        np.polyval(c, m)
        np.polyadd(c, c[:2])
        np.polysub(c[:1], c)
        [np.polyder(c, k) for k in (0, 1, 2)]
        [np.polyint(c, k) for k in (0, 1, 2)]
        np.polyint(c, 2, np.array([5.0, 6.0]))
        np.poly(x)
        [w(7) for w in (np.hanning, np.hamming, np.bartlett, np.blackman)]
        np.hanning(1)
        [np.convolve(u, v, mode) for u, v in ((y, c[:3]), (c[:2], y), (y, y), (long, y), (y, long), (long, long[:20])) for mode in ('full', 'same', 'valid')]
        [np.correlate(u, v, mode) for u, v in ((y, c[:3]), (c[:2], y), (long, y + 1j), (y * 1j, long), (long, long[:20])) for mode in ('full', 'same', 'valid')]
        np.convolve(n, n)
        np.polymul(c, y)
    """, x=x, y=np.array([1.0, -2.0, 0.5, 4.0]), q=np.array([[-1.0, 0.0, 0.2], [1.5, 2.9, 8.0]]), m=rng.normal(size=(4, 3)),
        p=np.array([0.0, 3.0, 6.5, 9.9, 3.0, -4.0]), n=np.array([0, 3, 7, 9, 1]), c=np.array([2.0, -1.0, 3.0, 0.5]), long=rng.normal(size=50))
    with jax.enable_x64(True):
        for got, wanted in zip(jnp.polydiv(np.array([2.0, 5, 2, 1]), np.array([1.0, 3])), np.polydiv([2.0, 5, 2, 1], [1.0, 3])):
            np.testing.assert_allclose(np.asarray(got)[-len(wanted):], wanted)
        np.testing.assert_allclose(jnp.kaiser(6, 2.5), np.kaiser(6, 2.5), rtol=1e-8)
        np.testing.assert_allclose(jnp.interp(4.0, x, x * 2, right="extrapolate"), 8.0)


def test_roots_and_fits_of_polynomials():
    x, y, w = np.arange(6.0), np.array([1.0, 3, 2, 5, 7, 6]), np.arange(1.0, 7)
    both = np.stack([y, 2 * y], 1)
    with jax.enable_x64(True):
        for p in ([1.0, -6, 11, -6], [0, 1, -3, 2, 0, 0], [2.0, 0, 2], [5.0], [0.0, 0]):
            np.testing.assert_allclose(np.sort_complex(jnp.roots(np.array(p))), np.sort_complex(np.roots(p)), atol=1e-9)
        np.testing.assert_allclose(jnp.polyfit(x, y, 2), np.polyfit(x, y, 2))
        for options in ({"full": True}, {"cov": True}, {"cov": "unscaled", "w": w}, {"w": w, "cov": True}):
            for target in (y, both):
                for got, wanted in zip(jnp.polyfit(x, target, 2, **options), np.polyfit(x, target, 2, **options)):
                    np.testing.assert_allclose(got, wanted, rtol=1e-8)
        np.testing.assert_allclose(jnp.poly(np.array([[1.0, 2], [3, 4]])), np.poly([[1.0, 2], [3, 4]]), atol=1e-12)
        np.testing.assert_allclose(np.sort(jax.jit(lambda p: jnp.roots(p, strip_zeros=False))(np.array([1.0, -3, 2]))), [1, 2])
    with pytest.raises(TypeError, match="length"):
        jnp.polyfit(x, y[:3], 1)
    with pytest.raises(jax.errors.ConcretizationTypeError, match="zeros"):
        jax.jit(jnp.roots)(np.array([1.0, -3, 2]))


@pytest.mark.parametrize("call,error,words", [
    (lambda: jnp.sort([2, 1]), TypeError, "list"), (lambda: jnp.sort(V, axis=3), ValueError, "bounds"), (lambda: jnp.sort(V, order="a"), ValueError, "order"),
    (lambda: jnp.lexsort(()), TypeError, "key"), (lambda: jnp.searchsorted(X, 1), ValueError, "1-dimensional"), (lambda: jnp.searchsorted(V, 1, "up"), ValueError, "side"),
    (lambda: jnp.searchsorted(V, 1, method="guess"), ValueError, "method"), (lambda: jnp.digitize(V, X), ValueError, "1-dimensional"),
    (lambda: jnp.partition(V, 99), ValueError, "bounds"), (lambda: jnp.select([], []), ValueError, "non-empty"), (lambda: jnp.select([V > 1], []), ValueError, "length"),
    (lambda: jnp.interp(1.0, X, X), ValueError, "one-dimensional"), (lambda: jnp.interp(1.0, V, V, left="up"), ValueError, "extrapolate"),
    (lambda: jnp.diff(1.0), ValueError, "one dimension"), (lambda: jnp.diff(V, -1), ValueError, "non-negative"), (lambda: jnp.gradient(np.ones(1)), ValueError, "small"),
    (lambda: jnp.convolve(X, V), ValueError, "1-dimensional"), (lambda: jnp.convolve(V, V, "round"), ValueError, "mode"), (lambda: jnp.place(V, V > 1, V), NotImplementedError, "inplace"), (lambda: jnp.polyder(V, -1), ValueError, "positive"),
])
def test_wrong_arguments_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_these_functions_batch_like_a_loop():
    functions = [lambda v: jnp.argsort(v), lambda v: jnp.searchsorted(jnp.sort(v), jnp.arange(3)), lambda v: jnp.unique(v, size=4), lambda v: jnp.nonzero(v, size=3)[0],
                 lambda v: jnp.bincount(v, length=6), lambda v: jnp.isin(v, v[:2]), lambda v: jnp.interp(2.5, jnp.arange(5), v)]
    got = jax.jit(jax.vmap(lambda v: [f(v) for f in functions]))(X)
    for g, f in zip(got, functions):
        np.testing.assert_allclose(g, np.stack([f(jnp.asarray(row)) for row in X]))


def test_sorting_and_interpolation_differentiate():
    x, y = np.array([0.3, 2.1, 1.2, -1.1]), np.array([1.0, -2.0, 0.5, 4.0])
    f = lambda x, y: (jnp.sort(x) * jnp.arange(4.0)).sum() + jnp.interp(x, jnp.arange(4.0), y).sum() + jnp.trapezoid(y, x) + jnp.unwrap(x * 3).sum() + jnp.partition(x, 1)[1]
    with jax.enable_x64(True):
        g = jax.jit(f)
        for n, grad in enumerate(jax.jit(jax.grad(f, (0, 1)))(x, y)):
            for i in range(4):
                d = np.eye(4)[i] * 1e-6
                moved = lambda s: float(g(x + s * d * (n == 0), y + s * d * (n == 1)))
                assert float(grad[i]) == pytest.approx((moved(1) - moved(-1)) / 2e-6, abs=1e-6)
