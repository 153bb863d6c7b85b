"""An index, as in x[index], taken apart into what is static and what is computed, and laid out by dimensions.

The structure, static and hashable, has an entry for each dimension of the array: FULL for all of it, (start, n, step) for n
elements, n for n elements in a row somewhere in the middle (operand: where they start), INT (operand: an integer), ARRAY
(operand: integers); between these None for a new axis, and TRUE or FALSE for a boolean without dimensions. So x[0], x[1], x[2]
are one program at three operands, except inside of a larger program that is being traced, where known operands stay known.
"""
from __future__ import annotations

import functools
import operator
from typing import Any, NamedTuple, Sequence

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes, errors
from mini_jax.core.config import debug_index_bounds
from mini_jax.core.source import capture, describe
from mini_jax.core.state import state
from mini_jax.core.trace import Tracer, is_value, typeof
from mini_jax.lax.gather import GatherScatterMode
from mini_jax.lax.slicing import signed_index, wrap_index
from mini_jax.numpy.promotion import broadcast_shapes, converted

FULL, INT, ARRAY, TRUE, FALSE = ":", "int", "array", "true", "false"


class How(NamedTuple):
    """The options of an indexing operation. mode None: reads move inside, writes are dropped."""
    mode: GatherScatterMode | None = None
    fill_value: Any = None
    indices_are_sorted: bool = False
    unique_indices: bool = False
    wrap_negative_indices: bool = True


def options(mode, fill_value, indices_are_sorted, unique_indices, wrap_negative_indices) -> How:
    """`How` from what users pass; ValueError for an unknown mode."""
    return How(None if mode is None else GatherScatterMode.from_any(mode), fill_key(fill_value), bool(indices_are_sorted),
               bool(unique_indices), bool(wrap_negative_indices))


def fill_key(value):
    """A fill value as part of a static key; NaN is the default in floating arrays, and equals no key."""
    if value is None:
        return None
    value = np.asarray(value)[()]
    return None if value != value else value


# --- taking it apart -----------------------------------------------------------------------------------------------------

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
        raise IndexError("only integers, slices (`:`), ellipsis (`...`), newaxis (`None`) and integer or boolean arrays are "
                         f"valid indices, got {i!r:.100} of type {type(i).__name__}")
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


def is_boolean(i) -> bool:
    return hasattr(i, "dtype") and i.dtype == dtypes.bool_


def _consumed(i) -> int:
    """How many dimensions of the array an entry indexes."""
    return 0 if i is None or i is Ellipsis else i.ndim if is_boolean(i) else 1


def expanded(shape: tuple[int, ...], index) -> tuple:
    """The entries of an index, with a full slice for each dimension that an ellipsis, or nothing, stands for.

    Raises IndexError for too many indices, TypeError for what is no index.
    """
    entries = _entries(index)
    missing = len(shape) - sum([_consumed(i) for i in entries])
    if missing < 0:
        raise IndexError(f"too many indices: the array has {len(shape)} dimensions (shape {shape}), but "
                         f"{len(shape) - missing} were indexed")
    ellipses = [k for k, i in enumerate(entries) if i is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    k = ellipses[0] if ellipses else len(entries)
    return (*entries[:k], *[slice(None)] * missing, *entries[k + 1:])


def slice_range(s: slice, size: int) -> tuple[int, int, int]:
    """(start, number of elements, step) of a slice of a dimension."""
    try:
        start, stop, step = s.indices(size)
    except errors.TracerIntegerConversionError:
        raise IndexError(f"the ends of a slice must be known, since they decide the shape of the result; got {s}. For a part of "
                         "fixed size at a computed place use lax.dynamic_slice_in_dim(x, start, size)") from None
    return start, len(range(start, stop, step)), step


def in_the_middle(start: int, n: int, step: int, size: int) -> bool:
    """Is a slice one of a kind that moves, x[i:i + n], for which a program should not be compiled at every i?"""
    return step == 1 and start > 0 and 0 < n < size - start


def for_dispatch(operand):
    """An operand for a compiled program, whose dispatcher takes NumPy's integers faster than Python's."""
    return np.int32(operand) if type(operand) is int and -2**31 <= operand < 2**31 else operand


def parse(shape: tuple[int, ...], entries) -> tuple[tuple, list]:
    """The structure and the operands of an index of an array of this shape, from what `expanded` returns.

    Raises IndexError for an integer that indexes an empty dimension and for a mask of the wrong shape;
    NonConcreteBooleanIndexError for a mask that is traced.
    """
    structure: list = []
    operands: list = []
    d = 0
    for i in entries:
        if type(i) is int:
            structure.append(INT)
            operands.append(i)
        elif type(i) is slice:
            start, n, step = slice_range(i, shape[d])
            if n == shape[d] and step == 1:
                structure.append(FULL)
            elif in_the_middle(start, n, step, shape[d]):
                structure.append(n)
                operands.append(start)
            else:
                structure.append((start, n, step) if n > 1 else (start if n else 0, n, 1))
        elif i is None:
            structure.append(None)
        elif is_boolean(i):
            if i.shape != shape[d:d + i.ndim]:
                raise IndexError(f"a boolean index of shape {i.shape} does not match the dimensions that it indexes: from "
                                 f"dimension {d} on the array has shape {shape[d:d + i.ndim]}")
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


def has_operand(code) -> bool:
    """Does an entry of a structure take an operand?"""
    return code is INT or code is ARRAY or type(code) is int


def with_scalar_booleans(x, structure, operands):
    """A boolean without dimensions is a new axis, and an array of the one index 0, or of none, into it."""
    if TRUE not in structure and FALSE not in structure:
        return x, structure, operands
    given, out, axes, d, result = iter(operands), [], [], 0, []
    for code in structure:
        if code is TRUE or code is FALSE:
            axes.append(d)
            out.append(lax.broadcast_in_dim(np.int32(0), (int(code is TRUE),), ()))
            code = ARRAY
        elif has_operand(code):
            out.append(next(given))
        d += code is not None
        result.append(code)
    return lax.expand_dims(x, axes), tuple(result), out


# --- laying it out -------------------------------------------------------------------------------------------------------

class Plan:
    """An index of an array of a known shape, dimension by dimension.

    start, count, step: of each dimension that is sliced or indexed by an integer (count 1, step 1, and start the integer, counted
    from the front); None for arrays.
    ints: the dimensions indexed by integers; arrays: the index arrays, by dimension, which broadcast together to `batch`.
    layout: the dimensions of the result in order: a dimension of the array, None for a new axis, "batch" for each of the arrays'.
    """

    def __init__(self, shape: tuple[int, ...], structure: tuple, operands: Sequence, how: How):
        self.shape = shape
        self.start, self.count, self.step, self.ints, self.arrays = [], [], [], [], {}
        given = iter([int(i) if isinstance(i, np.integer) else i for i in operands])
        layout, advanced = [], []
        for place, code in enumerate(structure):
            if code is None:
                layout.append(None)
                continue
            d = len(self.start)
            start, count, step = 0, shape[d], 1
            if code is INT:
                start, count = placed(next(given), shape[d], how), 1
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
        self.batch: tuple[int, ...] = broadcast_shapes(*[a.shape for a in self.arrays.values()])
        if self.arrays:
            adjacent = advanced[-1][0] - advanced[0][0] == len(advanced) - 1       # NumPy: then in their place, else in front
            at = advanced[0][1] if adjacent else 0
            layout[at:at] = ["batch"] * len(self.batch)
        self.layout = layout

    def result_shape(self) -> list[int]:
        """The shape of x[index] but for new axes."""
        batch = iter(self.batch)
        return [next(batch) if d == "batch" else self.count[d] for d in self.layout if d is not None]

    def new_axes(self) -> list[int]:
        """Where the result has new axes."""
        return [k for k, d in enumerate(self.layout) if d is None]

    def windows(self) -> list[int]:
        """The dimensions of the array that the result has, in order."""
        return [d for d in self.layout if d is not None and d != "batch"]

    def offset_dims(self) -> tuple[int, ...]:
        """Where the result, but for new axes, has these."""
        return tuple([k for k, d in enumerate([d for d in self.layout if d is not None]) if d != "batch"])


def window_of(plan: Plan) -> tuple[list, list[int]]:
    """Where the window that covers all slices and integers starts, and its size, in each dimension; integers are moved inside."""
    starts, sizes = [], []
    for d, (start, count, step) in enumerate(zip(plan.start, plan.count, plan.step)):
        if d in plan.ints:
            start = min(max(start, 0), plan.shape[d] - 1) if type(start) is int else start
        elif step is None:
            start, count = 0, plan.shape[d]
        elif step != 1:
            start, count = (start if step > 0 else start + (count - 1) * step), (count - 1) * abs(step) + 1
        starts.append(start)
        sizes.append(count)
    return starts, sizes


def check_inside(i, size: int, wraps: bool = True) -> None:
    """With the option debug_index_bounds: raise, where the program runs, for indices outside of a dimension of this size."""
    if debug_index_bounds.value:
        from mini_jax import debug                       # a library of its own, wanted by who debugs
        report = functools.partial(_report_outside, size, wraps, describe(state.source or capture(2)))
        report(i) if isinstance(i, (int, np.ndarray, np.generic)) else debug.callback(report, i)


def _report_outside(size: int, wraps: bool, line: str, indices) -> None:
    indices = np.asarray(indices)
    outside = indices[(indices < (-size if wraps else 0)) | (indices >= size)]
    if outside.size:
        raise IndexError(f"index {outside.flat[0]} is out of bounds for an axis of size {size}, at {line} (debug_index_bounds is on)")


def placed(i, size: int, how: How):
    """An integer index, or integer indices, counted from the front if they are below zero."""
    if how.mode is None or how.mode is GatherScatterMode.PROMISE_IN_BOUNDS:
        check_inside(i, size, how.wrap_negative_indices)
    if type(i) is int:
        return i + size if i < 0 and how.wrap_negative_indices else i
    return wrap_index(i, size) if how.wrap_negative_indices else signed_index(i)


def lies_inside(plan: Plan):
    """Do all integers lie inside their dimensions? True, False or a traced boolean."""
    out = True
    for d in plan.ints:
        i, size = plan.start[d], plan.shape[d]
        if type(i) is int:
            if not 0 <= i < size:
                return False
            continue
        integer = typeof(i).dtype.type
        flag = lax.bitwise_and(lax.ge(i, integer(0)), lax.lt(i, integer(size)))
        out = flag if out is True else lax.bitwise_and(out, flag)
    return out


def read_window(x, starts, sizes):
    """The part of an array at known or computed places."""
    if all([type(s) is int for s in starts]):
        return lax.slice(x, starts, [s + n for s, n in zip(starts, sizes)])
    return lax.dynamic_slice(x, starts, sizes, allow_negative_indices=False)


def index_array(i, size: int, how: How):
    """Integer indices into a dimension, ready to gather with: counted from the front, int32 or int64."""
    if not isinstance(i, np.ndarray):
        return placed(i, size, how)
    if how.mode is None or how.mode is GatherScatterMode.PROMISE_IN_BOUNDS:
        check_inside(i, size, how.wrap_negative_indices)
    limits = np.iinfo(dtypes.default_int())
    i = i.astype(np.int64) if i.dtype != np.uint64 else np.minimum(i, limits.max).astype(np.int64)
    i = np.clip(np.where(i < 0, i + size, i) if how.wrap_negative_indices else i, limits.min, limits.max)
    return i.astype(np.int32) if not i.size or np.abs(i).max() < 2**31 else i.astype(limits.dtype)


def index_vectors(columns: Sequence, batch: tuple[int, ...]):
    """Index vectors, of shape (*batch, k), from k arrays or scalars of indices that broadcast to `batch`."""
    if all([isinstance(c, (np.ndarray, np.generic)) for c in columns]):
        return np.stack([np.broadcast_to(c, batch) for c in columns], -1)
    dtype = dtypes.int64 if any([typeof(c).dtype == dtypes.int64 for c in columns]) else dtypes.int32
    rank = len(batch)
    columns = [lax.broadcast_in_dim(converted(c, dtype), (*batch, 1), range(rank - typeof(c).ndim, rank)) for c in columns]
    return lax.concatenate(columns, rank)
