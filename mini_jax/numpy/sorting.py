"""Sorting and searching: sort, argsort, partition, searchsorted, the places of elements that are not zero, counts of integers."""
from __future__ import annotations

import operator

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes, errors
from mini_jax.core.trace import Tracer, typeof
from mini_jax.lax.shapes import canonical_axis
from mini_jax.numpy import ufuncs
from mini_jax.numpy.joining import stack
from mini_jax.numpy.promotion import array_argument, arraylike, as_array, promote_dtypes
from mini_jax.numpy.ufuncs import as_bool
from mini_jax.runtime.dispatch import library

__all__ = ["sort", "argsort", "sort_complex", "lexsort", "partition", "argpartition", "searchsorted", "digitize", "nonzero", "argwhere",
           "flatnonzero", "where", "bincount"]


def concrete(name: str, what: str, x):
    """The values of `x` as a NumPy array. ConcretizationTypeError where they are not known: `what` depends on them."""
    if isinstance(x, Tracer):
        value = x._trace.concrete(x) if x._trace.alive else None
        if value is None:
            raise errors.concretization(str(x.aval), needed=f"{name}: {what} depends on the values; the value",
                                        instead="Give the size of the result, where there is an argument for it (`size`, `length`); or call the "
                                                "function outside of what is traced.")
        x = value
    return np.asarray(x)


# --- sorting --------------------------------------------------------------------------------------------------------------------------

def _sortable(name, a, axis, kind, order):
    if kind is not None and order is not None or order is not None:
        raise ValueError(f"{name}: the argument `order` is for structured arrays, which do not exist here")
    a = array_argument(name, a)
    return (lax.reshape(a, (a.size,)), 0) if axis is None else (a, operator.index(axis))


def sort(a, axis: int | None = -1, *, kind=None, order=None, stable: bool = True, descending: bool = False):
    """The elements in ascending (or descending) order along `axis` (None: flattened). NaN comes last; complex numbers go by their
    real, then by their imaginary part. Equal elements keep their order."""
    a, axis = _sortable("sort", a, axis, kind, order)
    canonical_axis(axis, a.ndim)
    return _sort(a, axis, bool(stable), bool(descending))


@library(static_argnames=("axis", "stable", "descending"))
def _sort(a, axis, stable, descending):
    axis = canonical_axis(axis, a.ndim)
    out = lax.sort(a, axis, is_stable=stable)
    return lax.rev(out, (axis,)) if descending else out


def argsort(a, axis: int | None = -1, *, kind=None, order=None, stable: bool = True, descending: bool = False, dtype=None):
    """The indices that bring the elements into the order of `sort` along `axis`; of dtype `dtype` (None: the default integer)."""
    a, axis = _sortable("argsort", a, axis, kind, order)
    canonical_axis(axis, a.ndim)
    return _argsort(a, axis, bool(stable), bool(descending), dtypes.default_int() if dtype is None else dtypes.requested(dtype, "argsort"))


@library(static_argnames=("axis", "stable", "descending", "dtype"))
def _argsort(a, axis, stable, descending, dtype):
    axis = canonical_axis(axis, a.ndim)
    n = a.shape[axis]
    if descending:                                         # the sort of the reversed array, reversed, keeps the order of equal elements
        a = lax.rev(a, (axis,))
    _, order = lax.sort((a, lax.broadcasted_iota(dtype, a.shape, axis)), axis, is_stable=stable, num_keys=1)
    return (n - 1) - lax.rev(order, (axis,)) if descending else order


def sort_complex(a):
    """The array sorted along its last axis, as complex numbers."""
    a = array_argument("sort_complex", a)
    return lax.convert_element_type(sort(a, 0 if a.ndim == 1 else -1), dtypes.to_complex(a.dtype))


def lexsort(keys, axis: int = -1):
    """The indices that sort by the last of the keys, then by the one before it, and so on.

    keys: a sequence of arrays of one shape, or an array whose rows they are. Raises TypeError for no keys.
    """
    keys = [as_array(k) for k in arraylike("lexsort", *keys)] if isinstance(keys, (list, tuple)) else [
        lax.index_in_dim(as_array(keys), i, keepdims=False) for i in range(typeof(keys).shape[0])]
    if not keys:
        raise TypeError("lexsort needs at least one key")
    if len({k.shape for k in keys}) > 1:
        raise ValueError(f"lexsort: the keys must have one shape, got {', '.join([str(k.shape) for k in keys])}")
    if not keys[0].ndim:
        return as_array(np.zeros((), dtypes.default_int())[()])
    return _lexsort(keys, canonical_axis(axis, keys[0].ndim))


@library(static_argnames=("axis",))
def _lexsort(keys, axis):
    index = lax.broadcasted_iota(dtypes.default_int(), keys[0].shape, axis)
    return lax.sort((*reversed(keys), index), axis, num_keys=len(keys))[-1]


def _partitioned(name, a, kth, axis):
    a = array_argument(name, a)
    if dtypes.is_complex(a.dtype):
        raise NotImplementedError(f"{name} takes real arrays, got {a.aval}")
    axis = canonical_axis(axis, a.ndim)
    kth = canonical_axis(kth, a.shape[axis])
    return a, kth, axis


def partition(a, kth: int, axis: int = -1):
    """The elements along `axis` in an order in which the kth is where sorting puts it, no greater one before and no lesser one after it."""
    a, kth, axis = _partitioned("partition", a, kth, axis)
    return sort(a, axis)


def argpartition(a, kth: int, axis: int = -1):
    """The indices that bring the elements along `axis` into the order of `partition`."""
    a, kth, axis = _partitioned("argpartition", a, kth, axis)
    return argsort(a, axis)


# --- searching -------------------------------------------------------------------------------------------------------------------------

def _before(x, y):
    """x < y in the order of sort: NaN comes last; complex numbers go by real, then by imaginary part."""
    if dtypes.is_complex(typeof(x).dtype):
        a, b, c, d = lax.real(x), lax.real(y), lax.imag(x), lax.imag(y)
        return lax.bitwise_or(lax.lt(a, b), lax.bitwise_and(lax.eq(a, b), lax.lt(c, d)))
    less = lax.lt(x, y)
    return lax.bitwise_or(less, lax.bitwise_and(lax.eq(x, x), lax.ne(y, y))) if dtypes.is_floating(typeof(x).dtype) else less


def searchsorted(a, v, side: str = "left", sorter=None, *, method: str = "scan"):
    """For each element of v, the number of elements of the ascending vector `a` that are less ('left') or not greater ('right').

    That is where to insert it so that `a` remains sorted. sorter: indices that sort `a`. method: 'scan', 'scan_unrolled' (binary
    search), 'sort' or 'compare_all'; they differ in speed only. Raises ValueError for an `a` that is no vector.
    """
    if side not in ("left", "right"):
        raise ValueError(f"{side!r} is an invalid value for keyword 'side'; it is 'left' or 'right'")
    if method not in ("scan", "scan_unrolled", "sort", "compare_all"):
        raise ValueError(f"{method!r} is an invalid value for keyword 'method'; it is 'scan', 'scan_unrolled', 'sort' or 'compare_all'")
    return _searchsorted(a, v, sorter, side, method)


@library(static_argnames=("side", "method"))
def _searchsorted(a, v, sorter, side, method):
    a, v = map(as_array, promote_dtypes(*arraylike("searchsorted", a, v)))
    if a.ndim != 1:
        raise ValueError(f"a should be 1-dimensional, got {a.aval}")
    if sorter is not None:
        from mini_jax.numpy.indexing import take
        a = take(a, sorter)
    n, index = a.shape[0], np.dtype(np.int32)
    if not n:
        return lax.full(v.shape, 0, index)
    before = (lambda element, wanted: _before(element, wanted)) if side == "left" else (lambda element, wanted: lax.bitwise_not(_before(wanted, element)))
    if method == "compare_all":
        shape = (*v.shape, n)
        hits = before(lax.broadcast_in_dim(a, shape, (v.ndim,)), lax.broadcast_in_dim(v, shape, tuple(range(v.ndim))))
        return lax.reduce_sum(lax.convert_element_type(hits, index), (v.ndim,))
    if method == "sort":
        flat = lax.reshape(v, (v.size,))
        joined = lax.concatenate([flat, a] if side == "left" else [a, flat], 0)
        place = lax.iota(index, n + v.size)
        order = lax.sort((joined, place), 0, num_keys=1)[1]
        rank = lax.sort((order, place), 0, num_keys=1)[1]
        mine = lax.slice_in_dim(rank, 0, v.size) if side == "left" else lax.slice_in_dim(rank, n, n + v.size)
        return lax.reshape(mine - _rank_within(flat, index), v.shape)
    # The number sought lies in [low, high]; each step halves that.
    low, high = lax.full(v.shape, 0, index), lax.full(v.shape, n, index)
    flat = v

    def step(_, bounds):
        low, high = bounds
        middle = lax.div(low + high, 2)
        element = _elements(a, lax.min(middle, n - 1))
        goes_up = lax.bitwise_and(before(element, flat), lax.lt(low, high))
        return lax.select(goes_up, middle + 1, low), lax.select(goes_up, high, lax.max(low, middle))
    steps = n.bit_length()
    if method == "scan":
        return lax.fori_loop(0, steps, step, (low, high))[0]
    bounds = (low, high)
    for i in range(steps):
        bounds = step(i, bounds)
    return bounds[0]


def _elements(a, indices):
    """a[indices] of a vector at indices that are within bounds."""
    from mini_jax.numpy.indexing import take
    return take(a, indices, mode="clip")


def _rank_within(v, index):
    """For each element of the vector v its place in the stable order of v."""
    place = lax.iota(index, v.shape[0])
    return lax.sort((lax.sort((v, place), 0, num_keys=1)[1], place), 0, num_keys=1)[1]


def digitize(x, bins, right: bool = False, *, method: str | None = None):
    """For each element of x the index i of its bin: bins[i-1] <= x < bins[i], or with `right` bins[i-1] < x <= bins[i].

    bins: a monotonic vector; if it descends, the inequalities are the other way round.
    """
    return _digitize(x, bins, bool(right), method)


@library(static_argnames=("right", "method"))
def _digitize(x, bins, right, method):
    x, bins = map(as_array, arraylike("digitize", x, bins))
    if bins.ndim != 1:
        raise ValueError(f"digitize: bins must be a 1-dimensional array, got {bins.aval}")
    n = bins.shape[0]
    if not n:
        return lax.full(x.shape, 0, np.dtype(np.int32))
    side, method = "left" if right else "right", "scan" if method is None else method
    up = searchsorted(bins, x, side, method=method)
    down = n - searchsorted(lax.rev(bins, (0,)), x, side, method=method)
    first, last = [lax.index_in_dim(bins, i, keepdims=False) for i in (0, n - 1)]
    return lax.select(lax.ge(last, first), up, down)


def where(condition, x=None, y=None, /, *, size=None, fill_value=None):
    """x where condition holds, else y, elementwise.

    condition, x, y: arrays or numbers that broadcast. Without x and y: nonzero(condition, size=size, fill_value=fill_value).
    Raises ValueError when only one of x and y is given.
    """
    if x is None and y is None:
        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise ValueError("where takes both x and y, or neither")
    if size is not None or fill_value is not None:
        raise ValueError("where: size and fill_value go with the form where(condition), without x and y")
    return ufuncs.where(condition, x, y)



# --- where elements are not zero ----------------------------------------------------------------------------------------------------------

def nonzero(a, *, size: int | None = None, fill_value=None) -> tuple:
    """The indices of the elements that are not zero, one array for each axis.

    size: how many to return; needed where the array is traced. Superfluous ones are cut off, missing ones are `fill_value`: a number
    or one for each axis, default 0. Raises ConcretizationTypeError for a traced array without size.
    """
    a = array_argument("nonzero", a)
    if not a.ndim:
        a = lax.reshape(a, (1,))
    if size is None:
        found = np.nonzero(concrete("nonzero", "the number of elements that are not zero", a))
        return tuple([as_array(np.asarray(i, dtypes.default_int())) for i in found])
    if fill_value is None:
        fill_value = 0
    fills = list(fill_value) if isinstance(fill_value, (tuple, list)) else [fill_value] * a.ndim
    if len(fills) != a.ndim:
        raise ValueError(f"nonzero: fill_value has {len(fills)} entries for {a.ndim} axes")
    return _nonzero(a, list(arraylike("nonzero", *fills)), operator.index(size))


@library(static_argnames=("size",))
def _nonzero(a, fills, size):
    """The k-th place is the number of places up to which at most k elements are not zero."""
    index = dtypes.default_int()
    mask = lax.reshape(as_bool(a), (a.size,))
    if not a.size or not size:
        return tuple([lax.broadcast(lax.convert_element_type(f, index), (size,)) for f in fills])
    counts = lax.cumsum(lax.convert_element_type(mask, index), 0)
    total = lax.index_in_dim(counts, a.size - 1, keepdims=False)
    marks = lax.full((size,), 0, index).at[counts].add(1, mode="drop")
    places, out = lax.cumsum(marks, 0), []
    missing = lax.ge(lax.iota(index, size), total)
    for n, step, fill in zip(a.shape, np.cumprod([1, *a.shape[:0:-1]])[::-1].tolist(), fills):
        along = lax.rem(lax.div(places, index.type(max(step, 1))), index.type(max(n, 1)))
        out.append(lax.select(missing, lax.broadcast(lax.convert_element_type(fill, index), (size,)), along))
    return tuple(out)


def argwhere(a, *, size: int | None = None, fill_value=None):
    """The indices of the elements that are not zero as rows of a matrix; arguments as for `nonzero`."""
    a = array_argument("argwhere", a)
    if not a.ndim:
        found = nonzero(a, size=size, fill_value=fill_value)[0]
        return lax.reshape(found, (found.size, 1))[:, :0]
    return stack(list(nonzero(a, size=size, fill_value=fill_value)), axis=1)


def flatnonzero(a, *, size: int | None = None, fill_value=None):
    """The indices of the elements that are not zero in the flattened array; arguments as for `nonzero`."""
    a = array_argument("flatnonzero", a)
    return nonzero(lax.reshape(a, (a.size,)), size=size, fill_value=fill_value)[0]


def bincount(x, weights=None, minlength: int = 0, *, length: int | None = None, out_sharding=None):
    """How often 0, 1, 2, … occur in the vector x of integers (or the sums of the weights where they occur).

    minlength: the least size of the result. length: its size, needed where x is traced; what is greater is not counted, negative
    integers count as 0. Raises TypeError for other dtypes, ValueError for other ranks and for negative integers in a known x.
    """
    x = array_argument("bincount", x)
    if dtypes.is_bool(x.dtype):
        x = lax.convert_element_type(x, np.int32)
    if not dtypes.is_integer(x.dtype):
        raise TypeError(f"x argument to bincount must have an integer type; got {x.dtype}")
    if x.ndim != 1:
        raise ValueError(f"only 1-dimensional input supported, got {x.aval}")
    minlength = operator.index(minlength)
    if length is None:
        values = concrete("bincount", "the size of the result", x)
        if values.size and values.min() < 0:
            raise ValueError("bincount: the integers must not be negative")
        length = max(minlength, int(values.max()) + 1 if values.size else 0)
    else:
        length = operator.index(length)
    if weights is not None:
        weights = array_argument("bincount", weights)
        if weights.shape != x.shape:
            raise ValueError(f"shape of weights must match shape of x, got {weights.shape} and {x.shape}")
    return _bincount(x, weights, length)


@library(static_argnames=("length",))
def _bincount(x, weights, length):
    if weights is None:
        weights = np.ones((), dtypes.default_int())[()]
    zeros = lax.full((length,), 0, typeof(weights).dtype)
    return zeros.at[lax.max(x, x.dtype.type(0))].add(weights, mode="drop")
