"""Statistics: quantiles, covariances, histograms."""
from __future__ import annotations

import math
import operator

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.lax.shapes import canonical_axes
from mini_jax.numpy.creation import linspace
from mini_jax.numpy.products import matmul
from mini_jax.numpy.promotion import array_argument, arraylike, as_array, broadcast_to_shape, promote_args_inexact, promote_dtypes, promote_dtypes_inexact
from mini_jax.numpy.reductions import _average, static_axis
from mini_jax.numpy.sorting import searchsorted
from mini_jax.numpy.ufuncs import conjugate, unsupported_out
from mini_jax.runtime.dispatch import library

__all__ = ["median", "nanmedian", "quantile", "nanquantile", "percentile", "nanpercentile", "cov", "corrcoef", "histogram", "histogram_bin_edges",
           "histogram2d", "histogramdd"]


# --- quantiles ------------------------------------------------------------------------------------------------------------------------

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")


def _quantile_of(name, a, q, axis, keepdims, method, skip_nan, weights):
    """Sort, and read at q (n - 1): between two places by the method."""
    a, q = map(as_array, promote_dtypes_inexact(*arraylike(name, a, q)))
    if dtypes.is_complex(a.dtype):
        raise ValueError(f"{name} does not support complex input, as the operation is poorly defined.")
    if q.ndim > 1:
        raise ValueError(f"q must have rank <= 1, got shape {q.shape}")
    if method not in _METHODS:
        raise ValueError(f"method can only be {', '.join(map(repr, _METHODS))}; got {method!r}")
    if weights is not None and method != "inverted_cdf":
        raise NotImplementedError(f"{name}: weights are supported by the method 'inverted_cdf' only, not by {method!r}")
    axes = canonical_axes(axis, a.ndim, "axis")
    kept = [i for i in range(a.ndim) if i not in axes]
    lanes = [a.shape[i] for i in kept]
    n = math.prod([a.shape[i] for i in axes])
    reduced_shape = [1 if i in axes else m for i, m in enumerate(a.shape)] if keepdims else lanes
    x = lax.reshape(lax.transpose(a, [*kept, *axes]), (*lanes, n))
    d = x.ndim - 1
    if not n:
        return lax.full((*q.shape, *reduced_shape), math.nan, x.dtype)
    is_nan = lax.ne(x, x)
    if weights is not None:
        w = lax.convert_element_type(broadcast_to_shape(_weights_like(name, weights, a, axes), a.shape), x.dtype)
        w = lax.reshape(lax.transpose(w, [*kept, *axes]), (*lanes, n))
        if skip_nan:
            w = lax.select(is_nan, 0.0, w)
        x, w = lax.sort((x, w), d, num_keys=1)
        out = _weighted(x, w, q)
    else:
        x = lax.sort(x, d)
        count = lax.reduce_sum(lax.convert_element_type(lax.bitwise_not(is_nan), x.dtype), (d,)) if skip_nan else None
        out = _read(x, q, count, n, method)
    if not skip_nan:
        some = lax.reduce_or(is_nan, (d,))
        out = lax.select(lax.broadcast_in_dim(some, out.shape, tuple(range(q.ndim, out.ndim))), math.nan, out)
    return lax.convert_element_type(lax.reshape(out, (*q.shape, *reduced_shape)), out.dtype)


def _weights_like(name, weights, a, axes):
    w = array_argument(name, weights)
    if w.shape == a.shape:
        return w
    if w.shape != tuple([a.shape[i] for i in axes]):
        raise ValueError(f"{name}: weights of shape {w.shape} fit neither the array of shape {a.shape} nor its axis")
    return lax.broadcast_in_dim(w, a.shape, axes)


def _weighted(x, w, q):
    """The least x up to which the weights are at least q of their sum."""
    d, n = x.ndim - 1, x.shape[-1]
    sums = lax.cumsum(w, d)
    total = lax.slice_in_dim(sums, n - 1, n, axis=d)
    lanes = x.shape[:-1]
    wanted = lax.broadcast_in_dim(q, (*q.shape, *lanes), tuple(range(q.ndim))) * lax.broadcast_in_dim(lax.squeeze(total, (d,)), (*q.shape, *lanes),
                                                                                                      tuple(range(q.ndim, q.ndim + len(lanes))))
    shape = (*wanted.shape, n)
    below = lax.lt(lax.broadcast_in_dim(sums, shape, tuple(range(q.ndim, len(shape)))), lax.broadcast_in_dim(wanted, shape, tuple(range(len(shape) - 1))))
    index = lax.min(lax.reduce_sum(lax.convert_element_type(below, np.int32), (len(shape) - 1,)), n - 1)
    return _at(x, index, q.ndim)


def _at(x, index, leading: int):
    """x[..., index] where index has `leading` more dimensions in front."""
    shape = (*index.shape, x.shape[-1])
    wide = lax.broadcast_in_dim(x, shape, tuple(range(leading, len(shape))))
    hit = lax.eq(lax.broadcasted_iota(np.int32, shape, len(shape) - 1), lax.broadcast_in_dim(index, shape, tuple(range(len(shape) - 1))))
    return lax.reduce_sum(lax.select(hit, wide, 0.0), (len(shape) - 1,))


def _read(x, q, count, n, method):
    from mini_jax.numpy.indexing import take_along_axis
    lanes, d = x.shape[:-1], x.ndim - 1
    shape = (*lanes, *q.shape)
    q = lax.broadcast_in_dim(q, shape, tuple(range(d, len(shape))))
    if count is None:
        last, size = float(n - 1), float(n)
    else:
        size = lax.broadcast_in_dim(count, shape, tuple(range(d)))
        last = size - 1.0
    if method == "inverted_cdf":
        place = lax.ceil(q * size) - 1.0
    else:
        place = q * last
    low, high = lax.floor(place), lax.ceil(place)
    share = place - low
    limit = lambda place: lax.max(lax.min(place, last if isinstance(last, float) else lax.max(last, 0.0)), 0.0)

    def element(place):
        index = lax.convert_element_type(limit(place), np.int32)
        if len(shape) == d:
            return lax.squeeze(take_along_axis(x, lax.expand_dims(index, (d,)), d), (d,))
        return take_along_axis(x, index, d)
    lower, upper = element(low), element(high)
    if method == "linear":
        out = lower * (1.0 - share) + upper * share
        out = lax.select(lax.eq(share, 0.0), lower, out)
    elif method == "lower":
        out = lower
    elif method == "higher":
        out = upper
    elif method == "midpoint":
        out = (lower + upper) * 0.5
    elif method == "nearest":
        out = element(lax.round(place, lax.RoundingMethod.TO_NEAREST_EVEN))
    else:
        out = upper
    if count is not None:
        out = lax.select(lax.eq(size, 0.0), math.nan, out)
    return lax.transpose(out, (*range(d, len(shape)), *range(d)))


@library(static_argnames=("name", "axis", "keepdims", "method", "skip_nan"))
def _quantile(a, q, weights, name, axis, keepdims, method, skip_nan):
    return _quantile_of(name, a, q, axis, keepdims, method, skip_nan, weights)


@library(static_argnames=("name", "axis", "keepdims", "method", "skip_nan"))
def _percentile(a, q, weights, name, axis, keepdims, method, skip_nan):
    a, q = promote_dtypes_inexact(*arraylike(name, a, q))
    return _quantile_of(name, a, lax.div(as_array(q), 100.0), axis, keepdims, method, skip_nan, weights)


def _quantile_function(name: str, compute, skip_nan: bool, doc: str):
    def fun(a, q, axis=None, out=None, overwrite_input: bool = False, method: str = "linear", keepdims: bool = False, *, weights=None):
        unsupported_out(name, out)
        if overwrite_input:
            raise ValueError(f"{name}: arrays are immutable, so overwrite_input must be False")
        return compute(a, q, weights, name, static_axis(axis), bool(keepdims), method, skip_nan)
    fun.__name__ = fun.__qualname__ = name
    fun.__doc__ = doc
    return fun


quantile = _quantile_function("quantile", _quantile, False, """
    The number below which lies the part q of the elements along `axis` (None: of all).

    a: real. q: a number in [0, 1], or a vector of them, whose axis comes first in the result. method, where the place q (n - 1)
    lies between two elements: 'linear', 'lower', 'higher', 'midpoint', 'nearest'; or 'inverted_cdf', which takes weights.
    NaN where there is one. Raises ValueError for complex arrays and unknown methods.
    """)
nanquantile = _quantile_function("nanquantile", _quantile, True, "`quantile` of the elements that are not NaN; NaN of none.")
percentile = _quantile_function("percentile", _percentile, False, "`quantile` for q in percent, in [0, 100].")
nanpercentile = _quantile_function("nanpercentile", _percentile, True, "`percentile` of the elements that are not NaN; NaN of none.")


def median(a, axis=None, out=None, overwrite_input: bool = False, keepdims: bool = False):
    """The middle element along `axis` (None: of all), the mean of the two middle ones of an even number."""
    return quantile(a, 0.5, axis, out, overwrite_input, "midpoint", keepdims)


def nanmedian(a, axis=None, out=None, overwrite_input: bool = False, keepdims: bool = False):
    """`median` of the elements that are not NaN; NaN of none."""
    return nanquantile(a, 0.5, axis, out, overwrite_input, "midpoint", keepdims)


# --- covariances ----------------------------------------------------------------------------------------------------------------------

def cov(m, y=None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, fweights=None, aweights=None, dtype=None):
    """The covariance matrix of variables, each a row of m (and of y), or a column with rowvar=False.

    ddof: the normalisation is by n - ddof; None: 1, or 0 if bias. fweights: how often each observation counts, integers; aweights:
    its weight. Raises ValueError for more than two dimensions or weights that don't fit.
    """
    if ddof is not None and ddof != int(ddof):
        raise ValueError("ddof must be integer")
    return _cov(m, y, fweights, aweights, bool(rowvar), (0 if bias else 1) if ddof is None else int(ddof), None if dtype is None else dtypes.requested(dtype, "cov"))


@library(static_argnames=("rowvar", "ddof", "dtype"))
def _cov(m, y, fweights, aweights, rowvar, ddof, dtype):
    arrays = [as_array(x) for x in promote_dtypes_inexact(*arraylike("cov", *([m] if y is None else [m, y])))]
    if max([x.ndim for x in arrays]) > 2:
        raise ValueError(f"cov takes arrays of at most two dimensions, got {', '.join([str(x.aval) for x in arrays])}")
    if dtype is not None:
        arrays = [lax.convert_element_type(x, dtype) for x in arrays]
    x = [lax.reshape(a, (1, a.size)) if a.ndim < 2 else a if rowvar else lax.transpose(a, (1, 0)) for a in arrays]
    x = x[0] if len(x) == 1 else lax.concatenate(x, 0)
    n = x.shape[1]
    w = None
    for name, weights in (("fweights", fweights), ("aweights", aweights)):
        if weights is not None:
            (weights,) = arraylike("cov", weights)
            if typeof(weights).shape != (n,):
                raise ValueError(f"cov: {name} must be a vector with one entry for each of the {n} observations, got {typeof(weights)}")
            if name == "fweights" and not dtypes.is_integer(typeof(weights).dtype):
                raise TypeError("fweights must be integer.")
            weights = lax.convert_element_type(weights, dtypes.to_real(x.dtype))
            w = weights if w is None else w * weights
    centre = _average(x, 1, None if w is None else lax.convert_element_type(w, x.dtype), True)[0]
    x = x - centre
    right = conjugate(lax.transpose(x, (1, 0)))
    if w is None:
        factor = float(n) - ddof
        scaled = x
    else:
        total = lax.reduce_sum(w, (0,))
        factor = total if aweights is None and not ddof else total - ddof * (
            lax.reduce_sum(w * lax.convert_element_type(aweights, w.dtype), (0,)) / total if aweights is not None else 1.0)
        scaled = x * lax.expand_dims(lax.convert_element_type(w, x.dtype), (0,))
    out = matmul(scaled, right)
    out = out / (factor if not isinstance(factor, float) or factor > 0 else math.nan)
    return lax.squeeze(out, [i for i in range(2) if out.shape[i] == 1])


def corrcoef(x, y=None, rowvar: bool = True, dtype=None):
    """The matrix of correlation coefficients of variables given as for `cov`: c_ij / sqrt(c_ii c_jj)."""
    return _corrcoef(x, y, bool(rowvar), None if dtype is None else dtypes.requested(dtype, "corrcoef"))


@library(static_argnames=("rowvar", "dtype"))
def _corrcoef(x, y, rowvar, dtype):
    c = _cov(x, y, None, None, rowvar, 1, dtype)
    if not c.ndim:
        return c / c
    from mini_jax.numpy.diagonals import diagonal
    deviations = lax.sqrt(lax.real(diagonal(c)) if dtypes.is_complex(c.dtype) else diagonal(c))
    c = c / lax.convert_element_type(lax.expand_dims(deviations, (1,)), c.dtype) / lax.convert_element_type(lax.expand_dims(deviations, (0,)), c.dtype)
    limit = lambda part: lax.clamp(-1.0, part, 1.0)
    return lax.complex(limit(lax.real(c)), limit(lax.imag(c))) if dtypes.is_complex(c.dtype) else limit(c)


# --- histograms -----------------------------------------------------------------------------------------------------------------------

def histogram_bin_edges(a, bins=10, range=None, weights=None):
    """The edges of the bins of a histogram of `a`: `bins` equal ones over `range` (None: from least to greatest), or `bins` itself if an array."""
    if isinstance(bins, str):
        raise NotImplementedError(f"histogram: bins={bins!r} is not supported, since the number of bins would depend on the values; give a number")
    if np.ndim(bins) == 1:
        return as_array(promote_args_inexact("histogram_bin_edges", bins)[0])
    if np.ndim(bins):
        raise ValueError("histogram: bins are a number or a vector of edges")
    if range is not None:
        arraylike("histogram_bin_edges", *range)
    return _bin_edges(a, None if range is None else tuple(range), operator.index(bins))


@library(static_argnames=("bins",))
def _bin_edges(a, range, bins):
    (a,) = promote_args_inexact("histogram_bin_edges", a)
    a = as_array(a)
    if range is None:
        axes = tuple(range_of(a.ndim))
        low, high = (lax.reduce_min(a, axes), lax.reduce_max(a, axes)) if a.size else (lax.full((), 0, a.dtype), lax.full((), 1, a.dtype))
    else:
        low, high = [lax.convert_element_type(r, a.dtype) for r in range]
    same = lax.eq(low, high)
    low, high = lax.select(same, low - 0.5, low), lax.select(same, high + 0.5, high)
    return linspace(low, high, bins + 1)


range_of = range


def histogram(a, bins=10, range=None, weights=None, density: bool | None = None):
    """How many elements of `a` lie in each of the bins: (counts, edges). The last bin contains its right edge.

    bins: their number, or an ascending vector of edges. range: (low, high); None: from the least to the greatest element. weights: what
    each element counts. density: divide by the sum and by the widths, so that the integral is 1.
    """
    a = arraylike("histogram", a)[0]
    edges = histogram_bin_edges(a, bins, range)
    return _histogram(a, edges, weights, bool(density)), edges


@library(static_argnames=("density",))
def _histogram(a, edges, weights, density):
    a, edges = map(as_array, promote_dtypes_inexact(*arraylike("histogram", a, edges)))
    if weights is None:
        weights = lax.full((a.size,), 1, edges.dtype)
    else:
        weights = as_array(promote_args_inexact("histogram", weights)[0])
        if weights.shape != a.shape:
            raise ValueError(f"weights should have the same shape as a, got {weights.shape} and {a.shape}")
        weights = lax.reshape(weights, (a.size,))
    flat, n = lax.reshape(a, (a.size,)), edges.shape[0] - 1
    counts = lax.full((n,), 0, weights.dtype).at[_bin(flat, edges)].add(weights, mode="drop")
    if not density:
        return counts
    widths = lax.slice_in_dim(edges, 1, None) - lax.slice_in_dim(edges, 0, n)
    counts = lax.convert_element_type(counts, edges.dtype)
    return counts / widths / lax.reduce_sum(counts, (0,))


def _bin(x, edges):
    """The number of the bin of each element; of those outside the number of bins, which does not exist."""
    n = edges.shape[0] - 1
    index = searchsorted(edges, x, "right") - 1
    last = lax.index_in_dim(edges, n, keepdims=False)
    index = lax.select(lax.eq(x, last), n - 1, index)
    return lax.select(lax.bitwise_or(lax.lt(index, 0), lax.ne(x, x)), n, index)


def histogram2d(x, y, bins=10, range=None, weights=None, density: bool | None = None):
    """The histogram of points (x, y): (counts, edges of x, edges of y). bins: a number, edges, or a pair of these, one for each."""
    x, y = map(as_array, arraylike("histogram2d", x, y))
    try:
        pair = len(bins)
    except TypeError:
        pair = 1
    if pair not in (1, 2):                                 # one vector of edges for both
        bins = [bins, bins]
    from mini_jax.numpy.joining import stack
    counts, edges = histogramdd(stack([lax.reshape(v, (v.size,)) for v in promote_dtypes(x, y)], axis=1), bins, range, weights, density)
    return counts, edges[0], edges[1]


def histogramdd(sample, bins=10, range=None, weights=None, density: bool | None = None):
    """The histogram of points in d dimensions, the rows of `sample`: (counts, list of edges).

    bins: a number for all axes, or for each axis a number or a vector of edges. range: for each axis (low, high) or None.
    """
    sample = _columns(sample) if isinstance(sample, (list, tuple)) else array_argument("histogramdd", sample)
    if sample.ndim != 2:
        raise ValueError(f"histogramdd takes a matrix of points, got {sample.aval}")
    n, d = sample.shape
    per_axis = [bins] * d if not isinstance(bins, (list, tuple)) and np.ndim(bins) == 0 else list(bins)
    if len(per_axis) != d:
        raise ValueError(f"histogramdd: {len(per_axis)} bins for {d} dimensions")
    if range is not None and len(range) != d:
        raise ValueError(f"histogramdd: {len(range)} ranges for {d} dimensions")
    columns = [lax.index_in_dim(sample, i, axis=1, keepdims=False) for i in range_of(d)]
    edges = [histogram_bin_edges(c, b, None if range is None else range[i]) for i, (c, b) in enumerate(zip(columns, per_axis))]
    return _histogramdd(columns, edges, weights, bool(density)), edges


def _columns(sample):
    from mini_jax.numpy.joining import stack
    return stack([as_array(s) for s in sample], axis=1)


@library(static_argnames=("density",))
def _histogramdd(columns, edges, weights, density):
    sizes = [e.shape[0] - 1 for e in edges]
    n = columns[0].shape[0]
    weights = lax.full((n,), 1, dtypes.to_inexact(columns[0].dtype)) if weights is None else as_array(promote_args_inexact("histogramdd", weights)[0])
    index = tuple([_bin(*map(as_array, promote_dtypes_inexact(c, e))) for c, e in zip(columns, edges)])
    counts = lax.full(tuple(sizes), 0, weights.dtype).at[index].add(weights, mode="drop")
    if not density:
        return counts
    counts = counts / lax.reduce_sum(counts, tuple(range_of(len(sizes))))
    for i, e in enumerate(edges):
        widths = lax.slice_in_dim(e, 1, None) - lax.slice_in_dim(e, 0, e.shape[0] - 1)
        counts = counts / lax.broadcast_in_dim(lax.convert_element_type(widths, counts.dtype), counts.shape, (i,))
    return counts
