"""`jax.ops`: reductions over segments, the runs or groups of rows that share a segment id."""
from __future__ import annotations

from typing import Any

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes, errors
from mini_jax.core.trace import Tracer, typeof
from mini_jax.lax.gather import GatherScatterMode, ScatterDimensionNumbers
from mini_jax.numpy.promotion import arraylike
from mini_jax.runtime.dispatch import library

__all__ = ["segment_sum", "segment_prod", "segment_max", "segment_min"]

_SCATTER = {"sum": lax.scatter_add, "prod": lax.scatter_mul, "max": lax.scatter_max, "min": lax.scatter_min}


def _start(kind: str, dtype) -> Any:
    """What a segment without rows has."""
    if kind in ("sum", "prod"):
        return np.asarray(kind == "prod").astype(dtype)[()]
    if dtype == dtypes.bool_:
        return np.bool_(kind == "min")
    if dtypes.is_integer(dtype):
        info = dtypes.iinfo(dtype)
        return dtype.type(int(info.min if kind == "max" else info.max))
    return dtype.type(-np.inf if kind == "max" else np.inf)


@library(static_argnames=("kind", "num_segments", "is_sorted", "unique", "mode"))
def _reduced(data, segment_ids, kind, num_segments, is_sorted, unique, mode):
    t, ids = typeof(data), typeof(segment_ids)
    shape = (num_segments, *t.shape[ids.ndim:])
    init = lax.full(shape, _start(kind, t.dtype), t.dtype)
    rows = lax.reshape(data, (ids.size, *t.shape[ids.ndim:]))
    numbers = ScatterDimensionNumbers(tuple(range(1, len(shape))), (0,), (0,))
    return _SCATTER[kind](init, lax.reshape(segment_ids, (ids.size, 1)), rows, numbers, indices_are_sorted=is_sorted, unique_indices=unique, mode=mode)


def _segment(kind: str, data, segment_ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode):
    name = f"segment_{kind}"
    data, segment_ids = arraylike(name, data, segment_ids)
    t, ids = typeof(data), typeof(segment_ids)
    if not dtypes.is_integer(ids.dtype):
        raise TypeError(f"{name}: segment_ids must be integers, got {ids}")
    if t.shape[:ids.ndim] != ids.shape or not ids.ndim:
        raise ValueError(f"{name}: data ({t}) must start with the dimensions of segment_ids ({ids}), which has at least one")
    if bucket_size is not None:
        raise NotImplementedError(f"{name}: bucket_size is not supported; sums over segments are computed in one pass")
    if num_segments is None:
        if isinstance(segment_ids, Tracer):
            raise errors.shape_depends_on_value(name, "num_segments")
        num_segments = int(np.max(np.asarray(segment_ids), initial=-1)) + 1
    elif int(num_segments) != num_segments or num_segments < 0:
        raise ValueError(f"{name}: num_segments must be a number of segments, at least 0, got {num_segments!r}")
    mode = GatherScatterMode.FILL_OR_DROP if mode is None else GatherScatterMode.from_any(mode)
    return _reduced(data, segment_ids, kind, int(num_segments), bool(indices_are_sorted), bool(unique_indices), mode)


def _function(kind: str, formula: str, empty: str):
    def function(data, segment_ids, num_segments: int | None = None, indices_are_sorted: bool = False, unique_indices: bool = False,
                 bucket_size: int | None = None, mode=None):
        return _segment(kind, data, segment_ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode)
    function.__name__ = function.__qualname__ = f"segment_{kind}"
    function.__doc__ = f"""{formula}, over the rows i with segment_ids[i] = k; {empty} for a segment without rows.

    segment_ids: integers, of the shape that data starts with; ids that are negative or beyond num_segments are left out.
    num_segments: how many rows the result has; default: the largest id plus one, where that is known while tracing.
    indices_are_sorted, unique_indices: promises that let it run faster. mode: what becomes of ids out of bounds (as in x.at[]).
    Raises TypeError for ids that are no integers, ValueError where shapes don't fit.
    """
    return function


segment_sum = _function("sum", "out[k] = Σᵢ data[i]", "0")
segment_prod = _function("prod", "out[k] = Πᵢ data[i]", "1")
segment_max = _function("max", "out[k] = maxᵢ data[i]", "the smallest value of the dtype (−∞)")
segment_min = _function("min", "out[k] = minᵢ data[i]", "the greatest value of the dtype (∞)")
