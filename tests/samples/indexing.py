"""Samples of slices, padding, concatenation, gathers and scatters, with references that are loops over windows."""
import itertools

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.lax import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers
from tests.samples import Sample, constant, distinct, integers, uniform

ALL = frozenset(dtypes.all_dtypes)
CLIP, DROP, PROMISE = GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP, GatherScatterMode.PROMISE_IN_BOUNDS


# --- references -------------------------------------------------------------------------------------------------------------

def windows(shape, indices, dims, sizes, mode):
    """For each index vector: its position in the indices, and the slices of the operand that are its window (None: outside)."""
    offset, collapsed, mapped, batching, index_batching = dims
    for position in itertools.product(*map(range, indices.shape[:-1])):
        start = [0] * len(shape)
        for d, i in zip(mapped, indices[position]):
            start[d] = int(i)
        for d, b in zip(batching, index_batching):
            start[d] = position[b]
        if mode is CLIP:
            start = [min(max(s, 0), n - k) for s, n, k in zip(start, shape, sizes)]
        inside = all(0 <= s <= n - k for s, n, k in zip(start, shape, sizes))
        yield position, tuple([slice(s, s + k) for s, k in zip(start, sizes)]) if inside else None


def place(position, offset, ndim):
    """Where in the result the window of the index vector at `position` stands."""
    rest = iter(position)
    return tuple([slice(None) if d in offset else next(rest) for d in range(ndim)])


def gather(operand, indices, *, dimension_numbers, slice_sizes, mode, fill_value, **_):
    dims = dimension_numbers
    dropped = (*dims.collapsed_slice_dims, *dims.operand_batching_dims)
    kept = [n for d, n in enumerate(slice_sizes) if d not in dropped]
    rest, kept_sizes = iter(indices.shape[:-1]), iter(kept)
    ndim = len(kept) + indices.ndim - 1
    out = np.zeros([next(kept_sizes) if d in dims.offset_dims else next(rest) for d in range(ndim)], operand.dtype)
    for position, window in windows(operand.shape, indices, dims, slice_sizes, mode):
        out[place(position, dims.offset_dims, ndim)] = fill_value if window is None else operand[window].reshape(kept)
    return out


def scatter(combine):
    def reference(operand, indices, updates, *, dimension_numbers, mode, **_):
        dims = dimension_numbers
        dropped = (*dims.inserted_window_dims, *dims.operand_batching_dims)
        kept = iter([updates.shape[d] for d in dims.update_window_dims])
        sizes = [1 if d in dropped else next(kept) for d in range(operand.ndim)]
        out = operand.copy()
        for position, window in windows(operand.shape, indices, dims, sizes, CLIP if mode is CLIP else DROP):
            if window is not None:
                out[window] = combine(out[window], updates[place(position, dims.update_window_dims, updates.ndim)].reshape(sizes))
        return out
    return reference


def dynamic_slice(x, *starts, slice_sizes):
    return x[tuple([slice(s, s + n) for s, n in zip(clamped(x, starts, slice_sizes), slice_sizes)])]


def dynamic_update_slice(x, update, *starts):
    out = x.copy()
    out[tuple([slice(s, s + n) for s, n in zip(clamped(x, starts, update.shape), update.shape)])] = update
    return out


def clamped(x, starts, sizes):
    return [min(max(int(s), 0), size - n) for s, size, n in zip(starts, x.shape, sizes)]


def pad(x, value, *, padding_config):
    shape = [n + max(n - 1, 0) * i for n, (_, _, i) in zip(x.shape, padding_config)]
    inner = np.full(shape, value)
    inner[tuple([slice(None, None, i + 1) for _, _, i in padding_config])] = x
    outer = np.pad(inner, [(max(low, 0), max(high, 0)) for low, high, _ in padding_config], constant_values=value)
    return outer[tuple([slice(max(-low, 0), n - max(-high, 0)) for n, (low, high, _) in zip(outer.shape, padding_config)])]


# --- samples ----------------------------------------------------------------------------------------------------------------

def gathers(operand, indices, numbers, sizes, modes=(CLIP, DROP), unique=False, **more):
    return [Sample((uniform(shape=operand), indices), dict(
        dimension_numbers=GatherDimensionNumbers(*numbers), slice_sizes=sizes, indices_are_sorted=False, unique_indices=unique,
        mode=mode, fill_value=1 if mode is DROP else None), reference=gather, **more) for mode in modes]


def scatters(combine, operand, indices, updates, numbers, modes=(DROP, CLIP), unique=False, draw=uniform, **more):
    return [Sample((draw(shape=operand), indices, draw(shape=updates)), dict(
        dimension_numbers=ScatterDimensionNumbers(*numbers), indices_are_sorted=False, unique_indices=unique, mode=mode),
        reference=scatter(combine), **more) for mode in modes]


FEW = frozenset([dtypes.float32, dtypes.int32])


def all_scatters(combine, repeated={}, unique={}, windows=True, every=None, **both):
    """Rows with repeated indices, in every dtype; batching dimensions with unique ones; and windows, clipped."""
    def few(*args, **more):
        return scatters(combine, *args, dtypes=FEW, **more, **both)
    return [*scatters(combine, (4, 3), integers(-1, 5, (3, 1), np.int32), (3, 3), ((1,), (0,), (0,)), modes=(DROP,), dtypes=every,
                      **repeated, **both),
            *few((2, 4), constant([[3], [9]], np.uint8), (2,), ((), (1,), (1,), (0,), (0,)), modes=(DROP,), unique=True,
                 **unique),
            *(few((4, 3), constant([[2, 1], [0, 0]], np.int64), (2, 2, 2), ((1, 2), (), (0, 1)), modes=(CLIP,),
                  **repeated) if windows else [])]


SAMPLES = {
    "slice": [Sample((uniform(),), dict(start_indices=(0, 1), limit_indices=(2, 3), strides=None), dtypes=ALL,
                     reference=lambda x, **_: x[:, 1:]),
              Sample((uniform(shape=(7, 3)),), dict(start_indices=(1, 0), limit_indices=(6, 3), strides=(3, 2)),
                     reference=lambda x, **_: x[1:6:3, ::2]),
              Sample((uniform(),), dict(start_indices=(1, 1), limit_indices=(1, 2), strides=None),
                     reference=lambda x, **_: x[1:1, 1:2])],
    "dynamic_slice": [Sample((uniform(shape=(4, 3)), integers(-2, 6, (), np.int32), integers(0, 3, (), np.uint8)),
                             dict(slice_sizes=(2, 2)),
                             dtypes=ALL, reference=dynamic_slice),
                      Sample((uniform(shape=(4, 3)), integers(0, 4, (), np.int64), constant(0, np.int64)),
                             dict(slice_sizes=(1, 3)),
                             reference=dynamic_slice)],
    "dynamic_update_slice": [Sample((uniform(shape=(4, 3)), uniform(shape=(2, 2)), integers(-2, 6, (), np.int32),
                                     integers(0, 3, (), np.int8)),
                                    dtypes=ALL, reference=dynamic_update_slice, linear=((0,), (1,), (0, 1))),
                             Sample((uniform(), uniform(), constant(0, np.int32), constant(1, np.int32)),
                                    reference=dynamic_update_slice,
                                    linear=((0,), (1,), (0, 1)))],
    "pad": [Sample((uniform(), uniform(shape=())), dict(padding_config=config), dtypes=which, reference=pad,
                   linear=((0,), (1,), (0, 1)))
            for config, which in ((((-1, 2, 1), (2, -2, 0)), ALL), (((1, 2, 0), (0, 1, 2)), None),
                                  (((0, 0, 0), (-1, -1, 0)), None))],
    "concatenate": [Sample((uniform(), uniform(shape=(2, 1)), uniform(shape=(2, 0))), dict(dimension=1), dtypes=ALL,
                           reference=lambda *xs, dimension: np.concatenate(xs, dimension), linear=((0,), (1,), (0, 1, 2))),
                    Sample((uniform(), uniform(shape=(1, 3))), dict(dimension=0),
                           reference=lambda *xs, dimension: np.concatenate(xs, dimension),
                           linear=((0, 1),))],
    "split": [Sample((uniform(shape=(2, 5)),), dict(sizes=(2, 0, 3), axis=1), dtypes=ALL,
                     reference=lambda x, **_: [x[:, :2], x[:, 2:2], x[:, 2:]])],
    "rev": [Sample((uniform(),), dict(dimensions=(1,)), dtypes=ALL, reference=lambda x, **_: x[:, ::-1]),
            Sample((uniform(),), dict(dimensions=(1, 0)), reference=lambda x, **_: x[::-1, ::-1])],
    "iota": [Sample((), dict(dtype=dtype, shape=(3, 4), dimension=1), dtypes=frozenset([dtype]), batched=(), linear=(), order=0,
                    reference=lambda *, dtype, **_: np.broadcast_to(np.arange(4), (3, 4)).astype(dtype)) 
             for dtype in dtypes.all_dtypes if dtype != dtypes.bool_],
    "gather": [*gathers((4, 3), integers(-1, 5, (3, 1), np.int32), ((1,), (0,), (0,)), (1, 3), dtypes=ALL),
               *gathers((4, 3), constant([[2], [0]], np.uint8), ((0,), (0,), (0,)), (1, 2), modes=(DROP,), unique=True),
               *gathers((4, 3), integers(-1, 4, (2, 2), np.int64), ((0, 2), (), (1, 0)), (2, 1)),
               *gathers((2, 4, 3), integers(0, 4, (2, 2, 1), np.int32), ((1,), (1,), (1,), (0,), (0,)), (1, 1, 3),
                        modes=(PROMISE, DROP))],
    "scatter": all_scatters(lambda old, new: new, dict(linear=((0,), (2,), (0, 2))), dict(linear=((0,), (2,), (0, 2))),
                            every=ALL),
    "scatter-add": all_scatters(lambda old, new: old + new, linear=((0,), (2,), (0, 2)), tolerance=16.0),
    "scatter-sub": all_scatters(lambda old, new: old - new, windows=False, linear=((0,), (2,), (0, 2)), tolerance=16.0),
    "scatter-mul": all_scatters(lambda old, new: old * new, dict(differentiable=(0,)), dict(linear=((0,), (2,))), windows=False,
                                tolerance=16.0),
    "scatter-min": all_scatters(np.minimum, windows=False, draw=distinct, linear=(), order=1),
    "scatter-max": all_scatters(np.maximum, draw=distinct, linear=(), order=1),
    "scatter_apply": [Sample((uniform(shape=(4, 3)), integers(0, 4, (3, 1), np.int32)), dtypes=frozenset(dtypes.floats), order=0,
                             linear=(), tolerance=16.0,
                             call=lambda x, i: lax.scatter_apply(x, i, lambda v: v * v, ScatterDimensionNumbers((1,), (0,), (0,)),
                                                                 update_shape=(3, 3)),
                             reference=lambda x, i: scatter(lambda old, new: old * old)(
                                 x, i, np.zeros((3, 3)), dimension_numbers=ScatterDimensionNumbers((1,), (0,), (0,)),
                                 mode=DROP))],
}
