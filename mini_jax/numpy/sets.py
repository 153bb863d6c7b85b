"""Sets: the distinct elements of arrays, and unions, intersections and differences of these.

How many distinct elements there are depends on the values: where they are traced, `size` must say how many to return; missing ones are
filled by `fill_value`, or by the least element.
"""
from __future__ import annotations

import operator
from typing import NamedTuple

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.lax.shapes import canonical_axis
from mini_jax.numpy.indexing import take
from mini_jax.numpy.joining import concatenate
from mini_jax.numpy.manipulation import moveaxis
from mini_jax.numpy.promotion import array_argument, arraylike, as_array, promote_dtypes
from mini_jax.numpy.sorting import concrete, flatnonzero, searchsorted
from mini_jax.runtime.dispatch import library

__all__ = ["unique", "unique_all", "unique_counts", "unique_inverse", "unique_values", "isin", "union1d", "intersect1d", "setdiff1d", "setxor1d"]


def _rows(a, axis):
    """(the elements to compare as the rows of a matrix, the shape of one)."""
    moved = moveaxis(a, axis, 0)
    return lax.reshape(moved, (moved.shape[0], moved.size // max(1, moved.shape[0]) if moved.shape[0] else int(np.prod(moved.shape[1:])))), moved.shape[1:]


@library(static_argnames=("equal_nan",))
def _sorted_rows(rows, equal_nan):
    """(order, first): the stable order of the rows, lexicographic, and for each in that order whether it differs from the one before."""
    n, width = rows.shape
    index = dtypes.default_int()
    if not width:
        return lax.iota(index, n), lax.eq(lax.iota(index, n), 0)
    columns = [lax.index_in_dim(rows, j, axis=1, keepdims=False) for j in range(width)]
    order = lax.sort((*columns, lax.iota(index, n)), 0, num_keys=width)[-1]
    ordered = take(rows, order, axis=0)
    before, after = lax.slice_in_dim(ordered, 0, max(0, n - 1)), lax.slice_in_dim(ordered, min(1, n), n)
    differs = lax.ne(before, after)
    if equal_nan and dtypes.is_inexact(rows.dtype):
        differs = lax.bitwise_and(differs, lax.bitwise_not(lax.bitwise_and(lax.ne(before, before), lax.ne(after, after))))
    return order, lax.concatenate([lax.full((min(1, n),), True, dtypes.bool_), lax.reduce_or(differs, (1,))], 0)


@library(static_argnames=("size",))
def _unique_of_size(rows, order, first, fill_value, size):
    """The `size` first distinct rows, with the index of the first occurrence, the number of each row, and how often each occurs."""
    n, index = rows.shape[0], dtypes.default_int()
    number = lax.cumsum(lax.convert_element_type(first, index), 0) - 1
    place = flatnonzero(first, size=size, fill_value=0)
    values = take(take(rows, order, axis=0), place, axis=0, mode="clip")
    indices = take(order, place, mode="clip")
    inverse = lax.full((n,), 0, index).at[order].set(number)
    counts = lax.full((size,), 0, index).at[number].add(1, mode="drop")
    if n:
        total = lax.index_in_dim(number, n - 1, keepdims=False) + 1
        missing = lax.ge(lax.iota(index, size), total)
        if fill_value is not None:
            fill = lax.broadcast_in_dim(lax.convert_element_type(fill_value, rows.dtype), values.shape, ())
            values = lax.select(lax.broadcast_in_dim(missing, values.shape, (0,)), fill, values)
    return values, indices, inverse, counts


def unique(ar, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, axis: int | None = None, *,
           equal_nan: bool = True, size: int | None = None, fill_value=None, sorted: bool = True):
    """The distinct elements of `ar` in ascending order; with axis, its distinct sub-arrays along it, in lexicographic order.

    return_index: also where each occurs first; return_inverse: also the number of the distinct element for each element;
    return_counts: also how often each occurs. equal_nan: NaNs count as one element.
    size: how many to return, needed where `ar` is traced; missing ones are `fill_value`, or the first. Raises ConcretizationTypeError
    for a traced array without size.
    """
    ar = array_argument("unique", ar)
    shape = ar.shape
    if axis is None:
        rows, cell = lax.reshape(ar, (ar.size, 1)), ()
    else:
        axis = canonical_axis(axis, ar.ndim)
        rows, cell = _rows(ar, axis)
    order, first = _sorted_rows(rows, bool(equal_nan))
    if size is None:
        size = int(concrete("unique", "the number of distinct elements", first).sum())
    else:
        size = operator.index(size)
    if fill_value is not None:
        (fill_value,) = arraylike("unique", fill_value)
    values, indices, inverse, counts = _unique_of_size(rows, order, first, fill_value, size)
    values = lax.reshape(values, (size,)) if axis is None else moveaxis(lax.reshape(values, (size, *cell)), 0, axis)
    inverse = lax.reshape(inverse, shape) if axis is None else inverse
    out = [values, *[x for x, wanted in ((indices, return_index), (inverse, return_inverse), (counts, return_counts)) if wanted]]
    return tuple(out) if len(out) > 1 else values


class UniqueAll(NamedTuple):
    """The result of unique_all."""
    values: object
    indices: object
    inverse_indices: object
    counts: object


class UniqueCounts(NamedTuple):
    """The result of unique_counts."""
    values: object
    counts: object


class UniqueInverse(NamedTuple):
    """The result of unique_inverse."""
    values: object
    inverse_indices: object


def unique_all(x, /, *, size: int | None = None, fill_value=None) -> UniqueAll:
    """(values, indices, inverse_indices, counts) of the distinct elements; NaNs are distinct. (Python array API)"""
    return UniqueAll(*unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value))


def unique_counts(x, /, *, size: int | None = None, fill_value=None) -> UniqueCounts:
    """(values, counts) of the distinct elements; NaNs are distinct. (Python array API)"""
    return UniqueCounts(*unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_inverse(x, /, *, size: int | None = None, fill_value=None) -> UniqueInverse:
    """(values, inverse_indices) of the distinct elements; NaNs are distinct. (Python array API)"""
    return UniqueInverse(*unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_values(x, /, *, size: int | None = None, fill_value=None):
    """The distinct elements; NaNs are distinct. (Python array API)"""
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


def isin(element, test_elements, assume_unique: bool = False, invert: bool = False, *, method: str = "auto"):
    """Whether each of `element` is among `test_elements`; the contrary with invert. Booleans of the shape of `element`."""
    return _isin(element, test_elements, bool(invert))


@library(static_argnames=("invert",))
def _isin(element, test_elements, invert):
    x, tests = map(as_array, promote_dtypes(*arraylike("isin", element, test_elements)))
    tests = lax.reshape(tests, (tests.size,))
    if tests.size <= 16 or dtypes.is_complex(x.dtype):
        shape = (*x.shape, tests.size)
        hits = lax.eq(lax.broadcast_in_dim(x, shape, tuple(range(x.ndim))), lax.broadcast_in_dim(tests, shape, (x.ndim,)))
        out = lax.reduce_or(hits, (x.ndim,))
    else:
        tests = lax.sort(tests, 0)
        out = lax.eq(take(tests, searchsorted(tests, x), mode="clip"), x)
    return lax.bitwise_not(out) if invert else out


def _flat(name, *arrays):
    return [lax.reshape(x, (x.size,)) for x in map(as_array, promote_dtypes(*arraylike(name, *arrays)))]


def union1d(ar1, ar2, *, size: int | None = None, fill_value=None):
    """The distinct elements of both arrays, in ascending order."""
    return unique(concatenate(_flat("union1d", ar1, ar2)), size=size, fill_value=fill_value)


def _chosen(values, mask, size, fill_value, extra=()):
    """values[mask], `size` of them where that is given, with the arrays `extra` alike (filled by their own size)."""
    if size is None:
        where = flatnonzero(mask)
        return [take(x, where) for x in (values, *extra)]
    size = operator.index(size)
    where = flatnonzero(mask, size=size, fill_value=mask.shape[0])
    missing = lax.ge(where, mask.shape[0])
    fill = values.dtype.type(0) if fill_value is None else lax.convert_element_type(fill_value, values.dtype)
    return [lax.select(missing, lax.broadcast_in_dim(fill, (size,), ()), take(values, where, mode="clip") if values.size else lax.full((size,), 0, values.dtype)),
            *[lax.select(missing, limit, take(x, where, mode="clip")) for x, limit in extra]]


def setdiff1d(ar1, ar2, assume_unique: bool = False, *, size: int | None = None, fill_value=None):
    """The distinct elements of ar1 that are not in ar2, in ascending order; ar1 as it is with assume_unique."""
    a, b = _flat("setdiff1d", ar1, ar2)
    if size is not None and not assume_unique:
        order, first = _sorted_rows(lax.reshape(a, (a.size, 1)), True)
        a = take(a, order)
        return _chosen(a, lax.bitwise_and(first, isin(a, b, invert=True)), size, fill_value)[0]
    a = a if assume_unique else unique(a)
    return _chosen(a, isin(a, b, invert=True), size, fill_value)[0]


def _firsts(v):
    """(sorted, where in v, which are the first of their value)."""
    order, first = _sorted_rows(lax.reshape(v, (v.size, 1)), True)
    return take(v, order), order, first


def intersect1d(ar1, ar2, assume_unique: bool = False, return_indices: bool = False, *, size: int | None = None, fill_value=None):
    """The distinct elements that are in both arrays, in ascending order; with return_indices, also where they first occur in each."""
    a, b = _flat("intersect1d", ar1, ar2)
    values, where_a, first = _firsts(a)
    other, where_b, _ = _firsts(b)
    place = searchsorted(other, values)
    common = lax.bitwise_and(first, lax.eq(take(other, place, mode="clip"), values)) if b.size else lax.full(first.shape, False, dtypes.bool_)
    if not return_indices:
        return _chosen(values, common, size, fill_value)[0]
    in_b = take(where_b, place, mode="clip") if b.size else lax.full(place.shape, 0, dtypes.default_int())
    if size is None:
        return tuple(_chosen(values, common, None, None, (where_a, in_b)))
    return tuple(_chosen(values, common, size, fill_value, ((where_a, a.size), (in_b, b.size))))


def setxor1d(ar1, ar2, assume_unique: bool = False, *, size: int | None = None, fill_value=None):
    """The distinct elements that are in one of the arrays but not in the other, in ascending order."""
    a, b = _flat("setxor1d", ar1, ar2)
    (va, _, fa), (vb, _, fb) = _firsts(a), _firsts(b)
    keep = concatenate([lax.bitwise_and(fa, isin(va, b, invert=True)), lax.bitwise_and(fb, isin(vb, a, invert=True))])
    values, order, _ = _firsts(concatenate([va, vb]))
    return _chosen(values, take(keep, order), size, fill_value)[0]
