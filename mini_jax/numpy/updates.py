"""x.at[index].set(y) and its like: x with what an index reads replaced. Out of bounds they write nothing."""
from __future__ import annotations

import warnings
from typing import Any, Callable

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.core.trace import Tracer, is_value, typeof
from mini_jax.lax.gather import GatherScatterMode, ScatterDimensionNumbers
from mini_jax.lax.slicing import static_index
from mini_jax.numpy import ufuncs
from mini_jax.numpy.subscripts import (FULL, How, Plan, expanded, for_dispatch, index_array, index_vectors, is_boolean,
                                    lies_inside, options, parse, read_window, window_of, with_scalar_booleans)
from mini_jax.numpy.promotion import converted, promote_dtypes
from mini_jax.numpy.reading import read, read_eagerly
from mini_jax.runtime.dispatch import library
from mini_jax.runtime.xla import ArrayImpl

_COMBINE = {"add": lax.add, "subtract": lax.sub, "multiply": lax.mul, "divide": lax.div, "power": ufuncs.power, "min": lax.min,
            "max": lax.max}
_SCATTER = {"set": lax.scatter, "add": lax.scatter_add, "subtract": lax.scatter_sub, "multiply": lax.scatter_mul,
            "min": lax.scatter_min, "max": lax.scatter_max}
_NEUTRAL = {"add": 0, "subtract": 0, "multiply": 1, "divide": 1, "power": 1}


def _combined(op, old, new):
    """old `op` new, computed in the dtype in which they meet, in the dtype of `old`. A function as `op` is applied to `old`."""
    dtype = typeof(old).dtype
    if callable(op):
        return converted(op(old), dtype)
    if op == "set":
        return new
    return converted(_COMBINE[op](*promote_dtypes(old, new)), dtype)


def _prepared(x, values, op):
    """The operands in the dtypes that the operation wants: a quotient is not an integer; what is written has the dtype of x."""
    if op == "divide":
        x = converted(x, dtypes.to_inexact(dtypes.result_type(x, values)))
    return x, converted(values, typeof(x).dtype) if op == "set" else values


def _broadcast_value(y, shape):
    have = typeof(y).shape
    if len(have) > len(shape) or any([n != 1 and n != m for n, m in zip(have, shape[len(shape) - len(have):])]):
        raise ValueError(f"a value of shape {have} can't be written to elements of shape {tuple(shape)}: sizes, aligned at the "
                         "last dimension, must be equal or 1, and the value can't have more dimensions")
    return lax.broadcast_in_dim(y, shape, range(len(shape) - len(have), len(shape)))


def write(x, values, operands, structure, op, how: How = How()):
    """x with `values` combined by `op` into what the index of this structure and these operands reads."""
    x, values = _prepared(x, values, op)
    before = typeof(x)
    x, structure, operands = with_scalar_booleans(x, structure, operands)
    plan = Plan(typeof(x).shape, structure, operands, how)
    if values is not None:
        shape, new = plan.result_shape(), plan.new_axes()
        for k in new:
            shape.insert(k, 1)
        values = lax.squeeze(_broadcast_value(values, shape), new)
    if not before.size:
        return x
    if not plan.arrays:
        out = _write_window(x, values, plan, op, how)
    elif any([step not in (None, 1) for step in plan.step]):
        out = _write_inside(x, values, structure, operands, op, how)
    else:
        out = _write_scattered(x, values, plan, op, how)
    return lax.convert_element_type(lax.reshape(out, before.shape), before.dtype, before.weak_type)


def _write_window(x, values, plan: Plan, op, how: How):
    """An index of slices and integers: its window is read, combined and written back."""
    inside = True if how.mode in (GatherScatterMode.CLIP, GatherScatterMode.PROMISE_IN_BOUNDS) else lies_inside(plan)
    if inside is False or not all(plan.count):
        return x
    starts, sizes = window_of(plan)
    if values is not None:
        values = lax.rev(values, [k for k, d in enumerate(plan.windows()) if plan.step[d] < 0])
        values = lax.reshape(values, plan.count)
    whole = sizes == list(plan.shape)
    steps = [abs(step) for step in plan.step]
    new = values
    if op != "set" or inside is not True or max(steps, default=1) > 1:
        old = x if whole else read_window(x, starts, sizes)
        if max(steps, default=1) > 1:
            new = _interleaved(old, _combined(op, lax.slice(old, [0] * len(sizes), sizes, steps), values), steps)
        else:
            new = _combined(op, old, values)
        if inside is not True:
            new = lax.select(inside, new, old)
    return new if whole else lax.dynamic_update_slice(x, new, starts, allow_negative_indices=False)


def _interleaved(old, new, steps):
    """`old` with every step-th element along each dimension replaced by those of `new`."""
    config = [(0, 0, step - 1) for step in steps]
    any_value = read_window(new, [0] * len(steps), [1] * len(steps)) if dtypes.is_extended(old.dtype) else np.zeros((), old.dtype)
    chosen = lax.pad(lax.broadcast(np.True_, typeof(new).shape), np.False_, config)
    return lax.select(chosen, lax.pad(new, lax.reshape(any_value, ()), config), old)


def _write_inside(x, values, structure, operands, op, how: How):
    """An index of arrays and of slices with steps: what the slices take is read, written to by the arrays, and written back."""
    structure = [code for code in structure if code is not None]
    apart = [type(code) is tuple and code[2] != 1 for code in structure]
    slices = tuple([code if a else FULL for code, a in zip(structure, apart)])
    rest = tuple([FULL if a else code for code, a in zip(structure, apart)])
    return write(x, write(read(x, (), slices), values, operands, rest, op, how), (), slices, "set")


def _write_scattered(x, values, plan: Plan, op, how: How):
    """An index with arrays: a scatter, whose index vectors hold the arrays, the integers, and where partial slices start."""
    shape, indexed, columns = plan.shape, [], []
    for d, size in enumerate(shape):
        if d in plan.arrays:
            columns.append(index_array(plan.arrays[d], size, how))
        elif d in plan.ints or plan.count[d] != size:
            start = plan.start[d]
            columns.append(static_index(start) if type(start) is int else start)
        else:
            continue
        indexed.append(d)
    windows = plan.windows()
    numbers = ScatterDimensionNumbers(plan.offset_dims(), tuple([d for d in indexed if d not in windows]), tuple(indexed))
    flags = dict(indices_are_sorted=how.indices_are_sorted, unique_indices=how.unique_indices, mode=how.mode)
    vectors = index_vectors(columns, plan.batch)
    if callable(op):
        return lax.scatter_apply(x, vectors, op, numbers, update_shape=plan.result_shape(), **flags)
    if op in ("divide", "power"):                           # where an index repeats, so does its factor
        ones = lax.broadcast(np.ones((), x.dtype), shape)
        return _combined(op, x, lax.scatter_mul(ones, vectors, converted(values, x.dtype), numbers, **flags))
    if op != "set":
        x, values = promote_dtypes(x, values)
    return _SCATTER[op](x, vectors, values, numbers, **flags)


def write_masked(x, mask, values, axis: int, op):
    """x with what `mask`, over dimensions from `axis` on, selects combined with a value that is the same for all of it."""
    x, values = _prepared(x, values, op)
    aval, rank = typeof(x), typeof(mask).ndim
    chosen = lax.broadcast_in_dim(mask, aval.shape, range(axis, axis + rank))
    if callable(op):
        return lax.select(chosen, _combined(op, x, None), x)
    rest, have = aval.ndim - axis - rank, typeof(values).shape
    if len(have) > rest:
        values = lax.reshape(values, (*have[:len(have) - rest - 1], *[1] * rank, *have[len(have) - rest:]))
    values = _broadcast_value(values, aval.shape)
    if op in _NEUTRAL:                      # what is not selected meets a neutral value, so that its derivative is 1, never NaN
        return _combined(op, x, lax.select(chosen, values, lax.full_like(values, _NEUTRAL[op])))
    return lax.select(chosen, _combined(op, x, values), x)


_write_eagerly = library(write, static_argnames=("structure", "op", "how"))
_write_masked_eagerly = library(write_masked, static_argnames=("axis", "op"))


# --- from what users write to these ------------------------------------------------------------------------------------------

def _lone_mask(shape: tuple[int, ...], entries) -> tuple[Any, int] | None:
    """The mask, and the first dimension it indexes, of an index that is nothing but a mask and full slices; else None."""
    found = None
    for d, i in enumerate(entries):
        if found is None and is_boolean(i) and i.ndim and i.shape == shape[d:d + i.ndim]:
            found = i, d
        elif type(i) is not slice or i != slice(None):
            return None
    return found


def _is_one_for_all(values, rest: int) -> bool:
    """Does a value lack the dimension of the selected elements, which `rest` dimensions follow, or have size 1 in it?"""
    shape = np.shape(values)
    return len(shape) <= rest or shape[-rest - 1] == 1


def _updated(x, index, values, op, how: How):
    """x with x[index] replaced by x[index] `op` values."""
    if isinstance(values, (list, tuple)):
        values = np.asarray(values)
    if not callable(op):
        if not is_value(values):
            raise TypeError(f".at[…].{op}: {values!r:.100} of type {type(values).__name__} is not an array or a number")
        _check_conversion(typeof(x), values, op)
    eager = type(x) is ArrayImpl and not callable(op)
    entries = expanded(x.shape, index)
    found = _lone_mask(x.shape, entries)
    if found is not None:
        mask, axis = found
        if isinstance(mask, Tracer) if callable(op) else _is_one_for_all(values, len(x.shape) - axis - mask.ndim):
            return (_write_masked_eagerly if eager else _write_masked_eagerly.recording)(x, mask, values, axis, op)
        how = how._replace(unique_indices=True)
    structure, operands = parse(x.shape, entries)
    if eager:
        return _write_eagerly(x, values, [for_dispatch(i) for i in operands], structure, op, how)
    return _write_eagerly.recording(x, values, operands, structure, op, how)


def _check_conversion(aval, values, op) -> None:
    """Raise TypeError where a value's dtype can't become the array's, warn where that does not hold all of its values."""
    dtype = getattr(values, "dtype", None)
    if dtype is aval.dtype or op == "divide" or type(values) is int and dtypes.is_numeric(aval.dtype):
        return
    have = typeof(values)
    if dtypes.is_extended(aval.dtype) or dtypes.is_extended(have.dtype):
        if have.dtype != aval.dtype:
            raise TypeError(f".at[…].{op}: a value of type {have} can't be written into an array of type {aval}")
    elif dtypes.promote_pair(aval.dtype, aval.weak_type, have.dtype, have.weak_type)[0] != aval.dtype:
        warnings.warn(f".at[…].{op}: a value of dtype {have.dtype} is converted to the array's dtype {aval.dtype}, which does "
                      "not hold all of its values; say so with .astype. (In future this is an error in JAX.)", FutureWarning,
                      stacklevel=4)


class AtHelper:
    """x.at: `x.at[index].set(y)` and its like are x with some elements replaced; x itself stays as it is."""
    __slots__ = ("array",)

    def __init__(self, array):
        self.array = array

    def __getitem__(self, index) -> "AtIndex":
        return AtIndex(self.array, index)

    def __repr__(self):
        return f"AtHelper({self.array!r})"


class AtIndex:
    """x.at[index].

    Options of all methods. mode: None or 'drop' leave out elements out of bounds, 'clip' takes the nearest, 'promise_in_bounds'
    says that there are none; `get` reads the nearest by default, and fill_value (by default NaN, …) for 'fill'.
    indices_are_sorted, unique_indices: promises about index arrays. wrap_negative_indices: False if negative indices do not
    count from the end.
    """
    __slots__ = ("array", "index")

    def __init__(self, array, index):
        self.array, self.index = array, index

    def __repr__(self):
        return f"AtIndex({self.array!r}, {self.index!r})"

    def get(self, *, indices_are_sorted: bool = False, unique_indices: bool = False, mode=None, fill_value=None,
            out_sharding=None, wrap_negative_indices: bool = True):
        """x[index], with options."""
        x = self.array
        structure, operands = parse(x.shape, expanded(x.shape, self.index))
        how = options(mode, fill_value, indices_are_sorted, unique_indices, wrap_negative_indices)
        if type(x) is ArrayImpl:
            return read_eagerly(x, [for_dispatch(i) for i in operands], structure, how)
        return read_eagerly.recording(x, operands, structure, how)

    def apply(self, func: Callable, *, indices_are_sorted: bool = False, unique_indices: bool = False, mode=None,
              wrap_negative_indices: bool = True):
        """x after x[index] = func(x[index]), func being elementwise. Where an index repeats, it is applied repeatedly."""
        how = options(mode, None, indices_are_sorted, unique_indices, wrap_negative_indices)
        return _updated(self.array, self.index, None, func, how)


def _method(name: str, formula: str) -> Callable:
    def method(self, values, *, indices_are_sorted: bool = False, unique_indices: bool = False, mode=None, out_sharding=None,
               wrap_negative_indices: bool = True):
        how = options(mode, None, indices_are_sorted, unique_indices, wrap_negative_indices)
        return _updated(self.array, self.index, values, name, how)
    method.__name__, method.__qualname__ = name, f"AtIndex.{name}"
    repeated = "one of the values stays" if name == "set" else "so does the operation"
    method.__doc__ = f"x after {formula}; `values` broadcast to x[index]. Where an index repeats, {repeated}."
    return method


for _name, _sign in (("set", "="), ("add", "+="), ("subtract", "-="), ("multiply", "*="), ("divide", "/="), ("power", "**="),
                     ("min", "= the lesser of it and"), ("max", "= the greater of it and")):
    setattr(AtIndex, _name, _method(_name, f"x[index] {_sign} values"))
AtIndex.mul = AtIndex.multiply
