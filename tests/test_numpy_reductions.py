"""Reductions, cumulative functions and statistics agree with NumPy over axes, masks, starts and dtypes."""
import itertools

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from tests.numpy_agreement import agree

rng = np.random.default_rng(1)
X = rng.normal(size=(2, 3, 4))
N = rng.integers(-5, 6, size=(2, 3, 4))
B = rng.random((2, 3, 4)) > 0.4
NAN = np.where(rng.random((2, 3, 4)) > 0.3, X, np.nan)
NAN[1, 2] = np.nan
AXES = [None, 0, -1, (0, 2), (), (0, 1, 2)]


@pytest.mark.parametrize("names,array", [("sum prod mean std var max min ptp any all count_nonzero", X), ("sum prod mean var max min any all", N),
                                         ("sum prod any all max", B), ("sum mean var std prod any", X + 1j * X[::-1])],
                         ids=["floats", "integers", "booleans", "complex"])
def test_reductions_over_all_axes(names, array):
    lines = [f"np.{name}(a, axis={axis}, keepdims={keepdims})" for name in names.split() for axis in AXES for keepdims in (False, True)
             if not (name in ("ptp",) and axis == ())]
    agree("\n".join(lines), a=array)


def test_masks_and_starts():
    agree("""
        [np.sum(a, axis=axis, where=b, initial=2.5) for axis in (None, 1, (0, 2))]
        [np.prod(a, axis=axis, where=b, initial=2.5) for axis in (None, 1)]
        [np.max(a, axis=axis, where=b, initial=-0.5) for axis in (None, 1)]
        [np.min(a, axis=axis, where=b, initial=0.5, keepdims=True) for axis in (None, 1)]
        [np.mean(a, axis=axis, where=b) for axis in (None, 1)]
        [np.var(a, axis=axis, where=b, ddof=1) for axis in (None, (0, 2))]
        [np.std(a, axis=axis, where=b) for axis in (None, (0, 2))]
        [np.any(a > 1, axis=axis, where=b) for axis in (None, 1)]
        [np.all(a > -1, axis=axis, where=b) for axis in (None, 1)]
        np.sum(a, where=b[:, :1])
        np.var(a, axis=1, mean=np.mean(a, axis=1, keepdims=True))
        np.std(a, axis=1, correction=1)
        np.average(a)
        np.average(a, axis=1, weights=np.array([1.0, 2.0, 4.0]))
        np.average(a, axis=(2, 0), weights=np.arange(8.0).reshape(4, 2))
        np.average(a, weights=a * a, returned=True)
    """, a=X, b=B)


def test_empty_arrays_reduce_to_the_identity():
    agree("""
        np.sum(e)
        np.prod(e, axis=0)
        np.any(e, axis=0)
        np.all(e, axis=1)
        np.mean(e, axis=0)
        np.max(e, axis=1)
        np.max(e, axis=0, initial=-1.0)
        np.cumsum(e, axis=0)
        np.nansum(e)
    """, e=np.zeros((0, 3)))
    for call in (lambda e: jnp.max(e), lambda e: jnp.min(e, 0), lambda e: jnp.argmax(e), lambda e: jnp.argmin(e, 0)):
        for attempt in (call, jax.jit(call)):
            with pytest.raises(ValueError, match="zero-size|empty"):
                attempt(np.zeros((0, 3)))


def test_places_of_extrema_are_the_first_ones_and_those_of_nan():
    ties = np.array([[3, 1, 3], [1, 1, 2]])
    agree("""
        [f(t, axis=axis, keepdims=k) for f in (np.argmax, np.argmin) for axis in (None, 0, 1) for k in (False, True)]
        [f(a, axis=axis) for f in (np.argmax, np.argmin) for axis in (None, 0, -1)]
        [f(n, axis=axis) for f in (np.argmax, np.argmin, np.max, np.min) for axis in (None, 0, -1)]
    """, t=ties, a=X, n=NAN)


def test_cumulative_functions():
    agree("""
        [f(a, axis=axis) for f in (np.cumsum, np.cumprod) for axis in (None, 0, 1, -1)]
        [f(n, axis=axis) for f in (np.cumsum, np.cumprod) for axis in (None, 0, -1)]
        np.cumsum(a > 0)
        [f(nan, axis=axis) for f in (np.nancumsum, np.nancumprod) for axis in (None, 1)]
        [f(a, axis=1, include_initial=i) for f in (np.cumulative_sum, np.cumulative_prod) for i in (False, True)]
        [np.diff(a, n, axis) for n in (0, 1, 2) for axis in (0, -1)]
        np.diff(a, prepend=0.0, append=np.ones((2, 3, 2)))
        np.diff(a > 0)
        np.ediff1d(a, to_begin=9.0, to_end=np.array([7.0, 8.0]))
    """, a=X, n=N, nan=NAN)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_that_leave_nan_out():
    lines = [f"np.nan{name}(a, axis={axis}, keepdims={keepdims})" for name in "sum prod max min mean var std median".split()
             for axis, keepdims in ((None, False), (-1, True), ((0, 2), False))]
    agree("\n".join(lines), a=NAN)
    clean = np.where(np.isnan(NAN), 5.0, NAN)
    agree("[f(c, axis=axis) for f in (np.nanargmax, np.nanargmin) for axis in (None, 0, 1)]", c=clean)
    assert jnp.nanargmax(jnp.array([jnp.nan])) == -1 and jnp.nansum(jnp.array([1, 2])).dtype == jnp.int32


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_quantiles():
    for method in ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf"):
        agree(f"""
            np.quantile(a, q, axis=(0, 2), method={method!r}, keepdims=True)
            np.percentile(a, 37.0, method={method!r})
            np.nanpercentile(n, p, axis=2, method={method!r})
        """, a=X, n=NAN, q=np.array([0.0, 0.21, 0.5, 1.0]), p=np.array([15.0, 80.0]))
    agree("""
        [np.median(a, axis=axis, keepdims=k) for axis, k in ((None, True), (0, False), ((0, 2), True))]
        np.quantile(a, 0.77, axis=0)
        np.nanquantile(n, 0.4, axis=(0, 1), keepdims=True)
        np.median(n)
        np.median(m)
        np.quantile(a, 0.3, axis=1, weights=w, method='inverted_cdf')
    """, a=X, n=NAN, m=N, w=np.array([1.0, 3.0, 2.0]))


def test_covariances():
    m = X[0]
    agree("""
        np.cov(m)
        np.cov(m, rowvar=False)
        np.cov(m, bias=True)
        np.cov(m, ddof=2)
        np.cov(m[0], m[1])
        np.cov(m[0])
        np.cov(m, fweights=f)
        np.cov(m, aweights=w)
        np.cov(m, fweights=f, aweights=w, ddof=0)
        np.cov(m + 1j * m[::-1])
        np.corrcoef(m)
        np.corrcoef(m, rowvar=False)
        np.corrcoef(m[0], m[1])
    """, m=m, f=np.array([1, 2, 1, 3]), w=np.array([0.5, 1.0, 2.0, 1.5]))


def test_histograms():
    points = np.array([[0.1, 0.9], [0.4, 0.4], [0.5, 0.1], [1.0, 1.0], [0.0, 0.2], [2.0, 0.5]])
    flat = np.array([0.0, 0.1, 0.25, 0.5, 0.5, 0.9, 1.0, 1.5])
    w = np.arange(1.0, 9)
    edges = np.array([0.0, 0.5, 1.0])
    for bins, options in itertools.product((3, edges), ({}, {"density": True}, {"weights": w}, {"range": (0.2, 1.0)})):
        with jax.enable_x64(True):
            got = jnp.histogram(flat, bins, **options)
        wanted = np.histogram(flat, bins, **options)
        np.testing.assert_allclose(got[0], wanted[0]), np.testing.assert_allclose(got[1], wanted[1])
    with jax.enable_x64(True):
        for got, wanted in ((jnp.histogram2d(points[:, 0], points[:, 1], [2, edges]), np.histogram2d(points[:, 0], points[:, 1], [2, edges])),
                            (jnp.histogram2d(points[:, 0], points[:, 1], 3, density=True), np.histogram2d(points[:, 0], points[:, 1], 3, density=True))):
            for g, w in zip(got, wanted):
                np.testing.assert_allclose(g, w)
        got, wanted = jnp.histogramdd(points, 2, range=[(0, 1), None]), np.histogramdd(points, 2, range=[(0, 1), (0.1, 1.0)])
        np.testing.assert_allclose(got[0], wanted[0])
    assert jax.jit(lambda x: jnp.histogram(x, 4)[0])(flat).tolist() == np.histogram(flat, 4)[0].tolist()


@pytest.mark.parametrize("name,given,dtype", [
    ("sum", "int8", "int32"), ("sum", "uint8", "uint32"), ("sum", "bool", "int32"), ("sum", "bfloat16", "bfloat16"), ("prod", "int16", "int32"),
    ("cumsum", "int8", "int8"), ("cumsum", "bool", "int32"), ("mean", "int8", "float32"), ("mean", "float16", "float16"), ("var", "bool", "float32"),
    ("std", "complex64", "float32"), ("max", "int8", "int8"), ("argmax", "float16", "int32"), ("any", "float32", "bool"), ("median", "int32", "float32"),
])
def test_dtypes_of_results(name, given, dtype):
    x = jnp.ones((2, 3), given)
    assert getattr(jnp, name)(x).dtype == dtype and not getattr(jnp, name)(x).weak_type
    if name in ("sum", "prod", "mean", "cumsum"):
        assert getattr(jnp, name)(x, dtype="float32").dtype == jnp.float32


def test_sums_of_narrow_floats_are_rounded_once():
    x = jnp.full(4096, 1.0, "bfloat16")
    assert float(x.sum()) == 4096 and float(x.mean()) == 1 and float(jnp.full(4096, 300.0, "float16").mean()) == 300


@pytest.mark.parametrize("call,error,words", [
    (lambda: jnp.sum([1, 2]), TypeError, "list"), (lambda: jnp.sum(X, axis=5), ValueError, "bounds"), (lambda: jnp.sum(X, axis=(0, 0)), ValueError, "duplicate"),
    (lambda: jnp.sum(X, out=X), NotImplementedError, "out"), (lambda: jnp.max(X, where=B), ValueError, "initial"), (lambda: jnp.sum(X, axis=1.5), TypeError, "int"),
    (lambda: jnp.mean("a"), TypeError, "str"), (lambda: jnp.std(X, ddof=1, correction=1), ValueError, "correction"),
    (lambda: jnp.quantile(X, 0.5, method="nonsense"), ValueError, "method"), (lambda: jnp.quantile(1j * X, 0.5), ValueError, "complex"),
    (lambda: jnp.quantile(X, np.ones((1, 1))), ValueError, "rank"), (lambda: jnp.average(X, weights=np.ones(2)), ValueError, "axis"),
    (lambda: jnp.cumulative_sum(X), ValueError, "axis"), (lambda: jnp.histogram(X, "auto"), NotImplementedError, "auto"),
    (lambda: jnp.cov(X), ValueError, "two dimensions"), (lambda: jnp.median(X, overwrite_input=True), ValueError, "overwrite_input"),
])
def test_wrong_arguments_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_lists_of_axes_are_tuples():
    np.testing.assert_allclose(jnp.sum(X, axis=[0, 2]), X.sum((0, 2)), rtol=1e-5)
    np.testing.assert_allclose(jnp.max(X, axis=np.int64(1)), X.max(1), rtol=1e-5)
    np.testing.assert_allclose(jnp.median(X, axis=[0, 2]), np.median(X, (0, 2)), rtol=1e-5)


def test_reductions_differentiate():
    functions = [jnp.sum, jnp.prod, jnp.mean, jnp.var, jnp.std, jnp.max, jnp.min, jnp.ptp, jnp.nanmean, jnp.median, lambda a: jnp.quantile(a, 0.3), lambda a: jnp.cumsum(a)[-2],
                 lambda a: jnp.cumprod(a, 1)[0, 1, 2], lambda a: jnp.average(a, weights=a * a), lambda a: jnp.mean(a, where=B), lambda a: jnp.cov(a[0])[0, 1],
                 lambda a: jnp.corrcoef(a[0])[0, 1], lambda a: jnp.linalg.norm(a), lambda a: jnp.linalg.norm(a[0], ord=3, axis=1).sum()]
    with jax.enable_x64(True):
        fun = jax.jit(lambda a: jnp.stack([f(a) for f in functions]))
        exact = jax.jit(jax.jacrev(lambda a: jnp.stack([f(a) for f in functions])))(X)
        for i in ((0, 0, 0), (1, 2, 3), (0, 1, 2)):
            d = np.zeros_like(X)
            d[i] = 1e-6
            np.testing.assert_allclose(exact[(slice(None), *i)], (fun(X + d) - fun(X - d)) / 2e-6, atol=1e-6)


def test_reductions_batch_like_a_loop():
    functions = [lambda a: a.sum(0), lambda a: a.argmax(-1), lambda a: jnp.var(a, axis=0), lambda a: jnp.median(a), lambda a: jnp.cumsum(a, 1),
                 lambda a: jnp.quantile(a, np.array([0.1, 0.5]), axis=1)]
    got = jax.jit(jax.vmap(lambda a: [f(a) for f in functions], in_axes=1, out_axes=0))(X)
    for g, f in zip(got, functions):
        np.testing.assert_allclose(g, np.stack([f(jnp.asarray(X[:, i])) for i in range(3)]), rtol=1e-5)
