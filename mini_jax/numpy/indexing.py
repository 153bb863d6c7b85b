"""NumPy indexing: what x[index] and x.at[index].set(y) mean, as slices, gathers and scatters; take and put.

An index is taken apart into a structure, static and hashable, and the integers and arrays in it, its operands. The structure
has an entry for each dimension of the array: FULL for all of it, n for n elements in a row (operand: where they start),
(start, n, step) for n elements apart, INT (operand: an integer), ARRAY (operand: integers); between these None for a new
axis, and TRUE or FALSE for a boolean without dimensions. So x[0], x[1], x[2] are one program at three operands, except
inside of a larger program that is being traced, where known operands stay known.

Reading out of bounds reads the nearest element, writing there writes nothing; `mode` says otherwise (JAX's semantics).
"""
from __future__ import annotations

import operator
import warnings
from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes, errors
from mini_jax.core.trace import Tracer, is_value, typeof
from mini_jax.lax.gather import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers
from mini_jax.lax.shapes import canonical_axis
from mini_jax.lax.slicing import signed_index, static_index, wrap_index
from mini_jax.numpy import ufuncs
from mini_jax.numpy.promotion import arraylike, broadcast_shapes, converted, promote_dtypes
from mini_jax.runtime.dispatch import library
from mini_jax.runtime.xla import ArrayImpl

__all__ = ["take", "take_along_axis", "put", "put_along_axis"]

FULL, INT, ARRAY, TRUE, FALSE = ":", "int", "array", "true", "false"


class How(NamedTuple):
    """The options of an indexing operation."""
    mode: GatherScatterMode | None = None
    fill_value: Any = None
    indices_are_sorted: bool = False
    unique_indices: bool = False
    wrap_negative_indices: bool = True

    @property
    def fills(self) -> bool:
        return self.mode is GatherScatterMode.FILL_OR_DROP or self.mode is GatherScatterMode.ONE_HOT


# --- taking an index apart ---------------------------------------------------------------------------------------------------

def _entry(i):
    """An entry of an index as None, Ellipsis, a slice, an int, or an array or tracer of integers or booleans."""
    kind = type(i)
    if kind is int or kind is slice or i is None or i is Ellipsis:
        return i
    if isinstance(i, (bool, np.bool_)):
        return np.asarray(i)
    if isinstance(i, (int, np.integer)):
        return int(i)
    if isinstance(i, str):
        raise TypeError(f"arrays are not indexed by strings: {i!r}")
    if isinstance(i, (list, tuple)):
        i = np.asarray(i) if len(i) else np.zeros(0, np.int32)
    elif hasattr(i, "__jax_array__"):
        i = i.__jax_array__()
    if isinstance(i, np.ndarray):
        i = i if i.dtype.isnative else i.astype(i.dtype.newbyteorder("="))
    elif not is_value(i):
        if hasattr(i, "__index__"):
            return operator.index(i)
        raise IndexError("only integers, slices (`:`), ellipsis (`...`), newaxis (`None`) and integer or boolean arrays are valid "
                         f"indices, got {i!r:.100} of type {type(i).__name__}")
    dtype = getattr(i, "dtype", type(i).__name__)
    if not dtypes.is_integer(dtype) and dtype != dtypes.bool_:
        raise TypeError(f"an index must be of integer or boolean type, got {i!r:.100} of type {dtype}")
    return int(i) if isinstance(i, np.ndarray) and not i.ndim and i.dtype != bool else i


def _entries(index) -> tuple:
    """The entries of an index, which is a tuple of them or one alone."""
    if type(index) is tuple:
        return tuple([_entry(i) for i in index])
    if isinstance(index, (list, range)):
        raise TypeError("a sequence that is no tuple is not an index: use x[jnp.array(seq)] for the elements at these places, or "
                        f"x[tuple(seq)] for one index per dimension; got {index!r:.100}")
    return (_entry(index),)


def _is_boolean(i) -> bool:
    return hasattr(i, "dtype") and i.dtype == dtypes.bool_


def _consumed(i) -> int:
    """How many dimensions of the array an entry indexes."""
    return 0 if i is None or i is Ellipsis else i.ndim if _is_boolean(i) else 1


def _expanded(shape: tuple[int, ...], index) -> tuple:
    """The entries of an index with FULL for each dimension that an ellipsis, or nothing, stands for."""
    entries = _entries(index)
    missing = len(shape) - sum([_consumed(i) for i in entries])
    if missing < 0:
        raise IndexError(f"too many indices: the array has {len(shape)} dimensions (shape {shape}), but {len(shape) - missing} were indexed")
    ellipses = [k for k, i in enumerate(entries) if i is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    k = ellipses[0] if ellipses else len(entries)
    return (*entries[:k], *[slice(None)] * missing, *entries[k + 1:])


def _range(s: slice, size: int) -> tuple[int, int, int]:
    """(start, number of elements, step) of a slice of a dimension."""
    try:
        start, stop, step = s.indices(size)
    except errors.TracerIntegerConversionError:
        raise IndexError(f"the ends of a slice must be known, since they decide the shape of the result; got {s}. For a part of fixed size at a "
                         "computed place use lax.dynamic_slice_in_dim(x, start, size)") from None
    return start, len(range(start, stop, step)), step


def parse(shape: tuple[int, ...], index) -> tuple[tuple, list]:
    """The structure of an index of an array of this shape, and its operands.

    Raises IndexError for too many indices, for an integer that indexes an empty dimension and for a mask of the wrong shape; TypeError
    for what is no index; NonConcreteBooleanIndexError for a mask that is traced.
    """
    return _structure(shape, _expanded(shape, index))


def _structure(shape, entries) -> tuple[tuple, list]:
    structure: list = []
    operands: list = []
    d = 0
    for i in entries:
        if type(i) is int:
            structure.append(INT)
            operands.append(i)
        elif type(i) is slice:
            start, n, step = _range(i, shape[d])
            if n == shape[d] and step == 1:
                structure.append(FULL)
            elif step == 1 or n < 2:
                structure.append(n)
                operands.append(start if n else 0)
            else:
                structure.append((start, n, step))
        elif i is None:
            structure.append(None)
        elif _is_boolean(i):
            if i.shape != shape[d:d + i.ndim]:
                raise IndexError(f"a boolean index of shape {i.shape} does not match the dimensions that it indexes: from dimension {d} on "
                                 f"the array has shape {shape[d:d + i.ndim]}")
            mask = np.asarray(i._known(errors.boolean_index) if isinstance(i, Tracer) else i)
            if mask.ndim:
                structure.extend([ARRAY] * mask.ndim)
                operands.extend(mask.nonzero())
            else:
                structure.append(TRUE if mask else FALSE)
        else:
            structure.append(ARRAY if i.ndim else INT)
            operands.append(i)
        if structure[-1:] == [INT] and not shape[d]:
            raise IndexError(f"an index is out of bounds for axis {d} with size 0")
        d += _consumed(i)
    return tuple(structure), operands


class Plan:
    """An index of an array of a known shape, dimension by dimension.

    start, count, step: of each dimension that is sliced or indexed by an integer (count 1, step 1); None for arrays.
    ints: the dimensions indexed by integers; arrays: the index arrays, by dimension, broadcast against each other to `batch`.
    layout: the dimensions of the result in order: a dimension of the array, None for a new axis, "batch" for those of the arrays.
    """

    def __init__(self, shape: tuple[int, ...], structure: tuple, operands: Sequence):
        self.shape = shape
        self.start, self.count, self.step, self.ints, self.arrays = [], [], [], [], {}
        given, layout, advanced = iter(operands), [], []
        for place, code in enumerate(structure):
            if code is None:
                layout.append(None)
                continue
            d = len(self.start)
            start, count, step = 0, shape[d], 1
            if code is INT:
                start, count = next(given), 1
                self.ints.append(d)
                advanced.append((place, len(layout)))
            elif code is ARRAY:
                start = count = step = None
                self.arrays[d] = next(given)
                advanced.append((place, len(layout)))
            else:
                if type(code) is tuple:
                    start, count, step = code
                elif code is not FULL:
                    start, count = next(given), code
                layout.append(d)
            self.start.append(start)
            self.count.append(count)
            self.step.append(step)
        self.batch: tuple[int, ...] = ()
        self.layout = layout
        if self.arrays:
            self.batch = broadcast_shapes(*[a.shape for a in self.arrays.values()])
            adjacent = advanced[-1][0] - advanced[0][0] == len(advanced) - 1           # NumPy: then in their place, else in front
            layout.insert(advanced[0][1] if adjacent else 0, "batch")

    def result_shape(self) -> tuple[int, ...]:
        out = []
        for d in self.layout:
            out.extend(self.batch if d == "batch" else (1,) if d is None else (self.count[d],))
        return tuple(out)

    def windows(self) -> tuple[int, ...]:
        """The dimensions of the array that the result has, in order."""
        return tuple([d for d in self.layout if d is not None and d != "batch"])

    def offset_dims(self) -> tuple[int, ...]:
        """Where these stand in the result without new axes."""
        out, position = [], 0
        for d in self.layout:
            if d == "batch":
                position += len(self.batch)
            elif d is not None:
                out.append(position)
                position += 1
        return tuple(out)


def _has_operand(code) -> bool:
    return code is INT or code is ARRAY or type(code) is int


def _with_scalar_booleans(x, structure, operands):
    """A boolean without dimensions is a new axis, and an array of the one index 0, or of none, into it."""
    if TRUE not in structure and FALSE not in structure:
        return x, structure, operands
    given, out, axes, d, result = iter(operands), [], [], 0, []
    for code in structure:
        if code is TRUE or code is FALSE:
            axes.append(d)
            out.append(np.zeros(1 if code is TRUE else 0, np.int32))
            code = ARRAY
        elif _has_operand(code):
            out.append(next(given))
        d += code is not None
        result.append(code)
    return lax.expand_dims(x, axes), tuple(result), out


# --- positions -----------------------------------------------------------------------------------------------------------------

def _placed(i, size: int, how: How):
    """An integer index as (where it points, moved inside if known; whether that was inside: True, False or a traced boolean)."""
    if type(i) is int:
        i += size if i < 0 and how.wrap_negative_indices else 0
        return min(max(i, 0), size - 1), 0 <= i < size
    i = wrap_index(i, size) if how.wrap_negative_indices else signed_index(i)
    kind = typeof(i).dtype.type
    return i, lax.bitwise_and(lax.ge(i, kind(0)), lax.lt(i, kind(size)))


def _all(flags):
    """The conjunction of booleans, known (Python's) or traced."""
    if not all([f for f in flags if f is True or f is False]):
        return False
    traced, out = [f for f in flags if f is not True], True
    for f in traced:
        out = f if out is True else lax.bitwise_and(out, f)
    return out


def _spans(plan: Plan, how: How) -> tuple[list, list[int], Any]:
    """The window that covers all slices and integers: where it starts and its size in each dimension; and if the integers lie inside."""
    starts, sizes, inside = [], [], []
    for d, (start, count, step) in enumerate(zip(plan.start, plan.count, plan.step)):
        if d in plan.ints:
            start, flag = _placed(start, plan.shape[d], how)
            inside.append(flag)
        elif step is None:
            start, count = 0, plan.shape[d]
        elif step != 1:
            start, count = (start if step > 0 else start + (count - 1) * step), (count - 1) * abs(step) + 1
        starts.append(start)
        sizes.append(count)
    return starts, sizes, _all(inside)


def _window(x, starts, sizes):
    if all([type(s) is int for s in starts]):
        return lax.slice(x, starts, [s + n for s, n in zip(starts, sizes)])
    return lax.dynamic_slice(x, starts, sizes, allow_negative_indices=False)


def _strided(x, plan: Plan):
    """Of a window, the elements that slices with steps take."""
    steps = [step or 1 for step in plan.step]
    if any([abs(s) != 1 for s in steps]):
        x = lax.slice(x, [0] * len(steps), typeof(x).shape, [abs(s) for s in steps])
    return lax.rev(x, [d for d, s in enumerate(steps) if s < 0])


def _index_array(i, size: int, how: How):
    """Integer indices into a dimension, ready to gather with: those below zero counted from the end, int32 or int64."""
    if isinstance(i, np.ndarray):
        limits = np.iinfo(dtypes.default_int())
        i = i.astype(np.int64) if i.dtype != np.uint64 else np.minimum(i, limits.max).astype(np.int64)
        i = np.clip(np.where(i < 0, i + size, i) if how.wrap_negative_indices else i, limits.min, limits.max)
        return i.astype(np.int32 if limits.bits == 32 or size < 2**31 and (not i.size or np.abs(i).max() < 2**31) else np.int64)
    return wrap_index(i, size) if how.wrap_negative_indices else signed_index(i)


def _vectors(columns: Sequence, batch: tuple[int, ...]):
    """Index vectors (*batch, k) from k arrays or scalars of indices that broadcast to `batch`."""
    if all([isinstance(c, (np.ndarray, np.generic)) for c in columns]):
        return np.stack([np.broadcast_to(c, batch) for c in columns], -1)
    wide = any([typeof(c).dtype == dtypes.int64 for c in columns])
    columns = [converted(c, dtypes.int64 if wide else dtypes.int32) for c in columns]
    rank = len(batch)
    return lax.concatenate([lax.broadcast_in_dim(_aligned(c, batch), (*batch, 1), range(rank - typeof(c).ndim, rank)) for c in columns], rank)


def _aligned(c, batch):
    return np.asarray(c) if isinstance(c, np.generic) else c


# --- reading -----------------------------------------------------------------------------------------------------------------

@library(static_argnames=("structure", "how"))
def _read(x, operands, structure, how=How()):
    x, structure, operands = _with_scalar_booleans(x, structure, operands)
    if how.fills and INT in structure:                    # what is filled is gathered; else integers are slices, moved inside
        codes = [code for code in structure if _has_operand(code)]
        operands = [np.asarray(i) if code is INT and type(i) is int else i for code, i in zip(codes, operands)]
        structure = tuple([ARRAY if code is INT else code for code in structure])
    plan = Plan(typeof(x).shape, structure, operands)
    starts, sizes, _ = _spans(plan, how)
    y = _strided(_window(x, starts, sizes), plan)
    if plan.ints:
        y = lax.squeeze(y, plan.ints)
    if plan.arrays:
        y = _gathered(y, plan, how)
    new = [k for k, d in enumerate(_flat_layout(plan)) if d is None]
    return lax.expand_dims(y, new) if new else y


def _flat_layout(plan: Plan) -> list:
    """The layout with an entry for each dimension of the result."""
    return [e for d in plan.layout for e in ([d] * len(plan.batch) if d == "batch" else [d])]


def _gathered(x, plan: Plan, how: How):
    """Of an array whose dimensions are sliced, and rid of integers', already: the elements at the index arrays."""
    dims = [d for d in range(len(plan.shape)) if d not in plan.ints]
    indexed = [k for k, d in enumerate(dims) if d in plan.arrays]
    shape = typeof(x).shape
    if not all([shape[k] for k in indexed]):
        if np.prod(plan.batch, dtype=int):
            raise IndexError(f"an index array is out of bounds for an axis with size 0 of an array of shape {plan.shape}")
        return lax.reshape(_window(x, [0] * len(shape), [0 if k in indexed else n for k, n in enumerate(shape)]),
                           [n for d, n in zip(_flat_layout(plan), plan.result_shape()) if d is not None])
    vectors = _vectors([_index_array(plan.arrays[dims[k]], shape[k], how) for k in indexed], plan.batch)
    numbers = GatherDimensionNumbers(plan.offset_dims(), tuple(indexed), tuple(indexed))
    return lax.gather(x, vectors, numbers, [1 if k in indexed else n for k, n in enumerate(shape)], unique_indices=how.unique_indices,
                      indices_are_sorted=how.indices_are_sorted, fill_value=how.fill_value,
                      mode=GatherScatterMode.PROMISE_IN_BOUNDS if how.mode is None else how.mode)


@library
def _read_int(x, i):
    return _read.__wrapped__(x, (i,), parse(typeof(x).shape, 0)[0])


@library(static_argnames=("n",))
def _read_range(x, start, n):
    return _read.__wrapped__(x, (start,), (n, *[FULL] * (typeof(x).ndim - 1)))


def getitem(x, index):
    """x[index] with NumPy's meaning; see the head of this file for indices out of bounds."""
    kind = type(index)
    if type(x) is ArrayImpl:
        if kind is int:
            return _read_int(x, index)
        if kind is slice:
            shape = x.shape
            if shape:
                start, n, step = _range(index, shape[0])
                if step == 1:
                    return x if n == shape[0] else _read_range(x, start, n)
    structure, operands = parse(x.shape, index)
    if structure.count(FULL) == len(structure):
        return x
    return (_read if type(x) is ArrayImpl else _read.__wrapped__)(x, operands, structure)


# --- writing -----------------------------------------------------------------------------------------------------------------

_COMBINE: dict[str, Callable] = {"add": lax.add, "subtract": lax.sub, "multiply": lax.mul, "divide": lax.div, "power": ufuncs.power, "min": lax.min,
                                 "max": lax.max}
_SCATTER: dict[str, Callable] = {"set": lax.scatter, "add": lax.scatter_add, "subtract": lax.scatter_sub, "multiply": lax.scatter_mul,
                                 "min": lax.scatter_min, "max": lax.scatter_max}
_NEUTRAL = {"add": 0, "subtract": 0, "multiply": 1, "divide": 1, "power": 1}


def _combined(op, old, new):
    """old `op` new, in the dtype in which they meet, as a value of the dtype of `old`. A function as `op` is applied to `old`."""
    dtype = typeof(old).dtype
    if callable(op):
        return converted(op(old), dtype)
    if op == "set":
        return new
    return converted(_COMBINE[op](*promote_dtypes(old, new)), dtype)


def _broadcast_value(y, shape: tuple[int, ...]):
    have = typeof(y).shape
    if len(have) > len(shape) or any([n != 1 and n != m for n, m in zip(have, shape[len(shape) - len(have):])]):
        raise ValueError(f"a value of shape {have} can't be written to elements of shape {shape}: sizes, aligned at the last dimension, must be "
                         "equal or 1, and the value can't have more dimensions")
    return lax.broadcast_in_dim(y, shape, range(len(shape) - len(have), len(shape)))


def _write(x, values, operands, structure, op, how=How()):
    """x with `values` combined by `op` into what an index reads."""
    if op == "divide" and values is not None:
        x = converted(x, dtypes.to_inexact(dtypes.result_type(x, values)))
    if op == "set":
        values = converted(values, typeof(x).dtype)
    before = typeof(x)
    x, structure, operands = _with_scalar_booleans(x, structure, operands)
    plan = Plan(typeof(x).shape, structure, operands)
    if values is not None:
        values = _broadcast_value(values, plan.result_shape())
        if None in plan.layout:
            values = lax.reshape(values, [n for d, n in zip(_flat_layout(plan), plan.result_shape()) if d is not None])
    if not before.size:
        return x
    if not plan.arrays:
        out = _write_window(x, values, plan, op, how)
    elif any([step not in (None, 1) for step in plan.step]):
        out = _write_inside(x, values, structure, operands, op, how)
    else:
        out = _write_scattered(x, values, plan, op, how)
    out = lax.reshape(out, before.shape)
    return lax.convert_element_type(out, before.dtype, before.weak_type)


def _write_window(x, values, plan: Plan, op, how: How):
    """An index of slices and integers: its window is read, combined and written back."""
    starts, sizes, inside = _spans(plan, how)
    if inside is False and how.mode is not GatherScatterMode.CLIP or not all(plan.count):
        return x
    if values is not None:
        values = lax.rev(values, [k for k, d in enumerate(plan.windows()) if plan.step[d] < 0])
        values = lax.reshape(values, plan.count)
    whole = sizes == list(plan.shape)
    strided = any([abs(s) != 1 for s in plan.step])
    checked = inside is not True and how.mode in (None, GatherScatterMode.FILL_OR_DROP, GatherScatterMode.ONE_HOT)
    new = values
    if op != "set" or strided or checked:
        old = x if whole else _window(x, starts, sizes)
        if strided:
            new = _interleaved(old, _combined(op, lax.slice(old, [0] * len(sizes), sizes, [abs(s) for s in plan.step]), values), plan)
        else:
            new = _combined(op, old, values)
        if checked:
            new = lax.select(inside, new, old)
    return new if whole else lax.dynamic_update_slice(x, new, starts, allow_negative_indices=False)


def _interleaved(old, new, plan: Plan):
    """A window with every |step|-th element along each dimension replaced by those of `new`."""
    config = [(0, 0, abs(step) - 1) for step in plan.step]
    any_value = _window(new, [0] * len(config), [1] * len(config)) if dtypes.is_extended(old.dtype) else np.zeros((), old.dtype)
    chosen = lax.pad(lax.broadcast(np.True_, typeof(new).shape), np.False_, config)
    return lax.select(chosen, lax.pad(new, lax.reshape(any_value, ()), config), old)


def _write_inside(x, values, structure, operands, op, how: How):
    """An index of arrays and of slices with steps: what the slices take is read, written to by the arrays, and written back."""
    slices = tuple([code if code is None or type(code) is tuple else FULL for code in structure if code is not None])
    part = _read.__wrapped__(x, (), slices)
    rest = tuple([FULL if type(code) is tuple else code for code in structure if code is not None])
    return _write(x, _write(part, values, operands, rest, op, how), (), slices, "set")


def _write_scattered(x, values, plan: Plan, op, how: How):
    """An index with arrays: a scatter, whose index vectors hold the arrays, the integers, and where partial slices start."""
    shape, indexed, columns = plan.shape, [], []
    for d, size in enumerate(shape):
        if d in plan.arrays:
            column = _index_array(plan.arrays[d], size, how)
        elif d in plan.ints or plan.count[d] != size:
            start = plan.start[d]
            if type(start) is int:
                start = static_index(start + (size if start < 0 and d in plan.ints and how.wrap_negative_indices else 0))
            column = start if isinstance(start, np.generic) else wrap_index(start, size) if how.wrap_negative_indices else signed_index(start)
        else:
            continue
        indexed.append(d)
        columns.append(column)
    numbers = ScatterDimensionNumbers(plan.offset_dims(), tuple([d for d in indexed if d not in plan.windows()]), tuple(indexed))
    flags = dict(indices_are_sorted=how.indices_are_sorted, unique_indices=how.unique_indices, mode=how.mode)
    vectors = _vectors(columns, plan.batch)
    if callable(op):
        update = [n for d, n in zip(_flat_layout(plan), plan.result_shape()) if d is not None]
        return lax.scatter_apply(x, vectors, op, numbers, update_shape=update, **flags)
    if op in ("divide", "power"):                # where an index repeats, so does its factor
        values = converted(values, typeof(x).dtype)
        ones = lax.broadcast(np.ones((), typeof(x).dtype), shape)
        return _combined(op, x, lax.scatter_mul(ones, vectors, values, numbers, **flags))
    if op != "set":
        x, values = promote_dtypes(x, values)
    return _SCATTER[op](x, vectors, values, numbers, **flags)


def _write_masked(x, mask, values, axis: int, op):
    """An index that is one mask, over dimensions from `axis` on, and a value that is the same for all that it selects."""
    aval = typeof(x)
    dtype = aval.dtype
    if op == "divide":
        x = converted(x, dtypes.to_inexact(dtypes.result_type(x, values)))
        aval, dtype = typeof(x), typeof(x).dtype
    chosen = lax.broadcast_in_dim(mask, aval.shape, range(axis, axis + typeof(mask).ndim))
    if callable(op):
        return lax.select(chosen, converted(op(x), dtype), x)
    rest, have = aval.ndim - axis - typeof(mask).ndim, typeof(values).shape
    if len(have) > rest:
        values = lax.reshape(values, (*have[:len(have) - rest - 1], *[1] * typeof(mask).ndim, *have[len(have) - rest:]))
    values = _broadcast_value(converted(values, dtype) if op == "set" else values, aval.shape)
    if op in _NEUTRAL:                           # what is not selected meets a neutral value, so its derivative is 1, never NaN
        values = lax.select(chosen, values, lax.full_like(values, _NEUTRAL[op]))
        return _combined(op, x, values)
    return lax.select(chosen, _combined(op, x, values), x)


_written, _written_masked = [library(f, static_argnames=names) for f, names in (
    (_write, ("structure", "op", "how")), (_write_masked, ("axis", "op")))]


def _lone_mask(shape: tuple[int, ...], entries) -> tuple[Any, int] | None:
    """The mask, and the first dimension it indexes, of an index that is nothing but a mask and full slices; else None."""
    found = None
    for d, i in enumerate(entries):
        if found is None and _is_boolean(i) and i.ndim and i.shape == shape[d:d + i.ndim]:
            found = i, d
        elif type(i) is not slice or i != slice(None):
            return None
    return found


def _is_one_for_all(values, rest: int) -> bool:
    """Does a value lack the dimension of the selected elements, which `rest` dimensions follow, or have size 1 in it?"""
    shape = np.shape(values)
    return len(shape) <= rest or shape[-rest - 1] == 1


def setitem(x, index, values, op, how: How):
    """x with x[index] replaced by x[index] `op` values."""
    if isinstance(values, (list, tuple)):
        values = np.asarray(values)
    if not callable(op):
        if not is_value(values) and not dtypes.is_extended(getattr(values, "dtype", None)):
            raise TypeError(f".at[…].{op}: {values!r:.100} of type {type(values).__name__} is not an array or a number")
        _check_conversion(typeof(x), values, op)
    eager = type(x) is ArrayImpl and not callable(op)
    entries = _expanded(x.shape, index)
    found = _lone_mask(x.shape, entries)
    if found is not None:
        mask, axis = found
        if callable(op) and isinstance(mask, Tracer) or not callable(op) and _is_one_for_all(values, len(x.shape) - axis - mask.ndim):
            return (_written_masked if eager else _write_masked)(x, mask, values, axis, op)
        how = how._replace(unique_indices=True)
    structure, operands = _structure(x.shape, entries)
    return (_written if eager else _write)(x, values, operands, structure, op, how)


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
        warnings.warn(f".at[…].{op}: a value of dtype {have.dtype} is converted to the array's dtype {aval.dtype}, which does not hold all of its "
                      "values; say so with .astype. (In future this is an error in JAX.)", FutureWarning, stacklevel=4)


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

    Options of all methods. mode: None or 'drop' leave out elements out of bounds, 'clip' takes the nearest, 'promise_in_bounds' says that there
    are none; `get` reads the nearest by default, and fill_value (NaN, …) for 'fill'. indices_are_sorted, unique_indices: promises
    about index arrays. wrap_negative_indices: False if negative indices do not count from the end.
    """
    __slots__ = ("array", "index")

    def __init__(self, array, index):
        self.array, self.index = array, index

    def __repr__(self):
        return f"AtIndex({self.array!r}, {self.index!r})"

    def get(self, *, indices_are_sorted: bool = False, unique_indices: bool = False, mode=None, fill_value=None, out_sharding=None,
            wrap_negative_indices: bool = True):
        """x[index], with options."""
        x = self.array
        structure, operands = parse(x.shape, self.index)
        how = How(None if mode is None else GatherScatterMode.from_any(mode), None if fill_value is None else np.asarray(fill_value)[()],
                  indices_are_sorted, unique_indices, wrap_negative_indices)
        return (_read if type(x) is ArrayImpl else _read.__wrapped__)(x, operands, structure, how)


def _method(name: str, formula: str) -> Callable:
    def method(self, values, *, indices_are_sorted: bool = False, unique_indices: bool = False, mode=None, out_sharding=None,
               wrap_negative_indices: bool = True):
        how = How(None if mode is None else GatherScatterMode.from_any(mode), None, indices_are_sorted, unique_indices, wrap_negative_indices)
        return setitem(self.array, self.index, values, name, how)
    method.__name__, method.__qualname__ = name, f"AtIndex.{name}"
    method.__doc__ = f"x after {formula}; `values` broadcast to x[index]. Where an index repeats, so does the operation (set: one of them wins)."
    return method


def _apply(self, func: Callable, *, indices_are_sorted: bool = False, unique_indices: bool = False, mode=None, wrap_negative_indices: bool = True):
    """x after x[index] = func(x[index]), func being elementwise. Where an index repeats, it is applied repeatedly."""
    how = How(None if mode is None else GatherScatterMode.from_any(mode), None, indices_are_sorted, unique_indices, wrap_negative_indices)
    return setitem(self.array, self.index, None, func, how)


AtIndex.apply = _apply
for _name, _sign in (("set", "="), ("add", "+="), ("subtract", "-="), ("multiply", "*="), ("divide", "/="), ("power", "**="),
                     ("min", "= min of it and"), ("max", "= max of it and")):
    setattr(AtIndex, _name, _method(_name, f"x[index] {_sign} values"))
AtIndex.mul = AtIndex.multiply


# --- take and put ------------------------------------------------------------------------------------------------------------------

def _check_integers(name: str, indices, error=TypeError) -> None:
    if not dtypes.is_integer(typeof(indices).dtype):
        raise error(f"{name}: indices must have an integer type, got {typeof(indices)}")


@library(static_argnames=("axis", "how"))
def _take(a, indices, axis, how):
    ndim = typeof(a).ndim
    if not typeof(a).shape[axis] and typeof(indices).size:
        raise IndexError(f"take: cannot take elements from an axis of size 0 (axis {axis} of an array of shape {typeof(a).shape})")
    code = ARRAY if typeof(indices).ndim else INT
    return _read.__wrapped__(a, (indices,), (*[FULL] * axis, code, *[FULL] * (ndim - axis - 1)), how)


@library(static_argnames=("size",))
def _wrapped_around(indices, size):
    return ufuncs.remainder(signed_index(indices), size) if size else indices


def take(a, indices, axis: int | None = None, out=None, mode: str | None = None, unique_indices: bool = False,
         indices_are_sorted: bool = False, fill_value=None):
    """The elements of `a` at `indices` along `axis`: out[…, *i, …] = a[…, indices[*i], …].

    indices: integers of any shape, which takes the place of the axis. axis None: those of a.ravel().
    mode: 'fill' (default): out of bounds reads fill_value (NaN, the smallest or greatest integer, True); 'clip': the nearest, negative indices
    being out of bounds; 'wrap': modulo the size. In 'fill' mode negative indices count from the end.
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
    if mode == "wrap":
        indices = _wrapped_around(indices, typeof(a).shape[axis])
    how = How(GatherScatterMode.CLIP if mode in ("clip", "wrap") else GatherScatterMode.FILL_OR_DROP, _fill_value(fill_value),
              indices_are_sorted, unique_indices, mode != "clip")
    return _take(a, indices, axis, how)


@library
def _raveled(a):
    return lax.reshape(a, (typeof(a).size,))


def _fill_value(value):
    """A fill value as part of a static key; NaN is the default in floating arrays, and equals no key."""
    if value is None:
        return None
    value = np.asarray(value)[()]
    return None if value != value else value


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
            raise ValueError(f"{name}: the array ({have}) and the indices ({wanted}) must agree, or one have size 1, in every dimension but "
                             f"axis {axis}")
    return arr, indices, axis


def take_along_axis(arr, indices, axis: int | None = -1, mode: str | GatherScatterMode | None = None, fill_value=None, *,
                    wrap_negative_indices: bool | None = None):
    """The elements of `arr` at `indices` along `axis`, a set of indices for each position of the other dimensions:
    out[i, …, k, …, j] = arr[i, …, indices[i, …, k, …, j], …, j].

    indices: integers, of the rank of arr; sizes of the other dimensions are equal or 1. axis None: of arr.ravel().
    mode: 'fill' (default): out of bounds reads fill_value (see take); 'clip': the nearest; 'promise_in_bounds'. Negative indices count from the
    end, by default unless they are promised to be in bounds.
    Raises TypeError for indices that are no integers, ValueError where the shapes do not fit. (NumPy: take_along_axis)
    """
    arr, indices, axis = _along_axis("take_along_axis", arr, indices, axis)
    mode = GatherScatterMode.from_any(mode)
    wrap = mode is not GatherScatterMode.PROMISE_IN_BOUNDS if wrap_negative_indices is None else bool(wrap_negative_indices)
    return _taken_along(arr, indices, axis, How(mode, _fill_value(fill_value), wrap_negative_indices=wrap))


def _along_plan(shape, wanted, axis: int):
    """How a set of indices for each position is gathered by batching dimensions.

    Returns the dimensions of the array that are dropped (of size 1 where the indices are longer), those of the indices that are (of size 1 where
    the array is longer: these the windows span), and the gather's dimension numbers for what remains.
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
    vectors = lax.expand_dims(_index_array(lax.squeeze(indices, spanned), shape[axis], how), [len(wanted) - len(spanned)])
    sizes = [n if d in spanned else 1 for d, n in enumerate(shape) if d not in dropped]
    return lax.gather(lax.squeeze(arr, dropped), vectors, numbers, sizes, mode=how.mode, fill_value=how.fill_value)


def _not_in_place(name: str, inplace: bool) -> None:
    if inplace:
        raise ValueError(f"{name}: arrays are immutable; pass inplace=False to get the changed array as the result")


def put_along_axis(arr, indices, values, axis: int | None, inplace: bool = True, *, mode: str | None = None):
    """`arr` with the elements that take_along_axis would read replaced by `values`, which broadcast to them.

    inplace: must be False. mode: 'drop' (default) leaves out indices out of bounds, 'clip' takes the nearest. Raises as take_along_axis does.
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
    return _write(arr, values, grid, (ARRAY,) * aval.ndim, "set", how)


def put(a, ind, v, mode: str | None = None, *, inplace: bool = True):
    """`a` with a.ravel()[ind] replaced by `v`, repeated or cut to the number of indices.

    inplace: must be False. mode: 'clip' (default) takes the nearest element for indices out of bounds, 'wrap' counts modulo a.size.
    Negative indices count from the end. (NumPy: put)
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
    return lax.reshape(_write(lax.reshape(a, (typeof(a).size,)), v, (ind,), (ARRAY,), "set", How(GatherScatterMode.CLIP)), shape)
