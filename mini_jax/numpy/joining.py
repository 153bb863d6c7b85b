"""Joining and splitting of arrays, and insertion and removal of their parts."""
from __future__ import annotations

import operator
from typing import Sequence

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.core.trace import Tracer, known_int
from mini_jax.lax.shapes import canonical_axis
from mini_jax.numpy.manipulation import atleast_1d, atleast_2d, atleast_3d, broadcast_to, moveaxis, ravel
from mini_jax.numpy.promotion import array_argument, arraylike, as_array, converted, promote_dtypes
from mini_jax.runtime.dispatch import library

__all__ = ["concatenate", "concat", "stack", "hstack", "vstack", "dstack", "column_stack", "block", "append", "split", "array_split", "hsplit", "vsplit",
           "dsplit", "unstack", "insert", "delete", "trim_zeros"]


# --- joining -----------------------------------------------------------------------------------------------------------------------

def _parts(name: str, arrays) -> list:
    """The arrays to join: of a sequence, or along the first axis of an array."""
    if hasattr(arrays, "shape") and hasattr(arrays, "dtype"):
        arrays = as_array(arrays)
        return [lax.index_in_dim(arrays, i, keepdims=False) for i in range(arrays.shape[0])]
    if not isinstance(arrays, (list, tuple)):
        raise TypeError(f"{name} takes a sequence of arrays, got {type(arrays).__name__}")
    if not arrays:
        raise ValueError(f"Need at least one array to {name}.")
    return [as_array(x) for x in arraylike(name, *arrays)]


def _to_dtype(arrays, dtype) -> Sequence:
    return promote_dtypes(*arrays) if dtype is None else [converted(x, dtypes.requested(dtype, "concatenate")) for x in arrays]


def concatenate(arrays, axis: int | None = 0, dtype=None):
    """The arrays one after the other along `axis` (None: all of them flattened); they agree in all other sizes.

    dtype: of the result; None: the one in which they meet. Raises ValueError for no arrays or arrays without dimensions, TypeError
    where shapes do not fit.
    """
    parts = _parts("concatenate", arrays)
    if axis is None:
        parts, axis = [ravel(x) for x in parts], 0
    if not parts[0].ndim:
        raise ValueError("Zero-dimensional arrays cannot be concatenated.")
    ranks = {x.ndim for x in parts}
    if len(ranks) > 1:
        raise TypeError(f"Cannot concatenate arrays with different numbers of dimensions: got {', '.join([str(x.shape) for x in parts])}.")
    return lax.concatenate(_to_dtype(parts, dtype), canonical_axis(axis, parts[0].ndim))


def concat(arrays, /, *, axis: int | None = 0):
    """The arrays one after the other along `axis`. (Python array API: concat)"""
    return concatenate(arrays, axis)


@library(static_argnames=("axis", "dtype"))
def _stack(arrays, axis, dtype):
    parts = _parts("stack", arrays)
    shapes = {x.shape for x in parts}
    if len(shapes) > 1:
        if len({x.ndim for x in parts}) > 1:
            raise ValueError(f"Cannot stack arrays with different numbers of dimensions: got {', '.join([str(x.shape) for x in parts])}.")
        raise ValueError(f"All input arrays must have the same shape, got {', '.join([str(x.shape) for x in parts])}.")
    shape = parts[0].shape
    axis, parts = canonical_axis(axis, len(shape) + 1), _to_dtype(parts, dtype)
    if axis == len(shape):
        return lax.concatenate([lax.expand_dims(x, (axis,)) for x in parts], axis)
    return lax.reshape(lax.concatenate(parts, axis), (*shape[:axis], len(parts), *shape[axis:]))


def stack(arrays, axis: int = 0, out=None, dtype=None):
    """The arrays, all of one shape, along a new axis, which stands at the place `axis` of the result.

    Raises ValueError for no arrays or arrays of different shapes.
    """
    from mini_jax.numpy.ufuncs import unsupported_out
    unsupported_out("stack", out)
    if not hasattr(arrays, "shape") and not isinstance(arrays, (list, tuple)):
        raise TypeError(f"stack takes a sequence of arrays, got {type(arrays).__name__}")
    return _stack(arrays, operator.index(axis), dtype)


def _joining(name: str, widen, axis_of, doc: str):
    def join(tup, dtype):
        parts = [widen(x) for x in _parts(name, tup)]
        return concatenate(parts, axis_of(parts[0]), dtype)
    join.__name__ = name
    join = library(join, static_argnames=("dtype",))

    def fun(tup, dtype=None):
        if not hasattr(tup, "shape") and not isinstance(tup, (list, tuple)):
            raise TypeError(f"{name} takes a sequence of arrays, got {type(tup).__name__}")
        return join(tup, dtype)
    fun.__name__ = fun.__qualname__ = name
    fun.__doc__ = doc
    return fun


hstack = _joining("hstack", atleast_1d, lambda x: 0 if x.ndim == 1 else 1, "The arrays side by side: joined along the second axis, vectors along their only one.")
vstack = _joining("vstack", atleast_2d, lambda x: 0, "The arrays one above the other: joined along the first axis, vectors being rows.")
dstack = _joining("dstack", atleast_3d, lambda x: 2, "The arrays one behind the other: joined along the third axis.")
_column_stack = _joining("column_stack", lambda x: lax.reshape(x, (x.size, 1)) if x.ndim < 2 else x, lambda x: 1, "")


def column_stack(tup):
    """The arrays side by side, vectors being columns."""
    return _column_stack(tup)


def append(arr, values, axis: int | None = None):
    """`values` after `arr` along `axis`; None: both are flattened."""
    return concatenate([array_argument("append", arr), array_argument("append", values)], axis)


def block(arrays):
    """The array that nested lists of blocks describe: the innermost are joined along the last axis, those around along the one before.

    Raises ValueError for tuples, empty lists or lists nested to different depths.
    """
    depth = _depth(arrays)
    return _block(arrays, depth) if depth else array_argument("block", arrays)


def _depth(arrays) -> int:
    if isinstance(arrays, tuple):
        raise ValueError("block takes nested lists; tuples are not allowed")
    if not isinstance(arrays, list):
        return 0
    if not arrays:
        raise ValueError("block takes lists that are not empty")
    depths = {_depth(item) for item in arrays}
    if len(depths) > 1:
        raise ValueError(f"block: lists must be nested equally deep, got depths {sorted(d + 1 for d in depths)}")
    return depths.pop() + 1


@library(static_argnames=("depth",))
def _block(arrays, depth):
    def least(item):
        return max(map(least, item)) if isinstance(item, list) else np.ndim(item)
    rank = max(depth, least(arrays))

    def build(item, level):
        if not isinstance(item, list):
            x = array_argument("block", item)
            return lax.reshape(x, (1,) * (rank - x.ndim) + x.shape)
        return concatenate([build(part, level + 1) for part in item], level - depth)
    return build(arrays, 0)


# --- splitting -----------------------------------------------------------------------------------------------------------------------

def _split(name: str, ary, indices_or_sections, axis, exact: bool) -> list:
    ary = array_argument(name, ary)
    axis = canonical_axis(axis, ary.ndim)
    n = ary.shape[axis]
    if np.ndim(indices_or_sections) == 0:
        sections = known_int(indices_or_sections, f"jnp.{name}", "indices_or_sections")
        if sections <= 0:
            raise ValueError(f"{name}: the number of sections must be positive, got {sections}")
        if exact and n % sections:
            raise ValueError(f"array split does not result in an equal division: rest is {n % sections}")
        sizes = [n // sections + (i < n % sections) for i in range(sections)]
    else:
        if isinstance(indices_or_sections, Tracer):
            known_int(indices_or_sections[0], f"jnp.{name}", "indices_or_sections")           # raises: the sizes must be known
        indices = map(operator.index, np.asarray(indices_or_sections).tolist())
        ends = [min(max(i + n if i < 0 else i, 0), n) for i in indices]
        bounds = list(zip([0, *ends], [*ends, n]))
        sizes = [end - start for start, end in bounds]
        if min(sizes) < 0:                                 # as in NumPy, a part whose end stands before its start is empty
            return [lax.slice_in_dim(ary, start, max(start, end), axis=axis) for start, end in bounds]
    return list(lax.split(ary, sizes, axis))


def split(ary, indices_or_sections, axis: int = 0) -> list:
    """The array cut along `axis` into equal parts (their number an int), or at given indices (an ascending sequence).

    Raises ValueError where the parts would not be equal.
    """
    return _split("split", ary, indices_or_sections, axis, exact=True)


def array_split(ary, indices_or_sections, axis: int = 0) -> list:
    """`split`, where the first parts may be greater by one than the last."""
    return _split("array_split", ary, indices_or_sections, axis, exact=False)


def hsplit(ary, indices_or_sections) -> list:
    """`split` along the second axis (of a vector along its only one): an int for equal parts, or where to cut."""
    ary = array_argument("hsplit", ary)
    return split(ary, indices_or_sections, 0 if ary.ndim == 1 else 1)


def vsplit(ary, indices_or_sections) -> list:
    """`split` along the first axis: an int for equal parts, or where to cut."""
    return split(ary, indices_or_sections, 0)


def dsplit(ary, indices_or_sections) -> list:
    """`split` along the third axis: an int for equal parts, or where to cut."""
    return split(ary, indices_or_sections, 2)


def unstack(x, /, *, axis: int = 0) -> tuple:
    """The parts x[0], x[1], … along `axis`, without that axis."""
    x = array_argument("unstack", x)
    if not x.ndim:
        raise ValueError("unstack takes an array of at least one dimension")
    return _unstack(x, canonical_axis(axis, x.ndim))


@library(static_argnames=("axis",))
def _unstack(x, axis):
    return tuple([lax.squeeze(part, (axis,)) for part in lax.split(x, (1,) * x.shape[axis], axis)])


# --- insertion and removal --------------------------------------------------------------------------------------------------------------

def insert(arr, obj, values, axis: int | None = None):
    """`values` inserted in front of the elements at `obj` along `axis` (None: of the flattened array).

    obj: an int, a slice or an array of indices of `arr` that are known. Values broadcast to what is inserted.
    """
    arr, values = promote_dtypes(array_argument("insert", arr), array_argument("insert", values))
    arr, values = as_array(arr), lax.convert_element_type(values, arr.dtype)
    if axis is None:
        arr, axis = ravel(arr), 0
    axis = canonical_axis(axis, arr.ndim)
    n = arr.shape[axis]
    if isinstance(obj, slice):
        where, scalar = np.arange(n)[obj], False
    else:
        arraylike("insert", arr, obj)
        where, scalar = np.atleast_1d(np.asarray(obj)), not np.ndim(obj)
    if where.size and not (np.all(where >= -n) and np.all(where <= n)):
        raise IndexError(f"insert: index {obj!r:.60} is out of bounds for axis {axis} with size {n}")
    where = np.where(where < 0, where + n, where).astype(np.int64)
    if scalar:                                             # as in NumPy, the first axis of the values counts what is inserted
        values = lax.reshape(values, (1,) * (arr.ndim - values.ndim) + values.shape)
        values = moveaxis(values, 0, axis)
        where = np.repeat(where, values.shape[axis])
    values = broadcast_to(values, (*arr.shape[:axis], len(where), *arr.shape[axis + 1:]))
    order = np.argsort(np.concatenate([where * 2, np.arange(n) * 2 + 1]), kind="stable")
    from mini_jax.numpy.indexing import take
    return take(lax.concatenate([values, arr], axis), order, axis=axis)


def delete(arr, obj, axis: int | None = None, *, assume_unique_indices: bool = False):
    """`arr` without the elements at `obj` along `axis` (None: of the flattened array).

    obj: an int, a slice, indices or a mask. A traced int is allowed, and traced indices with assume_unique_indices=True.
    """
    arr = array_argument("delete", arr)
    if axis is None:
        arr, axis = ravel(arr), 0
    axis = canonical_axis(axis, arr.ndim)
    n = arr.shape[axis]
    from mini_jax.numpy.indexing import take
    if isinstance(obj, Tracer) and (not obj.ndim or assume_unique_indices):
        gone = lax.reshape(obj, (obj.size,))
        gone = lax.sort(lax.select(lax.lt(gone, 0), gone + n, gone)) - lax.iota(gone.dtype, obj.size)
        kept = lax.iota(gone.dtype, n - obj.size)
        shape = (n - obj.size, obj.size)
        later = lax.ge(lax.broadcast_in_dim(kept, shape, (0,)), lax.broadcast_in_dim(gone, shape, (1,)))
        return take(arr, kept + lax.reduce_sum(lax.convert_element_type(later, gone.dtype), (1,)), axis=axis)
    mask = np.ones(n, bool)
    if isinstance(obj, slice):
        mask[obj] = False
    else:
        arraylike("delete", arr, obj)
        where = np.asarray(obj)
        if where.dtype != bool and where.size and not (np.all(where >= -n) and np.all(where < n)):
            raise IndexError(f"delete: index {obj!r:.60} is out of bounds for axis {axis} with size {n}")
        mask[where if where.size or where.dtype == bool else where.astype(int)] = False
    return take(arr, np.flatnonzero(mask), axis=axis)


def trim_zeros(filt, trim: str = "fb", axis=None):
    """The array without its zeros at the front ('f') and the back ('b'). The values must be known."""
    filt = array_argument("trim_zeros", filt)
    nonzero = np.asarray(filt) != 0
    axes = range(filt.ndim) if axis is None else [canonical_axis(a, filt.ndim) for a in ((axis,) if np.ndim(axis) == 0 else axis)]
    for d in axes:
        found = np.flatnonzero(nonzero.any(axis=tuple(i for i in range(filt.ndim) if i != d)))
        first = int(found[0]) if len(found) else nonzero.shape[d]
        last = int(found[-1]) + 1 if len(found) else 0
        start, end = (first if "f" in trim.lower() else 0), (last if "b" in trim.lower() else nonzero.shape[d])
        filt = lax.slice_in_dim(filt, start, max(start, end), axis=d)
    return filt
