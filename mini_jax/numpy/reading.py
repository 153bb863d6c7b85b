"""x[index]: what an index reads, as slices, dynamic slices and gathers. Out of bounds it reads the nearest element."""
from __future__ import annotations

from functools import lru_cache

import numpy as np

from mini_jax import lax
from mini_jax.core.trace import typeof
from mini_jax.lax.gather import GatherDimensionNumbers, GatherScatterMode
from mini_jax.numpy.subscripts import (ARRAY, FULL, INT, How, Plan, expanded, for_dispatch, has_operand, in_the_middle,
                                    index_array, index_vectors, parse, read_window, slice_range, window_of, with_scalar_booleans)
from mini_jax.runtime.dispatch import library
from mini_jax.runtime.xla import ArrayImpl

_FILLING = (GatherScatterMode.FILL_OR_DROP, GatherScatterMode.ONE_HOT)


def getitem(x, index):
    """x[index] with NumPy's meaning, and the nearest element for indices out of bounds.

    Raises TypeError for what is no index, IndexError for one that does not fit x, NonConcreteBooleanIndexError for a traced mask.
    """
    kind = type(index)
    if type(x) is ArrayImpl:                            # the usual cases, at the cost of one call of C++
        if kind is int:
            return _read_int(x, for_dispatch(index))
        if kind is slice:
            shape = x.shape
            if shape:
                size = shape[0]
                start, n, step = slice_range(index, size)
                if step == 1:
                    if n == size:
                        return x
                    if in_the_middle(start, n, step, size):
                        return _read_range(x, for_dispatch(start), n)
                    return _read_end(x, start, n)
    shape = x.shape
    if type(x) is not ArrayImpl and (key := _known_key(index)) is not None:
        return _read_known(x, _known_plan(shape, key))
    structure, operands = parse(shape, expanded(shape, index))
    if structure.count(FULL) == len(structure):
        return x
    if type(x) is ArrayImpl:
        return read_eagerly(x, [for_dispatch(i) for i in operands], structure)
    return read_eagerly.recording(x, operands, structure)


def _known_key(index) -> tuple | None:
    """An index of nothing but ints, slices between ints, None and Ellipsis, as a hashable key; None for any other."""
    key = []
    for i in index if type(index) is tuple else (index,):
        kind = type(i)
        if kind is slice:
            start, stop, step = i.start, i.stop, i.step
            if not (type(start) in _KNOWN and type(stop) in _KNOWN and type(step) in _KNOWN):
                return None
            key.append((start, stop, step))
        elif kind is int or i is None or i is Ellipsis:
            key.append(i)
        else:
            return None
    return tuple(key)


_KNOWN = (int, type(None))


@lru_cache(maxsize=4096)
def _known_plan(shape: tuple, key: tuple) -> tuple:
    """(parameters of slice_p or None, dimensions to reverse, to squeeze, new axes) of such an index of an array of this shape."""
    index = tuple([slice(*i) if type(i) is tuple else i for i in key])
    plan = Plan(shape, *parse(shape, expanded(shape, index)), How())
    starts, sizes = window_of(plan)
    strides = tuple([abs(step or 1) for step in plan.step])
    window = {"start_indices": tuple(starts), "limit_indices": tuple([s + n for s, n in zip(starts, sizes)]),
              "strides": None if all([s == 1 for s in strides]) else strides}
    whole = window["limit_indices"] == shape and not any(starts) and window["strides"] is None
    return None if whole else window, tuple([d for d, step in enumerate(plan.step) if (step or 1) < 0]), tuple(plan.ints), tuple(plan.new_axes())


def _read_known(x, plan: tuple):
    window, reversed_dims, ints, new = plan
    if window is not None:
        x = lax.slice_p.bind(x, **window)
    if reversed_dims:
        x = lax.rev(x, reversed_dims)
    if ints:
        x = lax.squeeze_p.bind(x, dimensions=ints)
    return lax.expand_dims(x, new) if new else x


def read(x, operands, structure, how: How = How()):
    """What the index of this structure and these operands reads of x."""
    x, structure, operands = with_scalar_booleans(x, structure, operands)
    if how.mode in _FILLING and INT in structure:           # what may be filled is gathered; else an integer is a slice
        codes = [code for code in structure if has_operand(code)]
        operands = [np.asarray(i) if code is INT and isinstance(i, (int, np.integer)) else i for code, i in zip(codes, operands)]
        structure = tuple([ARRAY if code is INT else code for code in structure])
    plan = Plan(typeof(x).shape, structure, operands, how)
    y = _strided(read_window(x, *window_of(plan)), plan)
    if plan.ints:
        y = lax.squeeze(y, plan.ints)
    if plan.arrays:
        y = _gathered(y, plan, how)
    new = plan.new_axes()
    return lax.expand_dims(y, new) if new else y


read_eagerly = library(read, static_argnames=("structure", "how"))


@library
def _read_int(x, i):
    shape = typeof(x).shape
    return read(x, (i,), parse(shape, expanded(shape, 0))[0])


@library(static_argnames=("n",))
def _read_range(x, start, n):
    return read(x, (start,), (n, *[FULL] * (typeof(x).ndim - 1)))


@library(static_argnames=("start", "n"))
def _read_end(x, start, n):
    return read(x, (), ((start, n, 1), *[FULL] * (typeof(x).ndim - 1)))


def _strided(x, plan: Plan):
    """Of a window, the elements that slices with steps take."""
    steps = [step or 1 for step in plan.step]
    if any([abs(s) != 1 for s in steps]):
        x = lax.slice(x, [0] * len(steps), typeof(x).shape, [abs(s) for s in steps])
    return lax.rev(x, [d for d, s in enumerate(steps) if s < 0])


def _gathered(x, plan: Plan, how: How):
    """Of an array whose dimensions are sliced, and rid of the integers', already: the elements at the index arrays."""
    dims = [d for d in range(len(plan.shape)) if d not in plan.ints]
    indexed = tuple([k for k, d in enumerate(dims) if d in plan.arrays])
    shape = typeof(x).shape
    if not all([shape[k] for k in indexed]):
        if np.prod(plan.batch, dtype=int):
            raise IndexError(f"an index array is out of bounds for an axis with size 0 of an array of shape {plan.shape}")
        return lax.reshape(read_window(x, [0] * len(shape), [0 if k in indexed else n for k, n in enumerate(shape)]),
                           plan.result_shape())
    vectors = index_vectors([index_array(plan.arrays[dims[k]], shape[k], how) for k in indexed], plan.batch)
    numbers = GatherDimensionNumbers(plan.offset_dims(), indexed, indexed)
    return lax.gather(x, vectors, numbers, [1 if k in indexed else n for k, n in enumerate(shape)], fill_value=how.fill_value,
                      unique_indices=how.unique_indices, indices_are_sorted=how.indices_are_sorted,
                      mode=GatherScatterMode.PROMISE_IN_BOUNDS if how.mode is None else how.mode)
