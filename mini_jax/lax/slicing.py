"""Parts of arrays and arrays of parts: slice, dynamic_slice and their updates, pad, concatenate, split, rev."""
from __future__ import annotations

import operator
from typing import Sequence

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.linear import Accumulator, Zero, zero_like
from mini_jax.core.primitive import Primitive
from mini_jax.core.trace import typeof
from mini_jax.core.types import array_type
from mini_jax.lax import elementwise as ew
from mini_jax.lax.gather import (GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers, batched_at, gather_p, scatter_add_p,
                                 scatter_p, zeros_of)
from mini_jax.lax.iota import broadcasted_iota, iota, iota_p
from mini_jax.lax.selection import select_n
from mini_jax.lax.shapes import (add_any, broadcast, broadcast_in_dim, canonical_axis, canonical_shape, convert_element_type,
                                 linear_in_first, reshape, squeeze, sum_all)

__all__ = ["slice", "dynamic_slice", "dynamic_update_slice", "slice_in_dim", "index_in_dim", "dynamic_slice_in_dim",
           "dynamic_index_in_dim", "dynamic_update_slice_in_dim", "dynamic_update_index_in_dim", "pad", "concatenate", "split",
           "rev", "tile", "iota", "broadcasted_iota", "slice_p", "dynamic_slice_p", "dynamic_update_slice_p", "pad_p", "concatenate_p",
           "split_p", "rev_p", "iota_p"]


def _primitive(name: str, **more) -> Primitive:
    return Primitive(name, facts={"family": "indexing"}, **more)


def _ints(values) -> tuple[int, ...]:
    return tuple([operator.index(v) for v in values])


def _inserted(values: Sequence, at: int, value) -> tuple:
    return (*values[:at], value, *values[at:])


# --- slice ----------------------------------------------------------------------------------------------------------------

slice_p = _primitive("slice")


def slice(operand, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None):
    """operand[start:limit:stride] in each dimension, all of them static.

    Raises TypeError unless 0 <= start <= limit <= size and stride >= 1 everywhere. (StableHLO: slice)
    """
    start, limit = _ints(start_indices), _ints(limit_indices)
    strides = None if strides is None or all([s == 1 for s in strides]) else _ints(strides)
    if strides is None and limit == getattr(operand, "shape", None) and not any(start) and hasattr(operand, "aval"):
        return operand
    return slice_p.bind(operand, start_indices=start, limit_indices=limit, strides=strides)


def slice_in_dim(operand, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0):
    """operand[start:limit:stride] along `axis`; negative indices count from the end, None is an end."""
    shape = typeof(operand).shape
    axis = canonical_axis(axis, len(shape))
    size = shape[axis]
    start, limit = [default if i is None else operator.index(i) + (size if i < 0 else 0)
                    for i, default in ((start_index, 0), (limit_index, size))]
    at = lambda values, value: (*values[:axis], value, *values[axis + 1:])
    return slice(operand, at((0,) * len(shape), start), at(shape, limit), at((1,) * len(shape), operator.index(stride)))


def index_in_dim(operand, index: int, axis: int = 0, keepdims: bool = True):
    """operand[index] along `axis`, static; IndexError when it is out of bounds."""
    shape = typeof(operand).shape
    axis = canonical_axis(axis, len(shape))
    index = operator.index(index)
    if not -shape[axis] <= index < shape[axis]:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {shape[axis]}")
    index += shape[axis] if index < 0 else 0
    part = slice_in_dim(operand, index, index + 1, axis=axis)
    return part if keepdims else squeeze(part, (axis,))


def _slice_type(x, *, start_indices, limit_indices, strides):
    steps = (1,) * x.ndim if strides is None else strides
    if not len(start_indices) == len(limit_indices) == len(steps) == x.ndim:
        raise TypeError(f"lax.slice({x}): start {start_indices}, limit {limit_indices} and strides {strides} must have one entry for "
                        f"each of the {x.ndim} dimensions")
    for d, (start, limit, step, size) in enumerate(zip(start_indices, limit_indices, steps, x.shape)):
        if not 0 <= start <= limit <= size or step < 1:
            raise TypeError(f"lax.slice({x}): start {start}, limit {limit}, stride {step} in dimension {d} of size {size}; "
                            "0 <= start <= limit <= size and stride >= 1 must hold")
    return x.update(shape=tuple([-(-(limit - start) // step) for start, limit, step in zip(start_indices, limit_indices, steps)]))


def _slice_transpose(ct, x, *, start_indices, limit_indices, strides):
    if not strides and x.takes_part(typeof(ct).size):
        x.update(lambda total: dynamic_update_slice(total, add_any(slice(total, start_indices, limit_indices), ct), start_indices))
        return
    config = []
    for start, step, n, size in zip(start_indices, strides or (1,) * x.ndim, typeof(ct).shape, x.shape):
        covered = (n - 1) * step + 1 if n else 0
        config.append((start, size - start - covered, step - 1))
    x.add(pad(ct, np.zeros((), x.dtype), config))


def _slice_batch(axis, args, dims, *, start_indices, limit_indices, strides):
    (x,), (d,) = args, dims
    strides = strides and _inserted(strides, d, 1)
    return slice(x, _inserted(start_indices, d, 0), _inserted(limit_indices, d, axis.size), strides), d


slice_p.type_rule, slice_p.transpose, slice_p.batch = _slice_type, _slice_transpose, _slice_batch
linear_in_first(slice_p)


# --- positions that are computed --------------------------------------------------------------------------------------------

def signed_index(index):
    """Indices of any integer dtype as int32 or int64, with the same meaning: the ones too large for it stay large."""
    dtype = typeof(index).dtype
    if dtype == dtypes.int32 or dtype == dtypes.int64:
        return index
    if not dtypes.is_integer(dtype):
        raise TypeError(f"an index must have an integer dtype, got {typeof(index)}")
    if dtypes.is_unsigned(dtype) and dtypes.itemsize_bits(dtype) >= 32:
        wide = dtypes.default_int()
        index = ew.min(index, np.asarray(min(int(dtypes.iinfo(wide).max), int(dtypes.iinfo(dtype).max)), dtype))
        return convert_element_type(index, wide)
    return convert_element_type(index, dtypes.int32)


def wrap_index(index, size: int):
    """Indices with those below zero counted from the end: i + size where i < 0."""
    if dtypes.is_unsigned(typeof(index).dtype):
        return signed_index(index)
    index = signed_index(index)
    dtype = typeof(index).dtype
    zero, shift = np.zeros((), dtype), np.asarray(min(size, int(dtypes.iinfo(dtype).max)), dtype)
    return select_n(ew.lt(index, zero), index, ew.add(index, shift))


def _is_static(index) -> bool:
    return isinstance(index, (int, np.integer)) and not isinstance(index, (bool, np.bool_))


def static_index(index: int):
    """A known index as a value of the smallest index dtype that holds it; OverflowError if none does."""
    index = int(index)
    if -2**31 <= index < 2**31:
        return np.int32(index)
    dtypes.check_scalar_range(index)
    return np.int64(index)


def _starts(where: str, start_indices, shape: tuple[int, ...], allow_negative) -> list:
    """The start indices as a list of scalars, counted from the front."""
    if hasattr(start_indices, "ndim"):
        if start_indices.ndim != 1:
            raise TypeError(f"{where}: start_indices must be one-dimensional, or a sequence of scalars, got {typeof(start_indices)}")
        if isinstance(start_indices, np.ndarray):
            start_indices = list(start_indices)
        else:
            start_indices = [reshape(slice(start_indices, (i,), (i + 1,)), ()) for i in range(start_indices.shape[0])]
    start_indices = tuple(start_indices)
    if len(start_indices) != len(shape):
        raise ValueError(f"{where}: {len(start_indices)} start indices for an operand of {len(shape)} dimensions")
    allowed = (allow_negative,) * len(shape) if isinstance(allow_negative, (bool, np.bool_)) else tuple(allow_negative)
    if len(allowed) != len(shape):
        raise ValueError(f"{where}: allow_negative_indices has {len(allowed)} entries for {len(shape)} dimensions")
    return [_start(where, start, size, negative) for start, size, negative in zip(start_indices, shape, allowed)]


def _start(where, start, size, negative):
    if _is_static(start):
        if start < 0 and not negative:
            raise ValueError(f"{where}: start index {start} is negative, but allow_negative_indices=False")
        return static_index(int(start) + (size if start < 0 else 0))
    aval = typeof(start)
    if aval.shape or not dtypes.is_integer(aval.dtype):
        raise TypeError(f"{where}: start indices must be integer scalars, got {aval}")
    return wrap_index(start, size) if negative else signed_index(start)


def _check_starts(where, rank, starts):
    if len(starts) != rank:
        raise TypeError(f"{where}: {len(starts)} start indices for {rank} dimensions")
    for start in starts:
        if start.shape or not dtypes.is_integer(start.dtype):
            raise TypeError(f"{where}: start indices must be integer scalars, got {start}")


def _index_vectors(axis, starts, dims, wanted: Sequence[int]):
    """Scalar start indices, of which some are batched, as an array (batch, len(wanted)) of index vectors."""
    chosen = [(signed_index(starts[k]), dims[k]) for k in wanted]
    dtype = dtypes.int64 if any([typeof(s).dtype == dtypes.int64 for s, _ in chosen]) else dtypes.int32
    columns = [broadcast_in_dim(convert_element_type(s, dtype), (axis.size, 1), () if d is None else (0,)) for s, d in chosen]
    return concatenate(columns, 1)


# --- dynamic_slice and dynamic_update_slice -----------------------------------------------------------------------------------

dynamic_slice_p = _primitive("dynamic_slice")
dynamic_update_slice_p = _primitive("dynamic_update_slice")


def dynamic_slice(operand, start_indices, slice_sizes, *, allow_negative_indices: bool | Sequence[bool] = True):
    """The part of shape `slice_sizes` that starts at `start_indices`, which may be computed; moved inside if it would stick out.

    start_indices: one integer scalar for each dimension, or a one-dimensional array of them; negative ones count from the end,
    unless allow_negative_indices is False (in all, or in that dimension).
    Raises TypeError where a size is greater than the dimension's, ValueError for a wrong number of indices.
    (StableHLO: dynamic_slice)
    """
    aval = typeof(operand)
    starts = _starts("lax.dynamic_slice", start_indices, aval.shape, allow_negative_indices)
    return dynamic_slice_p.bind(operand, *starts, slice_sizes=_ints(slice_sizes))


def dynamic_update_slice(operand, update, start_indices, *, allow_negative_indices: bool | Sequence[bool] = True):
    """`operand` with `update` written at `start_indices`; see dynamic_slice for these.

    update: an array of the operand's dtype and rank, nowhere larger. Raises TypeError where it is not.
    (StableHLO: dynamic_update_slice)
    """
    aval = typeof(operand)
    starts = _starts("lax.dynamic_update_slice", start_indices, aval.shape, allow_negative_indices)
    if type(update) in dtypes.python_scalar_types:
        update = np.asarray(update, aval.dtype)
    return dynamic_update_slice_p.bind(operand, update, *starts)


def _along(axis: int, ndim: int, index):
    return _inserted((0,) * (ndim - 1), axis, index)


def dynamic_slice_in_dim(operand, start_index, slice_size: int, axis: int = 0, *, allow_negative_indices: bool = True):
    """dynamic_slice along one axis, the whole of the others."""
    shape = typeof(operand).shape
    axis = canonical_axis(axis, len(shape))
    sizes = (*shape[:axis], operator.index(slice_size), *shape[axis + 1:])
    return dynamic_slice(operand, _along(axis, len(shape), start_index), sizes, allow_negative_indices=allow_negative_indices)


def dynamic_index_in_dim(operand, index, axis: int = 0, keepdims: bool = True, *, allow_negative_indices: bool = True):
    """operand[index] along `axis`, for an index that may be computed; moved inside where it is out of bounds."""
    part = dynamic_slice_in_dim(operand, index, 1, axis, allow_negative_indices=allow_negative_indices)
    return part if keepdims else squeeze(part, (axis,))


def dynamic_update_slice_in_dim(operand, update, start_index, axis: int, *, allow_negative_indices: bool = True):
    """dynamic_update_slice along one axis, at the start of the others."""
    ndim = typeof(operand).ndim
    starts = _along(canonical_axis(axis, ndim), ndim, start_index)
    return dynamic_update_slice(operand, update, starts, allow_negative_indices=allow_negative_indices)


def dynamic_update_index_in_dim(operand, update, index, axis: int, *, allow_negative_indices: bool = True):
    """`operand` with operand[index] along `axis` replaced; `update` has size 1 there, or lacks that dimension; of another size it
    replaces as many, from index on."""
    aval, new = typeof(operand), typeof(update)
    axis = canonical_axis(axis, aval.ndim)
    if new.ndim == aval.ndim - 1:
        update = reshape(update, _inserted(new.shape, axis, 1))
    elif new.ndim != aval.ndim:
        raise TypeError(f"lax.dynamic_update_index_in_dim({aval}, {new}, axis={axis}): the update must have size 1 along the axis, or "
                        "lack it")
    return dynamic_update_slice_in_dim(operand, update, index, axis, allow_negative_indices=allow_negative_indices)


def _dynamic_slice_type(x, *starts, slice_sizes):
    _check_starts(f"lax.dynamic_slice({x})", x.ndim, starts)
    if len(slice_sizes) != x.ndim or not all([0 <= n <= size for n, size in zip(slice_sizes, x.shape)]):
        raise TypeError(f"lax.dynamic_slice({x}): slice_sizes {slice_sizes} must have, for each dimension, a size from 0 to the "
                        "operand's")
    return x.update(shape=slice_sizes)


def _dynamic_slice_transpose(ct, x, *starts, slice_sizes):
    if x.takes_part(typeof(ct).size):
        x.update(lambda total: dynamic_update_slice_p.bind(
            total, add_any(dynamic_slice_p.bind(total, *starts, slice_sizes=slice_sizes), ct), *starts))
    elif x.wanted:
        (ct, *starts), has_axis = x.contracted((ct, *starts), (None,) * (1 + x.ndim))
        x.add(_windows_added(x, ct, starts) if has_axis else dynamic_update_slice_p.bind(zeros_of(x), ct, *starts))


def _windows_added(x, windows, starts: Sequence):
    """Zeros like x, with windows, one for each entry of the starts, added where they start."""
    vectors = concatenate([reshape(convert_element_type(start, np.int32), (typeof(windows).shape[0], 1)) for start in starts], 1)
    every = tuple(range(x.ndim))
    numbers = ScatterDimensionNumbers(tuple([d + 1 for d in every]), (), every)
    return scatter_add_p.bind(zeros_of(x), vectors, windows, dimension_numbers=numbers, indices_are_sorted=False, unique_indices=False,
                              mode=GatherScatterMode.CLIP)


def _dynamic_slice_batch(axis, args, dims, *, slice_sizes):
    """Of an operand alone: the same, whole in the new dimension. At many starts: a gather of windows moved inside."""
    (x, *starts), (d, *start_dims) = args, dims
    if all([s is None for s in start_dims]):
        return dynamic_slice_p.bind(x, *_inserted(starts, d, np.int32(0)), slice_sizes=_inserted(slice_sizes, d, axis.size)), d
    shape = typeof(x).shape if d is None else (*typeof(x).shape[:d], *typeof(x).shape[d + 1:])
    partial = tuple([k for k, (n, size) in enumerate(zip(slice_sizes, shape)) if n != size])
    if not partial:
        return x, d
    vectors = _index_vectors(axis, starts, start_dims, partial)
    numbers = GatherDimensionNumbers(tuple(range(len(shape))), (), partial)
    return gather_p.batch(axis, (x, vectors), (d, 0), dimension_numbers=numbers, slice_sizes=slice_sizes, indices_are_sorted=True,
                          unique_indices=True, mode=GatherScatterMode.CLIP, fill_value=None)


dynamic_slice_p.type_rule, dynamic_slice_p.transpose = _dynamic_slice_type, _dynamic_slice_transpose
dynamic_slice_p.batch = _dynamic_slice_batch
linear_in_first(dynamic_slice_p)


def _update_type(x, update, *starts):
    where = f"lax.dynamic_update_slice({x}, {update})"
    _check_starts(where, x.ndim, starts)
    if update.dtype != x.dtype:
        raise TypeError(f"{where}: operand and update must have one dtype, got {x.dtype} and {update.dtype}")
    if update.ndim != x.ndim or not all([n <= size for n, size in zip(update.shape, x.shape)]):
        raise TypeError(f"{where}: the update must have the operand's rank and be nowhere larger")
    return x if x.weak_type <= update.weak_type else x.strong


def _update_jvp(primals, tangents):
    x, update, *starts = primals
    y = dynamic_update_slice_p.bind(*primals)
    t, u = tangents[:2]
    if type(t) is Zero and type(u) is Zero:
        return y, zero_like(y)
    return y, dynamic_update_slice_p.bind(zeros_of(t) if type(t) is Zero else t, zeros_of(u) if type(u) is Zero else u, *starts)


def _update_transpose(ct, x, update, *starts):
    if isinstance(x, Accumulator) and x.wanted:
        x.add(dynamic_update_slice_p.bind(ct, zeros_of(update), *starts))
    if isinstance(update, Accumulator) and update.wanted:
        update.add(dynamic_slice_p.bind(ct, *starts, slice_sizes=update.shape))


def _update_batch(axis, args, dims):
    (x, update, *starts), (d, u, *start_dims) = args, dims
    if all([s is None for s in start_dims]):
        place = u if d is None else d
        x, update = batched_at(axis, x, d, place), batched_at(axis, update, u, place)
        return dynamic_update_slice_p.bind(x, update, *_inserted(starts, place, np.int32(0))), place
    shape, new = [t.shape if k is None else (*t.shape[:k], *t.shape[k + 1:]) for t, k in ((typeof(x), d), (typeof(update), u))]
    partial = tuple([k for k, (n, size) in enumerate(zip(new, shape)) if n != size])
    if not partial:
        return batched_at(axis, update, u, 0), 0
    vectors = _index_vectors(axis, starts, start_dims, partial)
    numbers = ScatterDimensionNumbers(tuple(range(len(shape))), (), partial)
    return scatter_p.batch(axis, (x, vectors, update), (d, 0, u), dimension_numbers=numbers, indices_are_sorted=True,
                           unique_indices=True, mode=GatherScatterMode.CLIP)


dynamic_update_slice_p.type_rule, dynamic_update_slice_p.jvp = _update_type, _update_jvp
dynamic_update_slice_p.transpose, dynamic_update_slice_p.batch = _update_transpose, _update_batch


# --- pad ------------------------------------------------------------------------------------------------------------------

pad_p = _primitive("pad")


def pad(operand, padding_value, padding_config: Sequence[tuple[int, int, int]]):
    """The operand with `padding_value` around and between its entries.

    padding_config: (low, high, interior) for each dimension: `interior` values go between neighbours, then `low` and `high` in
    front and behind; negative low and high take away instead. padding_value: a scalar of the operand's dtype.
    Raises ValueError where a size would be negative, TypeError for differing dtypes. (StableHLO: pad)
    """
    config = tuple([_ints(entry) for entry in padding_config])
    if type(padding_value) in dtypes.python_scalar_types:
        padding_value = np.asarray(padding_value, typeof(operand).dtype)
    return pad_p.bind(operand, padding_value, padding_config=config)


def _pad_type(x, value, *, padding_config):
    where = f"lax.pad({x}, {value}, {padding_config})"
    if value.dtype != x.dtype:
        raise TypeError(f"{where}: operand and padding_value must have one dtype")
    if value.shape:
        raise ValueError(f"{where}: padding_value must be a scalar")
    if len(padding_config) != x.ndim or any([len(entry) != 3 for entry in padding_config]):
        raise ValueError(f"{where}: padding_config must have an entry (low, high, interior) for each of the {x.ndim} dimensions")
    if any([interior < 0 for _, _, interior in padding_config]):
        raise ValueError(f"{where}: interior padding can't be negative")
    shape = tuple([low + high + n + max(n - 1, 0) * interior for n, (low, high, interior) in zip(x.shape, padding_config)])
    if any([n < 0 for n in shape]):
        raise ValueError(f"{where}: the result would have shape {shape}")
    return x.update(shape=shape)


def _pad_jvp(primals, tangents, *, padding_config):
    y = pad_p.bind(*primals, padding_config=padding_config)
    t, v = tangents
    if type(t) is Zero and type(v) is Zero:
        return y, zero_like(y)
    t, v = [zeros_of(tangent) if type(tangent) is Zero else tangent for tangent in tangents]
    return y, pad_p.bind(t, v, padding_config=padding_config)


def _unpad(ct, padding_config):
    """The entries of a padded array that were the operand's; 0 for those that negative padding took away."""
    config = [(-low, -high, 0) for low, high, _ in padding_config]
    whole = pad(ct, np.zeros((), ct.dtype), config) if any([low or high for low, high, _ in config]) else ct
    shape = typeof(whole).shape
    return slice(whole, (0,) * len(shape), shape, [interior + 1 for _, _, interior in padding_config])


def _pad_transpose(ct, x, value, *, padding_config):
    """Of the operand: the entries it had. Of the padding value: the sum of all others."""
    if isinstance(x, Accumulator) and x.wanted:
        x.add(_unpad(ct, padding_config))
    if isinstance(value, Accumulator) and value.wanted:
        padding = pad(broadcast(np.zeros((), dtypes.bool_), x.shape), np.ones((), dtypes.bool_), padding_config)
        value.add(sum_all(select_n(padding, np.zeros((), ct.dtype), ct)))


def _pad_batch(axis, args, dims, *, padding_config):
    (x, value), (d, v) = args, dims
    if v is None:
        return pad(x, value, _inserted(padding_config, d, (0, 0, 0))), d
    x = batched_at(axis, x, d, 0)
    shape, config = typeof(x).shape, ((0, 0, 0), *padding_config)
    padding = pad(broadcast(np.zeros((), dtypes.bool_), shape), np.ones((), dtypes.bool_), config)
    padded = pad(x, np.zeros((), x.dtype), config)
    return select_n(padding, padded, broadcast_in_dim(value, typeof(padded).shape, (0,))), 0


pad_p.type_rule, pad_p.jvp, pad_p.transpose, pad_p.batch = _pad_type, _pad_jvp, _pad_transpose, _pad_batch


# --- concatenate and split ---------------------------------------------------------------------------------------------------

concatenate_p = _primitive("concatenate")
split_p = _primitive("split", multiple_results=True)


def concatenate(operands, dimension: int):
    """The operands one after the other along `dimension`; they agree in dtype and in all other dimensions, else TypeError.

    operands: a sequence of arrays, or an array, whose rows they are then.
    """
    operands = list(operands)
    if not operands:
        raise ValueError("lax.concatenate needs at least one array")
    dimension = operator.index(dimension)
    if len(operands) == 1 and hasattr(operands[0], "aval") and -operands[0].ndim <= dimension < operands[0].ndim:
        return operands[0]
    ndim = typeof(operands[0]).ndim
    return concatenate_p.bind(*operands, dimension=dimension + ndim if -ndim <= dimension < 0 else dimension)


def split(operand, sizes: Sequence[int], axis: int = 0) -> list:
    """The operand cut along `axis` into parts of these sizes, which add up to that of the axis (else ValueError)."""
    return split_p.bind(operand, sizes=_ints(sizes), axis=canonical_axis(axis, typeof(operand).ndim))


def _concatenate_type(*types, dimension):
    where = f"lax.concatenate({', '.join(map(str, types))}, dimension={dimension})"
    first = types[0]
    if not 0 <= dimension < first.ndim:
        raise TypeError(f"{where}: {dimension} is not a dimension of the operands")
    for t in types:
        if t.dtype != first.dtype:
            raise TypeError(f"{where}: operands must have one dtype (mini_jax.numpy.concatenate promotes)")
        if t.ndim != first.ndim or any([a != b for d, (a, b) in enumerate(zip(t.shape, first.shape)) if d != dimension]):
            raise TypeError(f"{where}: operands must agree in rank and in every dimension but {dimension}")
    shape = (*first.shape[:dimension], sum([t.shape[dimension] for t in types]), *first.shape[dimension + 1:])
    return array_type(shape, first.dtype, all([t.weak_type for t in types]))


def _concatenate_jvp(primals, tangents, *, dimension):
    y = concatenate_p.bind(*primals, dimension=dimension)
    if all([type(t) is Zero for t in tangents]):
        return y, zero_like(y)
    return y, concatenate_p.bind(*[zeros_of(t) if type(t) is Zero else t for t in tangents], dimension=dimension)


def _concatenate_transpose(ct, *operands, dimension):
    start = 0
    for x in operands:
        n = x.shape[dimension]
        if isinstance(x, Accumulator) and x.wanted:
            x.add(slice_in_dim(ct, start, start + n, axis=dimension))
        start += n


def _concatenate_batch(axis, args, dims, *, dimension):
    place = next(d for d in dims if d is not None)
    operands = [batched_at(axis, x, d, place) for x, d in zip(args, dims)]
    return concatenate_p.bind(*operands, dimension=dimension + (place <= dimension)), place


concatenate_p.type_rule, concatenate_p.jvp = _concatenate_type, _concatenate_jvp
concatenate_p.transpose, concatenate_p.batch = _concatenate_transpose, _concatenate_batch


def _split_type(x, *, sizes, axis):
    if any([n < 0 for n in sizes]) or sum(sizes) != x.shape[axis]:
        raise ValueError(f"lax.split({x}, {sizes}, axis={axis}): sizes must not be negative and must add up to {x.shape[axis]}")
    return [x.update(shape=(*x.shape[:axis], n, *x.shape[axis + 1:])) for n in sizes]


def _split_jvp(primals, tangents, **params):
    parts = split_p.bind(*primals, **params)
    t = tangents[0]
    return parts, [zero_like(y) for y in parts] if type(t) is Zero else split_p.bind(t, **params)


def _split_transpose(cts, x, *, sizes, axis):
    if all([type(ct) is Zero for ct in cts]):
        return
    x.add(concatenate([zeros_of(ct) if type(ct) is Zero else ct for ct in cts], axis))


def _split_batch(batch_axis, args, dims, *, sizes, axis):
    (x,), (d,) = args, dims
    return split_p.bind(x, sizes=sizes, axis=axis + (d <= axis)), [d] * len(sizes)


split_p.type_rule, split_p.jvp, split_p.transpose, split_p.batch = _split_type, _split_jvp, _split_transpose, _split_batch


# --- rev, tile ------------------------------------------------------------------------------------------------------------

rev_p = _primitive("rev")


def rev(operand, dimensions: Sequence[int]):
    """The operand in reverse order along `dimensions` (distinct, non-negative; else TypeError). (StableHLO: reverse)"""
    dimensions = _ints(dimensions)
    return operand if not dimensions and hasattr(operand, "aval") else rev_p.bind(operand, dimensions=dimensions)


def tile(operand, reps: Sequence[int]):
    """The operand repeated reps[d] times along each dimension d, as numpy.tile does."""
    shape, reps = typeof(operand).shape, canonical_shape(reps)
    if len(reps) != len(shape):
        raise TypeError(f"lax.tile: {len(reps)} repetitions for the {len(shape)} dimensions of {typeof(operand)}")
    repeated = broadcast_in_dim(operand, [n for pair in zip(reps, shape) for n in pair], range(1, 2 * len(shape), 2))
    return reshape(repeated, [r * n for r, n in zip(reps, shape)])


def _rev_type(x, *, dimensions):
    if len(set(dimensions)) != len(dimensions) or not all([0 <= d < x.ndim for d in dimensions]):
        raise TypeError(f"lax.rev({x}): {dimensions} are not distinct dimensions of the operand, from 0 to {x.ndim - 1}")
    return x


def _rev_batch(axis, args, dims, *, dimensions):
    (x,), (d,) = args, dims
    return rev(x, [k + (k >= d) for k in dimensions]), d


rev_p.type_rule, rev_p.batch = _rev_type, _rev_batch
rev_p.transpose = lambda ct, x, *, dimensions: x.add(rev(ct, dimensions))
linear_in_first(rev_p)
