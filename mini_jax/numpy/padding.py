"""Padding: pad, with all of NumPy's modes."""
from __future__ import annotations

import operator
from typing import Callable

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.core.trace import Tracer
from mini_jax.numpy.manipulation import broadcast_to
from mini_jax.numpy.promotion import array_argument, arraylike, as_array
from mini_jax.runtime.dispatch import library

__all__ = ["pad"]

_KEYWORDS = {
    "constant": {"constant_values"}, "empty": set(), "edge": set(), "linear_ramp": {"end_values"}, "maximum": {"stat_length"}, "mean": {"stat_length"},
    "median": {"stat_length"}, "minimum": {"stat_length"}, "reflect": {"reflect_type"}, "symmetric": {"reflect_type"}, "wrap": set(),
}


def pad(array, pad_width, mode="constant", **kwargs):
    """The array with elements added before and after it along each axis.

    pad_width: how many: an int for all places, (before, after) for all axes, ((before, after),) likewise or one pair for each axis, or
    a dict from axes to ints or pairs. mode: what they are:
    'constant' (constant_values=0), 'empty' (zeros), 'edge' (the element at the edge), 'linear_ramp' (from the edge to end_values=0),
    'maximum', 'mean', 'median', 'minimum' (of the first or last stat_length elements, None: all), 'reflect' and 'symmetric' (mirrored at
    the edge element or at the edge; reflect_type='even' or 'odd'), 'wrap' (from the other side), or a function as numpy.pad takes it.
    Raises NotImplementedError for another mode, ValueError for another keyword or negative widths.
    """
    array = array_argument("pad", array)
    if isinstance(pad_width, dict):
        pairs: list = [(0, 0)] * array.ndim
        for axis, width in pad_width.items():
            pairs[axis] = width if np.ndim(width) else (width, width)
        pad_width = pairs
    if isinstance(pad_width, Tracer):
        operator.index(pad_width)
    widths = np.asarray(pad_width)
    if widths.dtype.kind not in "iu" and widths.size:
        raise TypeError(f"`pad_width` must be of integral type, got {pad_width!r:.60}")
    widths = tuple([(int(a), int(b)) for a, b in _pairs("pad_width", widths, array.ndim)])
    if callable(mode):
        return _pad_by_function(array, widths, mode, kwargs)
    if mode not in _KEYWORDS:
        raise NotImplementedError(f"Unimplemented padding mode {mode!r} for pad; there are {', '.join(map(repr, _KEYWORDS))}")
    unknown = set(kwargs) - _KEYWORDS[mode]
    if unknown:
        raise ValueError(f"unsupported keyword arguments for mode {mode!r}: {unknown}")
    if min([n for pair in widths for n in pair], default=0) < 0:
        raise ValueError("index can't contain negative values")
    if mode == "constant":
        return _pad_constant(array, kwargs.get("constant_values", 0), widths)
    if mode == "linear_ramp":
        return _pad_linear_ramp(array, kwargs.get("end_values", 0), widths)
    lengths = kwargs.get("stat_length")
    if lengths is not None:
        lengths = tuple([(int(a), int(b)) for a, b in _pairs("stat_length", np.asarray(lengths), array.ndim)])
        if min([n for pair in lengths for n in pair], default=1) < 1:
            raise ValueError("stat_length of 0 yields no value for padding")
    return _pad(array, widths, mode, lengths, kwargs.get("reflect_type", "even"))


def _pairs(name: str, values, ndim: int) -> np.ndarray:
    """A number, (before, after), or pairs, as one pair for each axis."""
    shape = np.shape(values)
    if shape not in ((), (1,), (2,), (1, 1), (1, 2), (ndim, 2), (ndim, 1)) or shape == (ndim, 1) and ndim > 1:
        raise ValueError(f"pad: {name} with nd={ndim} has unsupported shape {shape}. Valid shapes are ({ndim}, 2), (1, 2), (2,), (1,), or ().")
    return np.broadcast_to(values, (ndim, 2)) if not hasattr(values, "aval") else broadcast_to(values, (ndim, 2))


@library(static_argnames=("widths",))
def _pad_constant(array, values, widths):
    if isinstance(values, (tuple, list)):
        from mini_jax.numpy.creation import asarray
        values = asarray(values)
    (values,) = arraylike("pad", values)
    values = lax.convert_element_type(as_array(values), array.dtype)
    if not values.ndim:
        return lax.pad(array, values, [(a, b, 0) for a, b in widths])
    values = _pairs("constant_values", values, array.ndim)
    for axis, (before, after) in enumerate(widths):
        for side, (low, high) in enumerate(((before, 0), (0, after))):
            config = [(0, 0, 0)] * array.ndim
            config[axis] = (low, high, 0)
            array = lax.pad(array, values[axis, side], config)
    return array


def _along(x, axis, start, end):
    return lax.slice_in_dim(x, start, end, axis=axis)


@library(static_argnames=("widths",))
def _pad_linear_ramp(array, end_values, widths):
    if isinstance(end_values, (tuple, list)):
        from mini_jax.numpy.creation import asarray
        end_values = asarray(end_values)
    dtype = array.dtype
    ends = _pairs("end_values", lax.convert_element_type(array_argument("pad", end_values), dtype), array.ndim)
    computed = dtypes.to_inexact(dtype)
    for axis, (before, after) in enumerate(widths):
        n = array.shape[axis]
        parts = [array]
        for side, width in enumerate((before, after)):
            if not width:
                continue
            edge = lax.convert_element_type(_along(array, axis, 0, 1) if side == 0 else _along(array, axis, n - 1, n), computed)
            end = lax.convert_element_type(ends[axis, side], computed)
            steps = np.arange(width) if side == 0 else np.arange(width)[::-1]                # from the end to the edge
            shape = [width if i == axis else m for i, m in enumerate(array.shape)]
            steps = lax.broadcast_in_dim(lax.convert_element_type(steps, computed), shape, (axis,))
            ramp = end + (broadcast_to(edge, shape) - end) / width * steps
            if dtypes.is_integer(dtype):
                ramp = lax.floor(lax.convert_element_type(ramp, computed))
            ramp = lax.convert_element_type(ramp, dtype)
            parts = [ramp, *parts] if side == 0 else [*parts, ramp]
        array = lax.concatenate(parts, axis) if len(parts) > 1 else array
    return array


@library(static_argnames=("widths", "mode", "lengths", "reflect_type"))
def _pad(array, widths, mode, lengths, reflect_type):
    if mode == "empty":
        return lax.pad(array, array.dtype.type(0), [(a, b, 0) for a, b in widths])
    for axis, (before, after) in enumerate(widths):
        if not (before or after):
            continue
        n = array.shape[axis]
        if not n:
            raise ValueError(f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
        if mode == "edge":
            left, right = _repeated(_along(array, axis, 0, 1), axis, before), _repeated(_along(array, axis, n - 1, n), axis, after)
        elif mode == "wrap":
            left, right = _periodic(array, axis, before, after)
        elif mode in ("reflect", "symmetric"):
            array = _mirrored(array, axis, before, after, mode == "reflect", reflect_type)
            continue
        else:
            first, last = (n, n) if lengths is None else lengths[axis]
            left = _repeated(_statistic(mode, _along(array, axis, 0, min(first, n)), axis), axis, before)
            right = _repeated(_statistic(mode, _along(array, axis, n - min(last, n), n), axis), axis, after)
        array = lax.concatenate([left, array, right], axis)
    return array


def _repeated(x, axis, n):
    return broadcast_to(x, [n if i == axis else m for i, m in enumerate(x.shape)])


def _periodic(x, axis, before, after):
    n = x.shape[axis]
    whole = lambda k: [x] * k
    left = [_along(x, axis, n - before % n, n), *whole(before // n)]
    right = [*whole(after // n), _along(x, axis, 0, after % n)]
    return lax.concatenate(left, axis), lax.concatenate(right, axis)


def _mirrored(x, axis, before, after, at_element: bool, reflect_type):
    """Mirror again and again at both ends of the original, until enough is there."""
    n = x.shape[axis]
    if reflect_type not in ("even", "odd"):
        raise ValueError("reflect_type must be 'even' or 'odd'")
    if n == 1 and at_element:
        return lax.concatenate([_repeated(x, axis, before), x, _repeated(x, axis, after)], axis)
    skip, step = int(at_element), n - int(at_element)
    while before > 0 or after > 0:
        for side in (0, 1):
            missing = (before, after)[side]
            if missing <= 0:
                continue
            take, size = min(missing, step), x.shape[axis]
            part = _along(x, axis, skip, skip + take) if side == 0 else _along(x, axis, size - skip - take, size - skip)
            part = lax.rev(part, (axis,))
            if reflect_type == "odd":
                edge = _along(x, axis, 0, 1) if side == 0 else _along(x, axis, size - 1, size)
                part = lax.sub(lax.mul(broadcast_to(edge, part.shape), x.dtype.type(2)), part)
            x = lax.concatenate([part, x] if side == 0 else [x, part], axis)
            if side == 0:
                before -= take
            else:
                after -= take
    return x


def _statistic(mode, x, axis):
    dtype = x.dtype
    if mode == "maximum":
        return lax.expand_dims(lax.reduce_max(x, (axis,)), (axis,))
    if mode == "minimum":
        return lax.expand_dims(lax.reduce_min(x, (axis,)), (axis,))
    if mode == "mean":
        from mini_jax.numpy.reductions import mean as statistic
    else:
        from mini_jax.numpy.statistics import median as statistic
    out = statistic(x, axis=axis, keepdims=True)
    if not dtypes.is_inexact(dtype):
        out = lax.round(out, lax.RoundingMethod.TO_NEAREST_EVEN)
    return lax.convert_element_type(out, dtype)


def _pad_by_function(array, widths, function: Callable, kwargs):
    """As numpy.pad: function(padded vector, (before, after), axis, kwargs) for each vector along each axis in turn."""
    from mini_jax.numpy.mapping import apply_along_axis
    padded = lax.pad(array, array.dtype.type(0), [(a, b, 0) for a, b in widths])
    for axis in range(padded.ndim):
        padded = apply_along_axis(function, axis, padded, widths[axis], axis, kwargs)
    return padded
