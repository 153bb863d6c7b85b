"""Manipulation of shapes: reshape, axes moved, added and taken away, reversal, rolling, repetition, bits read as other dtypes."""
from __future__ import annotations

import math
import operator
from typing import Sequence

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes, errors
from mini_jax.core.trace import Tracer, known_int, whence
from mini_jax.lax.shapes import canonical_axes, canonical_axis, canonical_shape
from mini_jax.numpy.promotion import array_argument, arraylike, as_array, broadcast_shapes, broadcast_to_shape
from mini_jax.runtime.dispatch import library

__all__ = ["reshape", "ravel", "transpose", "permute_dims", "matrix_transpose", "swapaxes", "moveaxis", "rollaxis", "expand_dims", "squeeze",
           "broadcast_to", "broadcast_arrays", "broadcast_shapes", "atleast_1d", "atleast_2d", "atleast_3d", "flip", "fliplr", "flipud", "rot90",
           "roll", "repeat", "tile", "resize", "shape", "ndim", "size"]


# --- questions -------------------------------------------------------------------------------------------------------------------

def shape(a) -> tuple[int, ...]:
    """The size of each dimension of an array, number or nested sequence."""
    return tuple(a.shape) if hasattr(a, "shape") else np.shape(a)


def ndim(a) -> int:
    """The number of dimensions of an array, number or nested sequence."""
    return a.ndim if hasattr(a, "ndim") else len(shape(a))


def size(a, axis: int | Sequence[int] | None = None) -> int:
    """The number of elements, or the size along `axis` (the product of the sizes along several)."""
    sizes = shape(a)
    return math.prod([sizes[i] for i in canonical_axes(axis, len(sizes), "axis")])


# --- one order of elements, another shape -------------------------------------------------------------------------------------------

def reshape(a, shape, order: str = "C", *, copy: bool | None = None, out_sharding=None):
    """The elements of `a` in another shape; one size may be -1, for what is left.

    order: 'C' reads and fills with the last index fastest, 'F' with the first.
    Raises TypeError when the number of elements differs, NotImplementedError for another order.
    """
    a = array_argument("reshape", a)
    shape = _new_shape(a, shape)
    if order == "C":
        return lax.reshape(a, shape)
    if order == "F":
        return lax.transpose(lax.reshape(lax.transpose(a, range(a.ndim)[::-1]), shape[::-1]), range(len(shape))[::-1])
    if order == "A":
        raise NotImplementedError("reshape with order='A' is not supported: how an array is laid out is up to the compiler")
    raise ValueError(f"Unexpected value for 'order' argument: {order!r}; it is 'C' or 'F'")


def _new_shape(a, shape) -> tuple[int, ...]:
    if not isinstance(shape, (tuple, list)):
        shape = (shape,) if np.ndim(shape) == 0 else tuple(shape)
    try:
        shape = tuple([known_int(n, "jnp.reshape", "shape") for n in shape])
    except errors.ConcretizationTypeError:
        raise
    except TypeError:
        raise TypeError(f"reshape: a shape is an int or a sequence of ints, got {shape!r}") from None
    if -1 not in shape:
        return shape
    if shape.count(-1) > 1:
        raise TypeError(f"can only specify one unknown axis size with a `-1` value, got {shape}")
    known = math.prod([n for n in shape if n != -1])
    if known == 0 and a.size == 0:
        return tuple([0 if n == -1 else n for n in shape])
    if known <= 0 or a.size % known:
        raise TypeError(f"cannot reshape {a.aval}, of {a.size} elements, into shape {shape}: the product of the known sizes, {known}, does not divide {a.size}")
    return tuple([a.size // known if n == -1 else n for n in shape])


def ravel(a, order: str = "C", *, out_sharding=None):
    """All elements of `a` in one dimension, in the order that `reshape` reads them."""
    if order == "K":
        raise NotImplementedError("ravel with order='K' is not supported: how an array is laid out is up to the compiler")
    a = array_argument("ravel", a)
    return reshape(a, (a.size,), order)


# --- axes ----------------------------------------------------------------------------------------------------------------------------

def transpose(a, axes: Sequence[int] | None = None):
    """The array whose i-th axis is the axes[i]-th of `a`; None: the axes in reverse order.

    Raises TypeError unless axes is a permutation.
    """
    a = array_argument("transpose", a)
    axes = range(a.ndim)[::-1] if axes is None else [axis + a.ndim if axis < 0 else axis for axis in map(operator.index, axes)]
    if sorted(axes) != list(range(a.ndim)):
        raise TypeError(f"transpose: axes {tuple(axes)} are not a permutation of the {a.ndim} axes of {a.aval}")
    return lax.transpose(a, axes)


def permute_dims(a, /, axes: Sequence[int]):
    """The array whose i-th axis is the axes[i]-th of `a`. (Python array API: permute_dims)"""
    return transpose(a, axes)


def matrix_transpose(x, /):
    """The array with its last two axes exchanged; ValueError for fewer than two."""
    x = array_argument("matrix_transpose", x)
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose takes an array of at least two dimensions, got {x.aval}")
    return lax.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def swapaxes(a, axis1: int, axis2: int):
    """The array with axis1 and axis2 exchanged: out[…, i, …, j, …] = a[…, j, …, i, …]."""
    a = array_argument("swapaxes", a)
    axis1, axis2 = canonical_axis(axis1, a.ndim), canonical_axis(axis2, a.ndim)
    order = list(range(a.ndim))
    order[axis1], order[axis2] = axis2, axis1
    return lax.transpose(a, order)


def moveaxis(a, source, destination):
    """The array with the axes `source` moved to the places `destination`, the others keeping their order.

    source, destination: an int, or equally many ints. Raises ValueError for axes out of bounds or repeated.
    """
    a = array_argument("moveaxis", a)
    source, destination = canonical_axes(source, a.ndim, "source"), canonical_axes(destination, a.ndim, "destination")
    if len(source) != len(destination):
        raise ValueError(f"moveaxis: inconsistent number of elements, {len(source)} in source and {len(destination)} in destination")
    order = [i for i in range(a.ndim) if i not in source]
    for to, axis in sorted(zip(destination, source)):
        order.insert(to, axis)
    return lax.transpose(a, order)


def rollaxis(a, axis: int, start: int = 0):
    """The array with one axis moved in front of the axis `start`."""
    a = array_argument("rollaxis", a)
    axis = canonical_axis(axis, a.ndim)
    start = operator.index(start)
    if not -a.ndim <= start <= a.ndim:
        raise ValueError(f"rollaxis: start={start} must lie between {-a.ndim} and {a.ndim}")
    start += a.ndim if start < 0 else 0
    return moveaxis(a, axis, start - (start > axis))


def expand_dims(a, axis):
    """The array with new axes of size 1 at the places `axis` (an int or several) of the result."""
    a = array_argument("expand_dims", a)
    axes = (axis,) if isinstance(axis, (int, np.integer)) or np.ndim(axis) == 0 else tuple(axis)
    return lax.expand_dims(a, axes)


def squeeze(a, axis=None):
    """The array without the axes `axis`, which must have size 1 (else ValueError); None: without all of size 1."""
    a = array_argument("squeeze", a)
    if axis is None:
        axis = [i for i, n in enumerate(a.shape) if n == 1]
    return lax.squeeze(a, (axis,) if np.ndim(axis) == 0 else tuple(axis))


def broadcast_to(array, shape, *, out_sharding=None):
    """`array` repeated to `shape`, to which it must broadcast (else ValueError)."""
    return broadcast_to_shape(array_argument("broadcast_to", array), canonical_shape(shape, "jnp.broadcast_to", "shape"))


def broadcast_arrays(*args) -> list:
    """The arguments, each repeated to the shape to which all of them broadcast."""
    arrays = [array_argument("broadcast_arrays", x) for x in args]
    common = broadcast_shapes(*[x.shape for x in arrays])
    return [broadcast_to_shape(x, common) for x in arrays]


def _at_least(name: str, widen):
    def one(x):
        x = array_argument(name, x)
        return widen(x)

    def fun(*arys):
        return one(arys[0]) if len(arys) == 1 else [one(x) for x in arys]
    fun.__name__ = fun.__qualname__ = name
    fun.__doc__ = f"""The argument with dimensions of size 1 added where it has fewer than {name[-2]}; a list of several arguments."""
    return fun


atleast_1d = _at_least("atleast_1d", lambda x: x if x.ndim else lax.reshape(x, (1,)))
atleast_2d = _at_least("atleast_2d", lambda x: x if x.ndim > 1 else lax.reshape(x, (1, *x.shape) if x.ndim else (1, 1)))
atleast_3d = _at_least("atleast_3d", lambda x: x if x.ndim > 2 else lax.reshape(
    x, (1, 1, 1) if not x.ndim else (1, *x.shape, 1) if x.ndim == 1 else (*x.shape, 1)))


# --- order ------------------------------------------------------------------------------------------------------------------------------

def flip(m, axis=None):
    """The array in reverse order along `axis` (an int or several; None: all)."""
    m = array_argument("flip", m)
    axes = canonical_axes(axis, m.ndim, "axis")
    return lax.rev(m, axes) if axes else m


def fliplr(m):
    """The array in reverse order along its second axis; ValueError for fewer than two dimensions."""
    return flip(_of_ndim("fliplr", m, 2), 1)


def flipud(m):
    """The array in reverse order along its first axis; ValueError for no dimensions."""
    return flip(_of_ndim("flipud", m, 1), 0)


def _of_ndim(name, m, least):
    m = array_argument(name, m)
    if m.ndim < least:
        raise ValueError(f"{name} takes an array of at least {least} dimension{'s' * (least > 1)}, got {m.aval}")
    return m


@library(static_argnames=("k", "axes"))
def _rot90(m, k, axes):
    first, second = axes
    order = list(range(m.ndim))
    order[first], order[second] = second, first
    if k == 2:
        return lax.rev(m, axes)
    return lax.transpose(lax.rev(m, (second,)), order) if k == 1 else lax.rev(lax.transpose(m, order), (second,))


def rot90(m, k: int = 1, axes: tuple[int, int] = (0, 1)):
    """The array turned by k quarters, from the first of `axes` towards the second; ValueError unless these are two different axes."""
    m = _of_ndim("rot90", m, 2)
    axes = tuple([canonical_axis(axis, m.ndim) for axis in axes])
    if len(axes) != 2 or axes[0] == axes[1]:
        raise ValueError(f"rot90: axes are two different axes, got {axes}")
    k = operator.index(k) % 4
    return _rot90(m, k, axes) if k else m


def roll(a, shift, axis=None):
    """The elements moved by `shift` places along `axis`, those that leave at the end coming in at the start.

    shift: an int or array, or as many as axes. axis: an int, or several; None: the array is flattened for it.
    """
    a = array_argument("roll", a)
    if axis is None:
        return lax.reshape(roll(lax.reshape(a, (a.size,)), shift, 0), a.shape)
    axes = (axis,) if np.ndim(axis) == 0 else tuple(axis)
    if isinstance(shift, (tuple, list)):
        shifts = tuple(shift)
    elif np.ndim(shift) == 0:
        shifts = (shift,)
    else:
        shifts = tuple([shift[i] for i in range(np.shape(shift)[0])])
    if len(axes) == 1 and len(shifts) > 1:
        axes = axes * len(shifts)
    shifts = shifts * len(axes) if len(shifts) == 1 else shifts
    if len(shifts) != len(axes):
        raise ValueError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    axes = tuple([canonical_axis(axis, a.ndim) for axis in axes])
    if all([isinstance(s, (int, np.integer)) for s in shifts]):
        return _roll(a, tuple([int(s) for s in shifts]), axes)
    return _dynamic_roll(a, list(arraylike("roll", *shifts)), axes)


@library(static_argnames=("shifts", "axes"))
def _roll(a, shifts, axes):
    for shift, axis in zip(shifts, axes):
        n = a.shape[axis]
        shift = shift % n if n else 0
        if shift:
            a = lax.concatenate([lax.slice_in_dim(a, n - shift, n, axis=axis), lax.slice_in_dim(a, 0, n - shift, axis=axis)], axis)
    return a


@library(static_argnames=("axes",))
def _dynamic_roll(a, shifts, axes):
    for shift, axis in zip(shifts, axes):
        n = a.shape[axis]
        if n:
            from mini_jax.numpy.ufuncs import remainder
            start = remainder(lax.neg(lax.convert_element_type(shift, dtypes.default_int())), n)
            a = lax.dynamic_slice_in_dim(lax.concatenate([a, a], axis), start, n, axis)
    return a


# --- repetition ----------------------------------------------------------------------------------------------------------------------------

@library(static_argnames=("repeats", "axis"))
def _repeat(a, repeats, axis):
    shape = a.shape
    spread = lax.broadcast_in_dim(a, (*shape[:axis + 1], repeats, *shape[axis + 1:]), (*range(axis + 1), *range(axis + 2, a.ndim + 1)))
    return lax.reshape(spread, (*shape[:axis], shape[axis] * repeats, *shape[axis + 1:]))


@library(static_argnames=("axis", "total"))
def _repeat_by(a, repeats, axis, total):
    """Element i of the result is the one whose run of copies is the last to start at or before i."""
    from mini_jax.numpy.indexing import take
    n = a.shape[axis]
    if not total or not n:
        return lax.full((*a.shape[:axis], total, *a.shape[axis + 1:]), 0, a.dtype)
    ends = lax.cumsum(lax.convert_element_type(repeats, dtypes.default_int()), 0)
    starts = lax.concatenate([lax.full((1,), 0, ends.dtype), lax.slice_in_dim(ends, 0, n - 1)], 0)
    marks = lax.full((total,), 0, ends.dtype).at[starts].add(1, mode="drop")
    return take(a, lax.cumsum(marks, 0) - 1, axis=axis, mode="clip")


def repeat(a, repeats, axis: int | None = None, *, total_repeat_length: int | None = None, out_sharding=None):
    """Each element along `axis` (None: of the flattened array) repeated `repeats` times.

    repeats: a non-negative int, or an array of one count for each element. total_repeat_length: the size of the result along axis;
    needed where the counts are traced: what is beyond it is cut off, and the last element fills what is missing.
    """
    a = array_argument("repeat", a)
    arraylike("repeat", a, repeats)
    if axis is None:
        a, axis = lax.reshape(a, (a.size,)), 0
    elif not a.ndim:
        a = lax.reshape(a, (1,))
    axis = canonical_axis(axis, a.ndim)
    if total_repeat_length is None and (isinstance(repeats, (int, np.integer)) or not np.ndim(repeats)):
        count = known_int(repeats, "jnp.repeat", "repeats")
        if count < 0:
            raise ValueError(f"repeat: counts are not negative, got {count}")
        return _repeat(a, count, axis)
    n = a.shape[axis]
    repeats = as_array(repeats)
    if repeats.ndim > 1 or repeats.ndim and repeats.shape[0] not in (1, n):
        raise ValueError(f"repeat: there must be one count for each of the {n} elements along axis {axis}, got counts of type {repeats.aval}")
    if total_repeat_length is None:
        from mini_jax.numpy.indexing import take
        if isinstance(repeats, Tracer):
            raise errors.shape_depends_on_value("jnp.repeat", "repeats", whence(repeats), instead="Give total_repeat_length, the size of the result.")
        counts = np.broadcast_to(np.asarray(repeats), (n,))
        return take(a, np.repeat(np.arange(n), counts), axis=axis)
    return _repeat_by(a, broadcast_to_shape(lax.reshape(repeats, (repeats.size,)), (n,)), axis, operator.index(total_repeat_length))


def tile(A, reps):
    """The array repeated reps[i] times along axis i; missing axes, of either, stand in front with 1."""
    A = array_argument("tile", A)
    reps = tuple([known_int(r, "jnp.tile", "reps") for r in ((reps,) if np.ndim(reps) == 0 else reps)])
    rank = max(A.ndim, len(reps))
    return _tile(A, (1,) * (rank - A.ndim) + A.shape, (1,) * (rank - len(reps)) + reps)


@library(static_argnames=("shape", "reps"))
def _tile(A, shape, reps):
    return lax.tile(lax.reshape(A, shape), reps)


def resize(a, new_shape):
    """An array of `new_shape` filled with the elements of `a` in row-major order, again and again; zeros if it has none."""
    a, new_shape = array_argument("resize", a), canonical_shape(new_shape)
    n = math.prod(new_shape)
    if not a.size or not n:
        return lax.full(new_shape, 0, a.dtype)
    flat = tile(lax.reshape(a, (a.size,)), -(-n // a.size))
    return lax.reshape(lax.slice_in_dim(flat, 0, n), new_shape)


# --- bits ------------------------------------------------------------------------------------------------------------------------------------

def view(a, dtype=None):
    """The bytes of `a` read as another dtype, as ndarray.view does; the last dimension shrinks or grows with the width.

    Raises ValueError where its size does not fit, NotImplementedError for `type`.
    """
    if dtype is None:
        return a
    dtype = dtypes.requested(dtype, "view")
    if dtype == a.dtype:
        return a
    return _view(a, dtype)


@library(static_argnames=("dtype",))
def _view(a, dtype):
    if dtypes.is_bool(a.dtype):
        return _view(lax.convert_element_type(a, np.uint8), dtype)
    if dtypes.is_bool(dtype):
        return lax.ne(_view(a, np.dtype(np.uint8)), 0)
    if dtypes.is_complex(a.dtype):
        parts = lax.concatenate([lax.expand_dims(part(a), (a.ndim,)) for part in (lax.real, lax.imag)], a.ndim)
        return view(lax.reshape(parts, (*a.shape[:-1], -(-a.size // max(1, math.prod(a.shape[:-1]))) * 2) if a.ndim else (2,)), dtype)
    if dtypes.is_complex(dtype):
        parts = view(a, dtypes.to_real(dtype))
        if not parts.ndim or parts.shape[-1] % 2:
            raise ValueError(f"view: the last dimension of {a.aval} does not hold whole elements of {dtype}")
        pairs = lax.reshape(parts, (*parts.shape[:-1], parts.shape[-1] // 2, 2))
        return lax.complex(*[lax.index_in_dim(pairs, i, axis=-1, keepdims=False) for i in (0, 1)])
    old, new = dtypes.itemsize_bits(a.dtype), dtypes.itemsize_bits(dtype)
    if old == new:
        return lax.bitcast_convert_type(a, dtype)
    if not a.ndim:
        raise ValueError("view: an array without dimensions can't be read as a dtype of another width")
    if old > new:
        out = lax.bitcast_convert_type(a, dtype)
        return lax.reshape(out, (*a.shape[:-1], a.shape[-1] * (old // new)))
    ratio = new // old
    if a.shape[-1] % ratio:
        raise ValueError(f"view: the last dimension of {a.aval} does not hold whole elements of {dtype}: its size must be a multiple of {ratio}")
    return lax.bitcast_convert_type(lax.reshape(a, (*a.shape[:-1], a.shape[-1] // ratio, ratio)), dtype)
