"""take and put: NumPy's functions of indices. With x[index] (reading.py) and x.at[index] (updates.py), all of indexing."""
from __future__ import annotations

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.lax.gather import GatherDimensionNumbers, GatherScatterMode
from mini_jax.lax.shapes import canonical_axis
from mini_jax.lax.slicing import signed_index
from mini_jax.numpy import ufuncs
from mini_jax.numpy.subscripts import ARRAY, FULL, INT, How, check_inside, fill_key, index_array
from mini_jax.numpy.promotion import arraylike, converted
from mini_jax.numpy.reading import getitem, read                         # noqa: F401  (getitem: for the array classes)
from mini_jax.numpy.updates import AtHelper, write                       # noqa: F401
from mini_jax.runtime.dispatch import library

__all__ = ["take", "take_along_axis", "put", "put_along_axis"]


def _check_integers(name: str, indices, error=TypeError) -> None:
    if not dtypes.is_integer(typeof(indices).dtype):
        raise error(f"{name}: indices must have an integer type, got {typeof(indices)}")


@library(static_argnames=("axis", "how"))
def _take(a, indices, axis, how):
    ndim = typeof(a).ndim
    if not typeof(a).shape[axis] and typeof(indices).size:
        raise IndexError(f"take: cannot take elements from an axis of size 0 (axis {axis} of {typeof(a)})")
    code = ARRAY if typeof(indices).ndim else INT
    return read(a, (indices,), (*[FULL] * axis, code, *[FULL] * (ndim - axis - 1)), how)


@library(static_argnames=("size",))
def _wrapped_around(indices, size):
    return ufuncs.remainder(signed_index(indices), size) if size else indices


def take(a, indices, axis: int | None = None, out=None, mode: str | None = None, unique_indices: bool = False,
         indices_are_sorted: bool = False, fill_value=None):
    """The elements of `a` at `indices` along `axis`: out[…, *i, …] = a[…, indices[*i], …].

    indices: integers of any shape, which takes the place of the axis. axis None: those of a.ravel().
    mode: 'fill' (default): out of bounds reads fill_value (NaN, the smallest or greatest integer, True), and negative indices
    count from the end; 'clip': the nearest, negative indices being out of bounds; 'wrap': modulo the size.
    unique_indices, indices_are_sorted: promises that let the derivative run faster.
    Raises ValueError for indices that are no integers, IndexError for an axis of size 0. (NumPy: take)
    """
    if out is not None:
        raise NotImplementedError("take: arrays are immutable, so there is no `out`")
    a, indices = arraylike("take", a, indices)
    if typeof(indices).dtype == dtypes.bool_:
        indices = converted(indices, dtypes.int32)
    _check_integers("take", indices, ValueError)
    a = a if typeof(a).ndim and axis is not None else _raveled(a)
    axis = canonical_axis(axis or 0, typeof(a).ndim)
    if mode == "raise":
        raise NotImplementedError("take: mode='raise' can't raise from a compiled program; use 'fill', 'clip' or 'wrap'")
    if mode not in (None, "fill", "clip", "wrap"):
        raise ValueError(f"take: mode may be 'fill', 'clip' or 'wrap', not {mode!r}")
    if mode is None:
        check_inside(indices, typeof(a).shape[axis])
    if mode == "wrap":
        indices = _wrapped_around(indices, typeof(a).shape[axis])
    how = How(GatherScatterMode.CLIP if mode in ("clip", "wrap") else GatherScatterMode.FILL_OR_DROP, fill_key(fill_value),
              indices_are_sorted, unique_indices, mode != "clip")
    return _take(a, indices, axis, how)


@library
def _raveled(a):
    return lax.reshape(a, (typeof(a).size,))


def _along_axis(name: str, arr, indices, axis: int | None):
    """The checks of take_along_axis and put_along_axis; returns array, indices and axis."""
    arr, indices = arraylike(name, arr, indices)
    _check_integers(name, indices)
    if axis is None:
        if typeof(indices).ndim != 1:
            raise ValueError(f"{name}: indices must be one-dimensional if axis=None, got {typeof(indices)}")
        arr, axis = _raveled(arr), 0
    have, wanted = typeof(arr), typeof(indices)
    if have.ndim != wanted.ndim:
        raise ValueError(f"{name}: the array and the indices must have the same number of dimensions, got {have} and {wanted}")
    axis = canonical_axis(axis, have.ndim)
    for d, (n, m) in enumerate(zip(have.shape, wanted.shape)):
        if d != axis and n != m and 1 not in (n, m):
            raise ValueError(f"{name}: the array ({have}) and the indices ({wanted}) must agree, or one have size 1, in every "
                             f"dimension but axis {axis}")
    return arr, indices, axis


def take_along_axis(arr, indices, axis: int | None = -1, mode: str | GatherScatterMode | None = None, fill_value=None, *,
                    wrap_negative_indices: bool | None = None):
    """The elements of `arr` at `indices` along `axis`, a set of indices for each position of the other dimensions:
    out[i, …, k, …, j] = arr[i, …, indices[i, …, k, …, j], …, j].

    indices: integers, of the rank of arr; sizes of the other dimensions are equal or 1. axis None: of arr.ravel().
    mode: 'fill' (default): out of bounds reads fill_value (see take); 'clip': the nearest; 'promise_in_bounds'. Negative indices
    count from the end, by default unless they are promised to be in bounds.
    Raises TypeError for indices that are no integers, ValueError where the shapes do not fit. (NumPy: take_along_axis)
    """
    arr, indices, axis = _along_axis("take_along_axis", arr, indices, axis)
    mode = GatherScatterMode.from_any(mode)
    wrap = mode is not GatherScatterMode.PROMISE_IN_BOUNDS if wrap_negative_indices is None else bool(wrap_negative_indices)
    return _taken_along(arr, indices, axis, How(mode, fill_key(fill_value), wrap_negative_indices=wrap))


def _along_plan(shape, wanted, axis: int):
    """How a set of indices for each position is gathered by batching dimensions.

    Returns the dimensions of the array that are dropped (of size 1 where the indices are longer), those of the indices that are
    (of size 1 where the array is longer: these the windows span), and the gather's dimension numbers for what remains.
    """
    dropped = [d for d, (n, m) in enumerate(zip(shape, wanted)) if d != axis and n == 1 != m]
    spanned = [d for d, (n, m) in enumerate(zip(shape, wanted)) if d != axis and m == 1 != n]
    kept = [d for d in range(len(shape)) if d not in dropped]
    indexing = [d for d in range(len(shape)) if d not in spanned]
    batching = [d for d in kept if d != axis and d not in spanned]
    return dropped, spanned, GatherDimensionNumbers(
        tuple(spanned), (kept.index(axis),), (kept.index(axis),), tuple([kept.index(d) for d in batching]),
        tuple([indexing.index(d) for d in batching]))


@library(static_argnames=("axis", "how"))
def _taken_along(arr, indices, axis, how):
    shape, wanted = typeof(arr).shape, typeof(indices).shape
    dropped, spanned, numbers = _along_plan(shape, wanted, axis)
    out = [m if d == axis or d not in spanned else n for d, (n, m) in enumerate(zip(shape, wanted))]
    if not all(out):
        return lax.broadcast(np.zeros((), typeof(arr).dtype), out)
    if not shape[axis]:
        raise IndexError(f"take_along_axis: cannot take elements from an axis of size 0 (axis {axis} of {typeof(arr)})")
    vectors = lax.expand_dims(index_array(lax.squeeze(indices, spanned), shape[axis], how), [len(wanted) - len(spanned)])
    sizes = [n if d in spanned else 1 for d, n in enumerate(shape) if d not in dropped]
    return lax.gather(lax.squeeze(arr, dropped), vectors, numbers, sizes, mode=how.mode, fill_value=how.fill_value)


def _not_in_place(name: str, inplace: bool) -> None:
    if inplace:
        raise ValueError(f"{name}: arrays are immutable; pass inplace=False to get the changed array as the result")


def put_along_axis(arr, indices, values, axis: int | None, inplace: bool = True, *, mode: str | None = None):
    """`arr` with the elements that take_along_axis would read replaced by `values`, which broadcast to them.

    inplace: must be False. mode: 'drop' (default) leaves out indices out of bounds, 'clip' takes the nearest.
    Raises as take_along_axis does.
    """
    _not_in_place("put_along_axis", inplace)
    shape = typeof(arr).shape
    arr, indices, axis = _along_axis("put_along_axis", arr, indices, axis)
    arraylike("put_along_axis", values)
    out = _put_along(arr, indices, values, axis, How(GatherScatterMode.from_any(mode)))
    return out if typeof(out).shape == shape else _reshaped(out, shape)


@library(static_argnames=("shape",))
def _reshaped(a, shape):
    return lax.reshape(a, shape)


@library(static_argnames=("axis", "how"))
def _put_along(arr, indices, values, axis, how):
    aval, wanted = typeof(arr), list(typeof(indices).shape)
    full = tuple([n if d != axis and m == 1 else m for d, (n, m) in enumerate(zip(aval.shape, wanted))])
    repeated = lax.broadcast_in_dim(indices, full, range(aval.ndim))
    grid = [repeated if d == axis else lax.broadcasted_iota(np.int32, full, d) for d in range(aval.ndim)]
    return write(arr, values, grid, (ARRAY,) * aval.ndim, "set", how)


def put(a, ind, v, mode: str | None = None, *, inplace: bool = True):
    """`a` with a.ravel()[ind] replaced by `v`, repeated or cut to the number of indices.

    inplace: must be False. mode: 'clip' (default) takes the nearest element for indices out of bounds, 'wrap' counts modulo
    a.size. Negative indices count from the end. (NumPy: put)
    """
    _not_in_place("put", inplace)
    a, ind, v = arraylike("put", a, ind, v)
    _check_integers("put", ind)
    if mode not in (None, "clip", "wrap"):
        raise ValueError(f"put: mode may be 'clip' or 'wrap', not {mode!r}")
    return _put(a, ind, v, mode == "wrap")


@library(static_argnames=("around",))
def _put(a, ind, v, around):
    shape, n = typeof(a).shape, typeof(ind).size
    if not n or not typeof(v).size or not typeof(a).size:
        return a
    v = lax.reshape(v, (typeof(v).size,))
    v = lax.slice(lax.tile(v, (-(-n // typeof(v).size),)), (0,), (n,))
    ind = lax.reshape(ind, (n,))
    ind = _wrapped_around.__wrapped__(ind, typeof(a).size) if around else ind
    return lax.reshape(write(lax.reshape(a, (typeof(a).size,)), v, (ind,), (ARRAY,), "set", How(GatherScatterMode.CLIP)), shape)
