"""Gather reads windows of an array at positions that are computed; the scatters write them: each other's transposes.

Both share one description of where things are. An index vector, the last dimension of the indices, holds the start of a
window in the operand's dimensions `start_index_map`; a window has size slice_sizes[d] in dimension d. Windows lose
their `collapsed_slice_dims` (of size 1) and become the dimensions `offset_dims` of the result, whose other dimensions
are the indices' remaining ones. `operand_batching_dims` walk along with `start_indices_batching_dims`: there the
operand is indexed by the position in the indices itself. (StableHLO: gather, scatter)
"""
from __future__ import annotations

import enum
from typing import Callable, NamedTuple

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.linear import Accumulator, Zero, zero_like
from mini_jax.core.primitive import Primitive
from mini_jax.core.staging import stage
from mini_jax.core.trace import typeof
from mini_jax.core.types import array_type
from mini_jax.lax import elementwise as ew
from mini_jax.lax.iota import broadcasted_iota
from mini_jax.lax.rows import dtype_list
from mini_jax.lax.selection import select_n
from mini_jax.lax.shapes import (add_any, broadcast, broadcast_in_dim, canonical_shape, convert_element_type, moveaxis,
                                 reshape)

__all__ = ["GatherDimensionNumbers", "ScatterDimensionNumbers", "GatherScatterMode", "gather", "scatter", "scatter_add",
           "scatter_sub", "scatter_mul", "scatter_min", "scatter_max", "scatter_apply", "gather_p", "scatter_p", "scatter_add_p",
           "scatter_sub_p", "scatter_mul_p", "scatter_min_p", "scatter_max_p", "scatter_apply_p"]


class GatherDimensionNumbers(NamedTuple):
    """Where a gather's windows start and where they go; the words are explained at the head of this file."""
    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class ScatterDimensionNumbers(NamedTuple):
    """The same for a scatter, field by field: update_window_dims are offset_dims, inserted_window_dims are
    collapsed_slice_dims, scatter_dims_to_operand_dims is start_index_map."""
    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()


class GatherScatterMode(enum.Enum):
    """What a window that does not lie wholly inside the operand means.

    CLIP: it is moved inside. FILL_OR_DROP: reading gives fill_value, writing does nothing. PROMISE_IN_BOUNDS: it does not
    happen; if it does, reads are moved inside and writes do nothing. ONE_HOT: as a product with a one-hot matrix
    would: reading gives 0, writing does nothing.
    """
    CLIP = enum.auto()
    FILL_OR_DROP = enum.auto()
    PROMISE_IN_BOUNDS = enum.auto()
    ONE_HOT = enum.auto()

    @staticmethod
    def from_any(mode: "str | GatherScatterMode | None") -> "GatherScatterMode":
        """The mode that 'clip', 'fill', 'drop', 'promise_in_bounds', 'one_hot' or None (FILL_OR_DROP) means; else ValueError."""
        if isinstance(mode, GatherScatterMode):
            return mode
        found = _MODES.get(mode) if mode is None or isinstance(mode, str) else None
        if found is None:
            raise ValueError(f"unknown gather mode {mode!r}: it may be {', '.join(map(repr, _MODES))} or a GatherScatterMode")
        return found


_MODES = {None: GatherScatterMode.FILL_OR_DROP, "fill": GatherScatterMode.FILL_OR_DROP, "drop": GatherScatterMode.FILL_OR_DROP,
          "clip": GatherScatterMode.CLIP, "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS,
          "one_hot": GatherScatterMode.ONE_HOT}


# --- what both check -----------------------------------------------------------------------------------------------------

def window_dims(dims: GatherDimensionNumbers, ndim: int) -> list[int]:
    """The operand's dimensions that a window keeps."""
    return [d for d in range(ndim) if d not in dims.collapsed_slice_dims and d not in dims.operand_batching_dims]


def _distinct(dims, bound: int, increasing: bool = True) -> bool:
    return all([0 <= d < bound for d in dims]) and len(set(dims)) == len(dims) and (not increasing or list(dims) == sorted(dims))


def _result_shape(where: str, operand, indices, dims: GatherDimensionNumbers, slice_sizes) -> tuple[int, ...]:
    """The shape of all windows together. Raises TypeError, beginning with `where`, if the description does not fit the types."""
    def check(holds, problem):
        if not holds:
            raise TypeError(f"{where}: {problem}")
    offset, collapsed, mapped, batching, index_batching = dims
    check(dtypes.is_integer(indices.dtype), f"indices must have an integer dtype, got {indices.dtype}")
    check(indices.ndim >= 1, "indices need a last dimension that holds the index vectors")
    batch_shape = indices.shape[:-1]
    check(_distinct(collapsed, operand.ndim),
          f"collapsed (inserted) dimensions {collapsed} must be distinct, increasing dimensions of the operand")
    check(_distinct(batching, operand.ndim) and set(batching).isdisjoint(collapsed),
          f"operand_batching_dims {batching} must be increasing dimensions of the operand, and none of them collapsed")
    check(_distinct(mapped, operand.ndim, False) and set(mapped).isdisjoint(batching),
          f"the index vector's dimensions {mapped} must be distinct dimensions of the operand, and none of them batching")
    check(len(mapped) == indices.shape[-1],
          f"index vectors have {indices.shape[-1]} entries, but are to index the {len(mapped)} dimensions {mapped}")
    check(len(index_batching) == len(batching) and _distinct(index_batching, len(batch_shape), False),
          f"the indices' batching dimensions {index_batching} must pair with operand_batching_dims {batching}")
    for d, i in zip(batching, index_batching):
        check(operand.shape[d] == batch_shape[i],
              f"batching dimension {d} of the operand has size {operand.shape[d]}, but {i} of the indices has {batch_shape[i]}")
    check(len(slice_sizes) == operand.ndim,
          f"slice_sizes {slice_sizes} must have one size for each of the operand's {operand.ndim} dimensions")
    for d, (size, bound) in enumerate(zip(slice_sizes, operand.shape)):
        check(0 <= size <= bound, f"a window of size {size} does not fit dimension {d} of the operand, of size {bound}")
        check(size == 1 or d not in collapsed and d not in batching,
              f"dimension {d} is collapsed or batching, so its window must have size 1, not {size}")
    kept = [slice_sizes[d] for d in window_dims(dims, operand.ndim)]
    ndim = len(kept) + len(batch_shape)
    check(_distinct(offset, ndim),
          f"window dimensions {offset} must be distinct, increasing dimensions of the {ndim} of the result")
    check(len(offset) == len(kept), f"{len(kept)} window dimensions remain of the operand, but {len(offset)} are named: {offset}")
    kept, rest = iter(kept), iter(batch_shape)
    return tuple([next(kept) if d in offset else next(rest) for d in range(ndim)])


def _bump(dims, at: int) -> tuple[int, ...]:
    """Dimension numbers after a new dimension was inserted at `at`."""
    return tuple([d + (d >= at) for d in dims])


def _with_window_dim(dims: GatherDimensionNumbers, ndim: int, at: int) -> tuple[GatherDimensionNumbers, int]:
    """The description after the operand gained, at dimension `at`, one that every window spans; and where the result has it."""
    before = sum([d < at for d in window_dims(dims, ndim)])
    place = dims.offset_dims[before - 1] + 1 if before else 0
    offset = (*dims.offset_dims[:before], place, *[o + 1 for o in dims.offset_dims[before:]])
    return GatherDimensionNumbers(offset, _bump(dims.collapsed_slice_dims, at), _bump(dims.start_index_map, at),
                                  _bump(dims.operand_batching_dims, at), dims.start_indices_batching_dims), place


def _with_batching_dim(dims: GatherDimensionNumbers, at: int) -> GatherDimensionNumbers:
    """The description after the operand gained a dimension at `at`, and indices and result one at 0, that walk together."""
    pairs = sorted([(at, 0), *zip(_bump(dims.operand_batching_dims, at), _bump(dims.start_indices_batching_dims, 0))])
    return GatherDimensionNumbers(_bump(dims.offset_dims, 0), _bump(dims.collapsed_slice_dims, at),
                                  _bump(dims.start_index_map, at), tuple([d for d, _ in pairs]), tuple([i for _, i in pairs]))


def zeros_of(like):
    """Zeros of the shape and dtype of a type, a value, a Zero or an Accumulator."""
    return broadcast(np.zeros((), like.dtype), like.shape)


# --- gather ---------------------------------------------------------------------------------------------------------------

gather_p = Primitive("gather", facts={"family": "indexing"})


def gather(operand, start_indices, dimension_numbers: GatherDimensionNumbers, slice_sizes, *, unique_indices: bool = False,
           indices_are_sorted: bool = False, mode: str | GatherScatterMode | None = None, fill_value=None):
    """Windows of `operand` that start at `start_indices`, as laid out by `dimension_numbers` (see the head of this file).

    start_indices: integers, (…, k): index vectors of length k = len(start_index_map).
    slice_sizes: the size of a window in each dimension of the operand.
    unique_indices, indices_are_sorted: promises that let the transpose (a scatter) run faster.
    mode: a GatherScatterMode or its name; None is 'fill'. fill_value: what 'fill' reads outside; by default NaN, the smallest
    signed integer, the greatest unsigned one, True.
    Raises TypeError where the description does not fit the shapes.
    """
    mode = GatherScatterMode.from_any(mode)
    if mode is GatherScatterMode.ONE_HOT:
        mode, fill_value = GatherScatterMode.FILL_OR_DROP, 0
    if mode is not GatherScatterMode.FILL_OR_DROP or fill_value != fill_value:     # NaN is the default, and no good key
        fill_value = None
    dims = GatherDimensionNumbers(*[tuple(map(int, d)) for d in dimension_numbers])
    return gather_p.bind(operand, start_indices, dimension_numbers=dims, slice_sizes=canonical_shape(slice_sizes),
                         unique_indices=bool(unique_indices), indices_are_sorted=bool(indices_are_sorted), mode=mode,
                         fill_value=fill_value)


def default_fill(dtype):
    """What reading outside gives: NaN, the smallest signed integer, the greatest unsigned one, True."""
    if dtypes.is_inexact(dtype):
        return np.nan
    return True if dtypes.is_bool(dtype) else int(dtypes.iinfo(dtype).min if dtypes.is_signed(dtype) else dtypes.iinfo(dtype).max)


def _gather_type(operand, indices, *, dimension_numbers, slice_sizes, **_):
    where = f"lax.gather({operand}, {indices})"
    return operand.update(shape=_result_shape(where, operand, indices, dimension_numbers, slice_sizes))


def _gather_jvp(primals, tangents, *, fill_value, **params):
    operand, indices = primals
    y = gather_p.bind(operand, indices, fill_value=fill_value, **params)
    if type(tangents[0]) is Zero:
        return y, zero_like(y)
    zero = 0 if params["mode"] is GatherScatterMode.FILL_OR_DROP else None
    return y, gather_p.bind(tangents[0], indices, fill_value=zero, **params)


def _gather_transpose(ct, operand, indices, *, dimension_numbers, slice_sizes, fill_value, **promises):
    dims = ScatterDimensionNumbers(*dimension_numbers)
    if not dims.operand_batching_dims and operand.wanted:
        (ct, indices), has_axis = operand.contracted((ct, indices), (None, None))
        if has_axis:
            dims = dims._replace(update_window_dims=tuple([d + 1 for d in dims.update_window_dims]))
            promises |= {"indices_are_sorted": False, "unique_indices": False}
    if operand.takes_part(typeof(ct).size):
        operand.update(lambda total: scatter_add_p.bind(total, indices, ct, dimension_numbers=dims, **promises))
    elif operand.wanted:
        operand.add(scatter_add_p.bind(zeros_of(operand), indices, ct, dimension_numbers=dims, **promises))


def _gather_batch(axis, args, batch_dims, *, dimension_numbers, slice_sizes, indices_are_sorted, **params):
    (operand, indices), (d, i) = args, batch_dims
    if i is None:
        dims, place = _with_window_dim(dimension_numbers, typeof(operand).ndim - 1, d)
        sizes = (*slice_sizes[:d], axis.size, *slice_sizes[d:])
        return gather_p.bind(operand, indices, dimension_numbers=dims, slice_sizes=sizes, indices_are_sorted=indices_are_sorted,
                             **params), place
    indices = moveaxis(indices, i, 0)
    if d is None:
        dims = dimension_numbers._replace(offset_dims=_bump(dimension_numbers.offset_dims, 0),
                                          start_indices_batching_dims=_bump(dimension_numbers.start_indices_batching_dims, 0))
    elif axis.size == 0:
        example = [array_type(t.shape[:k] + t.shape[k + 1:], t.dtype) for t, k in ((typeof(operand), d), (typeof(indices), 0))]
        return reshape(operand, (0, *_result_shape("lax.gather", *example, dimension_numbers, slice_sizes))), 0
    else:
        dims, slice_sizes = _with_batching_dim(dimension_numbers, d), (*slice_sizes[:d], 1, *slice_sizes[d:])
    return gather_p.bind(operand, indices, dimension_numbers=dims, slice_sizes=slice_sizes, indices_are_sorted=False, **params), 0


gather_p.type_rule, gather_p.jvp, gather_p.transpose, gather_p.batch = _gather_type, _gather_jvp, _gather_transpose, _gather_batch


# --- the scatters ---------------------------------------------------------------------------------------------------------

_NUMBERS = dtypes.integers | dtypes.floats | dtypes.complexes
_ORDERED = _NUMBERS | {dtypes.bool_}


def scatter_sizes(operand, updates, dims: ScatterDimensionNumbers) -> tuple[int, ...]:
    """The slice sizes of the gather that reads what a scatter writes."""
    sizes = iter([updates.shape[d] for d in dims.update_window_dims])
    kept = window_dims(GatherDimensionNumbers(*dims), operand.ndim)
    return tuple([next(sizes, 1) if d in kept else 1 for d in range(operand.ndim)])


def _scatter_type_rule(name: str, accepts: frozenset | None) -> Callable:
    def rule(operand, indices, updates, *, dimension_numbers, **_):
        where = f"lax.{name}({operand}, {indices}, {updates})"
        if operand.dtype != updates.dtype:
            raise TypeError(f"{where}: operand and updates must have one dtype, got {operand.dtype} and {updates.dtype}")
        if accepts is not None and operand.dtype not in accepts:
            raise TypeError(f"{where}: dtype {operand.dtype} is not accepted; it takes {dtype_list(accepts)}")
        dims = dimension_numbers
        rank = indices.ndim - 1 + len(dims.update_window_dims)
        if updates.ndim != rank:
            raise TypeError(f"{where}: updates must have rank {rank}: the {indices.ndim - 1} batch dimensions of the indices and "
                            f"the {len(dims.update_window_dims)} window dimensions {dims.update_window_dims}")
        if not _distinct(dims.update_window_dims, rank):
            raise TypeError(f"{where}: update_window_dims {dims.update_window_dims} must be distinct, increasing dimensions of the "
                            "updates")
        shape = _result_shape(where, operand, indices, GatherDimensionNumbers(*dims), scatter_sizes(operand, updates, dims))
        if shape != updates.shape:
            raise TypeError(f"{where}: updates of shape {updates.shape} do not fit the indices, which call for {shape}")
        return operand if operand.weak_type <= updates.weak_type else operand.strong
    return rule


def _scatter_batch_rule(primitive: Primitive) -> Callable:
    def rule(axis, args, batch_dims, *, dimension_numbers, indices_are_sorted, **params):
        (operand, indices, *updates), (d, i, *u) = args, batch_dims
        if d is None:
                operand, d = batched_at(axis, operand, None, 0), 0
        dims = GatherDimensionNumbers(*dimension_numbers)
        if i is None:
            dims, place = _with_window_dim(dims, typeof(operand).ndim - 1, d)
        elif axis.size == 0:
            return operand, d
        else:
            dims, place, indices_are_sorted = _with_batching_dim(dims, d), 0, False
            indices = moveaxis(indices, i, 0)
        updates = [batched_at(axis, x, dim, place) for x, dim in zip(updates, u)]
        return primitive.bind(operand, indices, *updates, dimension_numbers=ScatterDimensionNumbers(*dims),
                              indices_are_sorted=indices_are_sorted, **params), d
    return rule


def batched_at(axis, x, dim: int | None, place: int):
    """An operand of a batched operation with its batch dimension at `place`, repeated if it has none."""
    if dim is not None:
        return moveaxis(x, dim, place)
    shape = typeof(x).shape
    return broadcast_in_dim(x, (*shape[:place], axis.size, *shape[place:]), _bump(range(len(shape)), place))


def _declare(name: str, accepts: frozenset | None) -> Primitive:
    primitive = Primitive(name, facts={"family": "indexing", **({} if accepts is None else {"dtypes": accepts})})
    primitive.type_rule, primitive.batch = _scatter_type_rule(name.replace("-", "_"), accepts), _scatter_batch_rule(primitive)
    return primitive


scatter_p = _declare("scatter", None)
scatter_add_p = _declare("scatter-add", _NUMBERS)
scatter_sub_p = _declare("scatter-sub", _NUMBERS)
scatter_mul_p = _declare("scatter-mul", _NUMBERS)
scatter_min_p = _declare("scatter-min", _ORDERED)
scatter_max_p = _declare("scatter-max", _ORDERED)


def _bind(primitive, operand, indices, updates, dimension_numbers, indices_are_sorted, unique_indices, mode):
    if type(updates) in dtypes.python_scalar_types:
        updates = np.asarray(updates, typeof(operand).dtype)
    return primitive.bind(operand, indices, updates, dimension_numbers=_written_dims(dimension_numbers), mode=_writing_mode(mode),
                          indices_are_sorted=bool(indices_are_sorted), unique_indices=bool(unique_indices))


def _written_dims(dimension_numbers) -> ScatterDimensionNumbers:
    return ScatterDimensionNumbers(*[tuple(map(int, d)) for d in dimension_numbers])


def _writing_mode(mode) -> GatherScatterMode:
    mode = GatherScatterMode.from_any(mode)
    return GatherScatterMode.FILL_OR_DROP if mode is GatherScatterMode.ONE_HOT else mode


_DOC = """`operand` with {what} windows `updates` at `scatter_indices`, as laid out by `dimension_numbers`{repeated}

    scatter_indices: integers, (…, k): index vectors. updates: of the operand's dtype, and the shape that a gather there would read.
    mode: None, 'drop' and 'promise_in_bounds' leave out windows that do not lie inside, 'clip' moves them inside.
    indices_are_sorted, unique_indices: promises that let it run faster (broken, the result is undefined).
    Raises TypeError where the description does not fit the shapes. (StableHLO: scatter)
    """


def _public(name: str, primitive: Primitive, what: str, repeated: str) -> Callable:
    def function(operand, scatter_indices, updates, dimension_numbers: ScatterDimensionNumbers, *,
                 indices_are_sorted: bool = False, unique_indices: bool = False, mode: str | GatherScatterMode | None = None):
        return _bind(primitive, operand, scatter_indices, updates, dimension_numbers, indices_are_sorted, unique_indices, mode)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = _DOC.format(what=what, repeated=repeated)
    return function


scatter = _public("scatter", scatter_p, "the", "; where windows overlap, one of them wins.")
scatter_add = _public("scatter_add", scatter_add_p, "added", ", each as often as its index occurs.")
scatter_sub = _public("scatter_sub", scatter_sub_p, "subtracted", ", each as often as its index occurs.")
scatter_mul = _public("scatter_mul", scatter_mul_p, "multiplied", ", each as often as its index occurs.")
scatter_min = _public("scatter_min", scatter_min_p, "minimum taken with", ".")
scatter_max = _public("scatter_max", scatter_max_p, "maximum taken with", ".")


# Derivatives. `S` below is the scatter at fixed indices, `G` the gather at the same: <S(0, u), c> = <u, G(c)>.

def _read(source, indices, updates, dimension_numbers, indices_are_sorted, unique_indices, mode):
    """G(source): what a scatter of `updates` would overwrite, 0 where it writes nothing."""
    dropped = mode is not GatherScatterMode.CLIP
    return gather_p.bind(source, indices, dimension_numbers=GatherDimensionNumbers(*dimension_numbers),
                         slice_sizes=scatter_sizes(typeof(source), updates, dimension_numbers),
                         indices_are_sorted=indices_are_sorted, unique_indices=unique_indices,
                         mode=GatherScatterMode.FILL_OR_DROP if dropped else mode, fill_value=0 if dropped else None)


def _linear_jvp(primitive: Primitive) -> Callable:
    """scatter_add and scatter_sub are linear in operand and updates together."""
    def rule(primals, tangents, **params):
        operand, indices, updates = primals
        y = primitive.bind(operand, indices, updates, **params)
        t, _, u = tangents
        if type(u) is Zero:
            return y, Zero(typeof(y).tangent()) if type(t) is Zero else t
        return y, primitive.bind(zeros_of(t) if type(t) is Zero else t, indices, u, **params)
    return rule


def _linear_transpose(sign: Callable) -> Callable:
    def rule(ct, operand, indices, updates, **params):
        if isinstance(operand, Accumulator):
            operand.add(ct)
        if isinstance(updates, Accumulator) and updates.wanted:
            updates.add(sign(_read(ct, indices, updates, **params)))
    return rule


scatter_add_p.jvp, scatter_add_p.transpose = _linear_jvp(scatter_add_p), _linear_transpose(lambda ct: ct)
scatter_sub_p.jvp, scatter_sub_p.transpose = _linear_jvp(scatter_sub_p), _linear_transpose(ew.neg)


def _winners(operand, indices, updates, params):
    """(where in the operand something is written, which elements of the updates are the ones that stay): booleans."""
    dims, aval = params["dimension_numbers"], typeof(updates)
    rows = [d for d in range(aval.ndim) if d not in dims.update_window_dims]
    shape = tuple([aval.shape[d] for d in rows])
    count = int(np.prod(shape))
    number = reshape(broadcasted_iota(dtypes.int32, (count,), 0), shape)
    number = broadcast_in_dim(ew.add(number, np.int32(1)), aval.shape, tuple(rows))
    winner = scatter_p.bind(broadcast(np.int32(0), typeof(operand).shape), indices, number, **params)
    return ew.gt(winner, np.int32(0)), ew.eq(_read(winner, indices, updates, **params), number)


def _scatter_jvp(primals, tangents, **params):
    """Writing is linear. Where windows may overlap, the tangents that stay must be those of the updates that stay."""
    operand, indices, updates = primals
    t, _, u = tangents
    if type(t) is Zero and type(u) is Zero:
        y = scatter_p.bind(*primals, **params)
        return y, zero_like(y)
    if params["unique_indices"] or type(u) is Zero:
        y = scatter_p.bind(*primals, **params)
        t = zeros_of(t) if type(t) is Zero else t
        u = zeros_of(u) if type(u) is Zero else u
        return y, scatter_p.bind(t, indices, u, **params)
    written, stays = _winners(operand, indices, updates, params)
    zero = np.zeros((), operand.dtype)
    write = lambda x, new: scatter_add_p.bind(select_n(written, x, zero), indices, select_n(stays, zero, new), **params)
    return write(operand, updates), write(zeros_of(t) if type(t) is Zero else t, u)


def _scatter_transpose(ct, operand, indices, updates, **params):
    if isinstance(operand, Accumulator) and operand.wanted:
        operand.add(scatter_p.bind(ct, indices, zeros_of(updates), **params))
    if isinstance(updates, Accumulator) and updates.wanted:
        read = _read(ct, indices, updates, **params)
        if not params["unique_indices"]:
            read = select_n(_winners(ct, indices, read, params)[1], np.zeros((), read.dtype), read)
        updates.add(read)


scatter_p.jvp, scatter_p.transpose = _scatter_jvp, _scatter_transpose


def _mul_jvp(primals, tangents, **params):
    """d S(x, u) = S(dx, u) + S_add(0, G(x) du), the latter where indices are unique."""
    operand, indices, updates = primals
    y = scatter_mul_p.bind(*primals, **params)
    t, _, u = tangents
    total = None
    if type(t) is not Zero:
        total = scatter_mul_p.bind(t, indices, updates, **params)
    if type(u) is not Zero:
        if not params["unique_indices"]:
            raise NotImplementedError("the derivative of scatter_mul with respect to the updates is defined for unique_indices=True "
                                      "only (.at[...].multiply(..., unique_indices=True)): else factors multiply each other")
        term = scatter_add_p.bind(zeros_of(y), indices,
                                  ew.mul(_read(operand, indices, updates, **params), u), **params)
        total = term if total is None else add_any(total, term)
    return y, zero_like(y) if total is None else total


def _mul_transpose(ct, operand, indices, updates, **params):
    if isinstance(operand, Accumulator) and operand.wanted:
        operand.add(scatter_mul_p.bind(ct, indices, updates, **params))
    if isinstance(updates, Accumulator) and updates.wanted:
        if not params["unique_indices"]:
            raise NotImplementedError("scatter_mul is linear in its updates for unique_indices=True only")
        updates.add(_read(ew.mul(ct, operand), indices, updates, **params))


scatter_mul_p.jvp, scatter_mul_p.transpose = _mul_jvp, _mul_transpose


def _extremal_jvp(primitive: Primitive) -> Callable:
    """The tangent of a minimum or maximum is the mean of the tangents of the operands that attain it."""
    def rule(primals, tangents, **params):
        operand, indices, updates = primals
        y = primitive.bind(*primals, **params)
        t, _, u = tangents
        if type(t) is Zero and type(u) is Zero:
            return y, zero_like(y)
        dtype = typeof(y).dtype
        operand_attains = convert_element_type(ew.eq(operand, y), dtype)
        updates_attain = convert_element_type(ew.eq(_read(y, indices, updates, **params), updates), dtype)
        add = lambda x, new: scatter_add_p.bind(x, indices, new, **params)
        zeros = zeros_of(y)
        total = add(zeros if type(t) is Zero else ew.mul(t, operand_attains),
                    zeros_of(updates) if type(u) is Zero else ew.mul(u, updates_attain))
        return y, ew.div(total, add(operand_attains, updates_attain))
    return rule


scatter_min_p.jvp, scatter_max_p.jvp = _extremal_jvp(scatter_min_p), _extremal_jvp(scatter_max_p)


# --- scatter_apply: a function of what stands at each index -------------------------------------------------------------------

scatter_apply_p = Primitive("scatter_apply", memoize=False, facts={"family": "indexing"})


def scatter_apply(operand, scatter_indices, func: Callable, dimension_numbers: ScatterDimensionNumbers, *, update_shape=(),
                  indices_are_sorted: bool = False, unique_indices: bool = False, mode: str | GatherScatterMode | None = None):
    """`operand` with func(element) for each element of the windows at `scatter_indices`, as often as its index occurs.

    func: elementwise, dtype to the same dtype. update_shape: the shape that a gather at the indices would read.
    Differentiable where unique_indices=True. Raises TypeError where the description does not fit the shapes.
    """
    aval, dims = typeof(operand), _written_dims(dimension_numbers)
    flags = dict(indices_are_sorted=bool(indices_are_sorted), unique_indices=bool(unique_indices), mode=_writing_mode(mode))
    updates = broadcast(np.zeros((), aval.dtype), update_shape)
    if unique_indices:
        old = _read(operand, scatter_indices, updates, dims, **flags)
        new = convert_element_type(func(old), aval.dtype)
        return scatter_p.bind(operand, scatter_indices, new, dimension_numbers=dims, **flags)
    jaxpr, consts = stage(lambda x: [convert_element_type(func(x), aval.dtype)], [array_type((), aval.dtype)])
    if consts:
        raise NotImplementedError("lax.scatter_apply: func may not use arrays from outside itself, unless unique_indices=True")
    return scatter_apply_p.bind(operand, scatter_indices, updates, dimension_numbers=dims, update_jaxpr=jaxpr, **flags)


def _apply_jvp(primals, tangents, **params):
    if type(tangents[0]) is not Zero:
        raise NotImplementedError("the derivative of scatter_apply is defined for unique_indices=True only: else the function may "
                                  "apply repeatedly")
    y = scatter_apply_p.bind(*primals, **params)
    return y, zero_like(y)


scatter_apply_p.type_rule, scatter_apply_p.batch = _scatter_type_rule("scatter_apply", None), _scatter_batch_rule(scatter_apply_p)
scatter_apply_p.jvp = _apply_jvp
