"""Grids and indices: meshgrid, mgrid, ogrid, indices, ix_, r_, c_, and between flat and multi-dimensional indices."""
from __future__ import annotations

import math
from typing import Sequence

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.lax.shapes import canonical_shape
from mini_jax.numpy.creation import arange, array, asarray, linspace
from mini_jax.numpy.joining import concatenate, stack
from mini_jax.numpy.manipulation import broadcast_arrays
from mini_jax.numpy.promotion import arraylike, as_array
from mini_jax.numpy.sorting import concrete, nonzero
from mini_jax.numpy.ufuncs import clip, divmod, remainder

__all__ = ["meshgrid", "indices", "ix_", "mgrid", "ogrid", "r_", "c_", "s_", "index_exp", "unravel_index", "ravel_multi_index"]

s_, index_exp = np.s_, np.index_exp


def meshgrid(*xi, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list:
    """The coordinates of the points of a grid, given its coordinates along each axis: one array for each.

    xi: vectors. indexing: 'xy', the first coordinate runs along the second axis, or 'ij', along the first. sparse: arrays of
    size 1 along the other axes. Raises ValueError for arrays of more than one dimension, or another indexing.
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"Valid values for indexing are 'xy' and 'ij', got {indexing!r}")
    if not copy:
        raise ValueError("meshgrid: copy=False is not supported, since arrays are immutable")
    vectors = [as_array(x) for x in arraylike("meshgrid", *xi)]
    for x in vectors:
        if x.ndim > 1:
            raise ValueError(f"Arguments to meshgrid must be 1D, got {x.aval}")
    order = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) > 1:
        order[:2] = 1, 0
    sizes = [0] * len(vectors)
    for x, place in zip(vectors, order):
        sizes[place] = x.size
    return [lax.broadcast_in_dim(lax.reshape(x, (x.size,)), [x.size if i == place else 1 if sparse else n for i, n in enumerate(sizes)], (place,))
            for x, place in zip(vectors, order)]


def indices(dimensions: Sequence[int], dtype=None, sparse: bool = False):
    """The index along each axis of the elements of an array of shape `dimensions`: stacked, or a tuple of them with size 1 elsewhere if sparse."""
    dtype = dtypes.default_int() if dtype is None else dtypes.requested(dtype, "indices")
    shape = canonical_shape(dimensions)
    if sparse:
        return tuple([lax.reshape(arange(n, dtype=dtype), [n if i == d else 1 for i in range(len(shape))]) for d, n in enumerate(shape)])
    out = [lax.broadcasted_iota(dtype, shape, d) for d in range(len(shape))]
    return stack(out) if out else array([], dtype=dtype)


def ix_(*args) -> tuple:
    """Vectors of indices, or masks, as an open grid: x[ix_(rows, columns)] is the part in these rows and columns.

    Raises ValueError for arrays of more than one dimension.
    """
    out = []
    for i, x in enumerate(arraylike("ix_", *args)):
        x = as_array(x)
        if x.ndim != 1:
            raise ValueError(f"ix_: arguments must be 1-dimensional, got {x.aval}")
        if dtypes.is_bool(x.dtype):
            x = nonzero(x)[0]
        out.append(lax.reshape(x, (1,) * i + (x.size,) + (1,) * (len(args) - i - 1)))
    return tuple(out)


# --- by slices ------------------------------------------------------------------------------------------------------------------------

def _run(key: slice):
    """The numbers a slice names: of a step that is j times a number, so many from start to stop, both included."""
    start, stop, step = 0 if key.start is None else key.start, key.stop, 1 if key.step is None else key.step
    if stop is None:
        raise ValueError("a grid's slice needs a stop")
    if isinstance(step, complex):
        return linspace(start, stop, int(abs(step)))
    return arange(start, stop, step)


class _Grid:
    """mgrid[0:2, 0:1:5j]: coordinates of the points of a grid."""

    def __init__(self, sparse: bool):
        self.sparse = sparse

    def __getitem__(self, key):
        if isinstance(key, slice):
            return _run(key)
        runs = [_run(k) for k in key]
        dtype = dtypes.result_type(*runs) if runs else None
        runs = meshgrid(*[lax.convert_element_type(r, dtype) for r in runs], sparse=self.sparse, indexing="ij")
        return runs if self.sparse else stack(runs)


class _Join:
    """r_[1, 2, 3:5]: slices and arrays, joined along the first axis; c_ joins along the second."""

    def __init__(self, axis: int, ndmin: int, first: int):
        self.defaults = axis, ndmin, first

    def __getitem__(self, key):
        key = key if isinstance(key, tuple) else (key,)
        axis, ndmin, first = self.defaults
        as_column = None
        if key and isinstance(key[0], str):
            directive, *key = key
            if directive in ("r", "c"):
                axis, ndmin, as_column = -1, 2, directive == "c"
            else:
                numbers = [int(n) for n in directive.split(",")]
                axis, ndmin, first = (*numbers, *self.defaults[len(numbers):])
        parts = []
        for k in key:
            if isinstance(k, slice):
                k = _run(k)
            k = asarray(k)
            parts.append(_at_least(k if k.ndim else lax.reshape(k, (1,)), ndmin, first, as_column))
        return concatenate(parts, axis)


def _at_least(x, ndmin: int, first: int, as_column):
    """x with new axes of size 1: its own ones stand at `first` among ndmin (-1: at the end)."""
    if as_column is not None:
        return lax.reshape(x, (x.size, 1) if as_column else (1, x.size)) if x.ndim == 1 else x
    missing = ndmin - x.ndim
    if missing <= 0:
        return x
    before = missing if first == -1 else first + missing + 1 if first < 0 else min(first, missing)
    return lax.reshape(x, (1,) * before + x.shape + (1,) * (missing - before))


mgrid, ogrid = _Grid(sparse=False), _Grid(sparse=True)
r_, c_ = _Join(0, 1, -1), _Join(-1, 2, 0)


# --- flat and multi-dimensional indices -------------------------------------------------------------------------------------------------

def unravel_index(indices, shape) -> tuple:
    """The indices along each axis of the elements of an array of `shape` that have these places in row-major order.

    Places out of bounds count as the nearest one; negative ones from the end.
    """
    (indices,) = arraylike("unravel_index", indices)
    shape = canonical_shape(shape)
    total = math.prod(shape)
    rest = clip(indices, -total, total - 1)
    rest = lax.select(lax.lt(rest, 0), rest + total, as_array(rest)) if total else rest
    out = []
    for n in reversed(shape):
        rest, index = divmod(rest, n)
        out.append(index)
    return tuple(reversed(out))


def ravel_multi_index(multi_index: Sequence, dims: Sequence[int], mode="raise", order: str = "C", *, dtype=None):
    """The place in row-major (or with order='F' column-major) order of the elements with these indices in an array of shape `dims`.

    mode, for indices out of bounds: 'raise' (they must be known), 'wrap', 'clip', or one of these for each axis. dtype: of the result.
    Raises ValueError for indices out of bounds, TypeError for indices that are no integers.
    """
    dims = canonical_shape(dims)
    multi_index = [as_array(i) for i in (arraylike("ravel_multi_index", *multi_index))]
    if len(multi_index) != len(dims):
        raise ValueError(f"len(multi_index)={len(multi_index)} != len(dims)={len(dims)}")
    for i in multi_index:
        if not dtypes.is_integer(i.dtype):
            raise TypeError(f"only int indices permitted, got {i.aval}")
    modes = (mode,) * len(dims) if isinstance(mode, str) else tuple(mode)
    dtype = dtypes.default_int() if dtype is None else dtypes.requested(dtype, "ravel_multi_index")
    within = []
    for i, n, how in zip(multi_index, dims, modes):
        if how == "raise":
            known = concrete("ravel_multi_index with mode='raise'", "whether an index is out of bounds", i)
            if known.size and not (0 <= known.min() and known.max() < n):
                raise ValueError("invalid entry in coordinates array")
        elif how == "clip":
            i = clip(i, 0, n - 1)
        elif how == "wrap":
            i = remainder(i, n)
        else:
            raise ValueError(f"invalid mode={mode!r}. Expected 'raise', 'wrap', or 'clip'")
        within.append(lax.convert_element_type(i, dtype))
    if order not in ("C", "F"):
        raise ValueError(f"invalid order={order!r}. Expected 'C' or 'F'")
    sizes = dims if order == "C" else dims[::-1]
    out = None
    for i, n in zip(broadcast_arrays(*(within if order == "C" else within[::-1])), sizes):
        out = i if out is None else out * n + i
    return out
