"""Shapes made to fit: what several shapes broadcast to, dimensions added, merged and repeated, arrays stacked and taken apart."""
from __future__ import annotations

import operator
from math import prod
from typing import Sequence

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.lax.shapes import broadcast_in_dim, canonical_axis, canonical_shape, expand_dims, reshape, squeeze
from mini_jax.lax.slicing import concatenate, split

__all__ = ["broadcast_shapes", "broadcast_to_rank", "broadcast_like", "collapse", "stack", "unstack", "dtype", "shape_as_value"]


def broadcast_shapes(*shapes) -> tuple[int, ...]:
    """The shape that arrays of these shapes broadcast to: sizes are aligned at the last dimension, and 1 fits any.

    Raises ValueError where sizes differ otherwise.
    """
    shapes = [canonical_shape(shape) for shape in shapes]
    rank = max(map(len, shapes), default=0)
    found = []
    for sizes in zip(*[(1,) * (rank - len(shape)) + shape for shape in shapes]):
        others = {n for n in sizes if n != 1}
        if len(others) > 1:
            raise ValueError(f"Incompatible shapes for broadcasting: shapes={shapes}; sizes at one place, counted from the end, must be equal or 1")
        found.append(others.pop() if others else 1)
    return tuple(found)


def broadcast_to_rank(x, rank: int):
    """x with leading dimensions of size 1, so that it has `rank` of them; x itself where it has as many or more."""
    missing = operator.index(rank) - typeof(x).ndim
    return expand_dims(x, tuple(range(missing))) if missing > 0 else x


def broadcast_like(arr, like_arr):
    """arr, broadcast to the shape of like_arr. ValueError where it does not fit."""
    have, want = typeof(arr).shape, typeof(like_arr).shape
    if broadcast_shapes(have, want) != want:
        raise ValueError(f"lax.broadcast_like: an array of shape {have} does not broadcast to shape {want}")
    kept = [d for d in range(len(have)) if have[d] == want[len(want) - len(have) + d]]
    x = squeeze(arr, tuple([d for d in range(len(have)) if d not in kept]))
    return broadcast_in_dim(x, want, tuple([len(want) - len(have) + d for d in kept]))


def collapse(operand, start_dimension: int, stop_dimension: int | None = None):
    """The operand with its dimensions from start_dimension up to stop_dimension (not included; None: all that follow) made one.

    Both may count from the end. Raises ValueError for a start out of bounds, or behind the stop.
    """
    shape = typeof(operand).shape
    start, stop, _ = slice(start_dimension, stop_dimension, 1).indices(len(shape))
    if stop < start or not -len(shape) <= start_dimension <= len(shape):
        raise ValueError(f"Invalid dimension range passed to collapse: {shape}[{start_dimension}:{stop_dimension}]; the start must be a dimension, "
                         "and not come after the stop")
    return reshape(operand, (*shape[:start], prod(shape[start:stop]), *shape[stop:]))


def stack(operands: Sequence, axis: int = 0):
    """The operands, arrays of one shape and dtype, along a new dimension `axis`.

    Raises ValueError for no operands, shapes that differ and an axis out of bounds, TypeError for dtypes that differ.
    """
    if not isinstance(operands, (tuple, list)) and not getattr(operands, "ndim", 0):
        raise TypeError(f"lax.stack takes a sequence of arrays, got {operands!r:.200} of type {type(operands).__name__}")
    operands = list(operands)
    if not operands:
        raise ValueError("lax.stack needs at least one array")
    types = [typeof(x) for x in operands]
    if len({t.shape for t in types}) > 1:
        raise ValueError(f"lax.stack: all arrays must have the same shape, got {', '.join([str(t.shape) for t in types])}")
    if len({t.dtype for t in types}) > 1:
        raise TypeError(f"lax.stack requires arguments to have the same dtypes, got {', '.join(map(str, types))}; convert them first")
    axis = canonical_axis(axis, types[0].ndim + 1)
    return concatenate([expand_dims(x, (axis,)) for x in operands], axis)


def unstack(x, axis: int = 0) -> tuple:
    """The arrays that x consists of along `axis`, each without that dimension. ValueError for an axis out of bounds."""
    aval = typeof(x)
    axis = canonical_axis(axis, aval.ndim)
    if not aval.shape[axis]:
        return ()
    return tuple([squeeze(part, (axis,)) for part in split(x, (1,) * aval.shape[axis], axis)])


def dtype(x):
    """The dtype of an array or number, or the one that a name or class stands for. TypeError for anything else."""
    try:
        return typeof(x).dtype
    except TypeError:
        return dtypes.canonicalize(dtypes.as_dtype(x))


def shape_as_value(shape):
    """A shape as an int32 array of its sizes."""
    return np.asarray(canonical_shape(shape), np.int32).reshape(-1)
