"""Collectives: operations over named axes, by which the replicas of a pmap, or the examples of a vmap, communicate.

What they mean does not depend on what the axis is: over an axis of pmap they become XLA's collectives (lowering/rules), over
one of vmap, operations on the batch dimension (the batch rules here). A derivative sees each replica's copy of a value as a
variable of its own, so that the transpose of psum, ∂(Σₛ xₛ)/∂xᵣ for each copy of the sum, is psum.

A value that is the same everywhere still takes part in a collective: types may promise less than they could
know (a tangent is declared before it is clear along what it varies). Only what is no traced value is known to be the same.

A backward pass that reduces over axes (lax/totals.py) takes the copies of a value that does not vary along them for one variable: there
the transpose of psum hands its total to all.
"""
from __future__ import annotations

import math
import operator
from typing import Any, Callable, Sequence

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.linear import Accumulator, Zero
from mini_jax.core.primitive import Primitive
from mini_jax.core.pytree import tree_flatten, tree_map
from mini_jax.core.state import axis_size as _axis_size
from mini_jax.core.state import reduced_axes, single_axes, state
from mini_jax.core.trace import Tracer, typeof
from mini_jax.core.types import array_type
from mini_jax.lax import elementwise, reductions, selection, shapes, slicing
from mini_jax.lax.gather import GatherDimensionNumbers, gather as gather_slices
from mini_jax.lax.iota import broadcasted_iota, iota

__all__ = ["psum", "pmean", "pmax", "pmin", "all_gather", "all_to_all", "pswapaxes", "ppermute", "pshuffle", "psum_scatter", "pbroadcast", "pcast",
           "pvary", "ragged_all_to_all", "axis_index", "axis_size", "psum_p", "pvary_p", "pmax_p", "pmin_p", "all_gather_p", "all_to_all_p", "ppermute_p",
           "psum_scatter_p", "axis_index_p"]


Groups = Sequence[Sequence[int]] | None


# --- arguments ------------------------------------------------------------------------------------------------------------------

def axis_size(axis_name) -> int:
    """The size of a named axis, or the product of the sizes for a tuple of names, as a Python int.

    Raises NameError for a name that is not in scope.
    """
    return math.prod([_axis_size(name) for name in axis_names(axis_name)])


def axis_names(axis_name) -> tuple:
    """The axes in scope that an axis_name argument means. TypeError for what can't be a name, ValueError where one occurs twice."""
    names = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    try:
        distinct = len(set(names))
    except TypeError:
        raise TypeError(f"an axis name is hashable, a string as a rule, got {axis_name!r:.200} of type {type(axis_name).__name__}") from None
    if distinct != len(names):
        raise ValueError(f"an axis name occurs twice in {axis_name!r}")
    return single_axes(names)


def _scope(axis_name, axis_index_groups, *, equal: bool = True) -> tuple[tuple, tuple, tuple | None, int]:
    """(names, their sizes, groups, size of a group) of a collective's arguments, checked; `equal`: groups must have one size."""
    names = axis_names(axis_name)
    sizes = tuple([_axis_size(name) for name in names])
    size = math.prod(sizes)
    if axis_index_groups is None:
        return names, sizes, None, size
    try:
        groups = tuple([tuple([operator.index(i) for i in group]) for group in axis_index_groups])
    except TypeError:
        raise TypeError(f"axis_index_groups are lists of ints, got {axis_index_groups!r:.200}") from None
    if sorted([i for group in groups for i in group]) != list(range(size)):
        raise ValueError(f"axis_index_groups {axis_index_groups} must hold each index of the axis {', '.join(map(repr, names))} of size {size} "
                         "exactly once")
    lengths = {len(group) for group in groups}
    if equal and len(lengths) > 1:
        raise ValueError(f"axis_index_groups {axis_index_groups} must all have one size")
    return names, sizes, groups, lengths.pop() if len(lengths) == 1 else 0


def _positional(axis_name) -> tuple[tuple, tuple[int, ...]]:
    """Names and, where ints stand among them that name no axis, dimensions of the operand."""
    names = axis_names(axis_name)
    dims = tuple([name for name in names if isinstance(name, int) and name not in state.axes])
    return tuple([name for name in names if name not in dims]), dims


def _shown(name: str, x, axes: tuple) -> str:
    return f"lax.{name}({x}, {axes[0] if len(axes) == 1 else axes!r})"


def _is_shared(x) -> bool:
    """Is it known to be the same everywhere?"""
    return not isinstance(x, Tracer)


def _times(x, n: int):
    """n · x, wrapping around like a sum does."""
    dtype = typeof(x).dtype
    return elementwise.mul(x, np.asarray(n).astype(dtype)[()])


def _without(varying: frozenset, axes: Sequence, groups) -> frozenset:
    """Over which axes a result differs that is the same in each group of replicas."""
    return varying - frozenset(axes) if groups is None else varying | frozenset(axes)


# --- batching -------------------------------------------------------------------------------------------------------------------

def _in_front(x, dim: int | None, size: int):
    """A batch with its dimension in front; a value that is the same for all examples is repeated."""
    if dim is None:
        shape = typeof(x).shape
        return shapes.broadcast_in_dim(x, (size, *shape), tuple(range(1, len(shape) + 1)))
    return shapes.moveaxis(x, dim, 0)


def _batched(primitive: Primitive, over: Callable) -> None:
    """Set the batch rule of a collective of one operand.

    Over another axis, it is the same collective of the batch. If the axis is one of its own, `over` says what becomes of
    a batch with its dimension in front: over(x, before, n, after, params), where `before` and `after` are the axes (with sizes)
    around it among the collective's axes and n is its size.
    """
    def rule(axis, args, dims, **params):
        (x,), (dim,), axes = args, dims, params["axes"]
        if axis.name is None or axis.name not in axes:
            if "dimension" in params:
                params["dimension"] += dim <= params["dimension"]
            return primitive.bind(x, **params), dim
        at, pairs = axes.index(axis.name), tuple(zip(axes, params["sizes"]))
        x, before, after = _in_front(x, dim, axis.size), pairs[:at], pairs[at + 1:]
        groups = params.get("groups")
        if groups is None:
            return over(x, before, axis.size, after, params)
        of_group = lambda rows: _in_front(*over(rows, (), typeof(rows).shape[0], (), params), typeof(rows).shape[0])
        return _of_all(x, before, axis.size, after, lambda rows: _by_groups(rows, groups, of_group)), 0
    primitive.batch = rule


def _rows(x, order: Sequence[int]):
    """The entries along dimension 0 in this order."""
    shape = typeof(x).shape
    if list(order) == list(range(shape[0])):
        return x
    numbers = GatherDimensionNumbers(tuple(range(1, len(shape))), (0,), (0,))
    return gather_slices(x, np.array(order, np.int32).reshape(-1, 1), numbers, (1, *shape[1:]), mode="promise_in_bounds")


def _by_groups(rows, groups: Sequence[Sequence[int]], of_group: Callable):
    """The rows that come of `rows`, one for each index of an axis, where of_group says what comes of those of a group."""
    order = [i for group in groups for i in group]
    ordered, start, pieces = _rows(rows, order), 0, []
    for group in groups:
        pieces.append(of_group(slicing.slice_in_dim(ordered, start, start + len(group))))
        start += len(group)
    return _rows(pieces[0] if len(pieces) == 1 else slicing.concatenate(pieces, 0), np.argsort(order).tolist())


def _of_all(x, before: Sequence[tuple], n: int, after: Sequence[tuple], of_rows: Callable):
    """What an operation on the rows of all indices of several axes makes of a batch (n rows, one of the axes; the others, with their sizes,
    are before and after it): the rows are gathered, and each index of the others keeps its own. It costs an all_gather."""
    if not before and not after:
        return of_rows(x)
    b, a = [math.prod([size for _, size in pairs]) for pairs in (before, after)]
    all_rows = _over(all_gather_p, shapes.expand_dims(x, (0,)), (*before, *after), 0)                      # (b·a, n, …)
    all_rows = _merge(shapes.moveaxis(_split(all_rows, 0, (b, a)), 1, 2), 0, 3)
    out = _split(of_rows(all_rows), 0, (b, n, a))
    own = slicing.dynamic_index_in_dim(out, axis_index(tuple([name for name, _ in after])), 2, False)
    return slicing.dynamic_index_in_dim(own, axis_index(tuple([name for name, _ in before])), 0, False)


def _over(primitive: Primitive, x, pairs: Sequence[tuple], dimension: int):
    """The collective over some of its axes."""
    if not pairs:
        return x
    names, sizes = zip(*pairs)
    return primitive.bind(x, axes=names, sizes=sizes, dimension=dimension, groups=None)


def _split(x, dim: int, sizes: Sequence[int]):
    """The array with one dimension cut into several."""
    shape = typeof(x).shape
    return shapes.reshape(x, (*shape[:dim], *sizes, *shape[dim + 1:]))


def _merge(x, dim: int, count: int = 2):
    """The array with `count` dimensions from `dim` on made one."""
    shape = typeof(x).shape
    return shapes.reshape(x, (*shape[:dim], math.prod(shape[dim:dim + count]), *shape[dim + count:]))


# --- reductions: psum, pmax, pmin -------------------------------------------------------------------------------------------------

def _reduction(name: str, reduce: Callable, repeat: Callable, accepts: Callable[[Any], bool]) -> Primitive:
    """A reduction over named axes of any number of operands, which may travel together.

    reduce(x, axes): the same over dimensions. repeat(x, n): the same of n equal values.
    """
    primitive = Primitive(name, multiple_results=True,
                          facts={"family": "collectives", "named_axes": True, "axes": lambda params: params["axes"]})

    def check(types, axes):
        for t in types:
            if not accepts(t.dtype):
                raise TypeError(f"{_shown(name, t, axes)}: there is no {name[1:]} of values of dtype {t.dtype}")

    def types(*types, axes, groups):
        check(types, axes)
        return [t.update(varying=_without(t.varying, axes, groups)) for t in types]

    def batch(axis, args, dims, *, axes, groups):
        if axis.name is None or axis.name not in axes:
            return primitive.bind(*args, axes=axes, groups=groups), dims
        if groups is not None:
            at, sizes = axes.index(axis.name), [_axis_size(name) if name != axis.name else axis.size for name in axes]
            pairs = tuple(zip(axes, sizes))
            of_group = lambda rows: _in_front(reduce(rows, (0,)), None, typeof(rows).shape[0])
            return [_of_all(_in_front(x, d, axis.size), pairs[:at], axis.size, pairs[at + 1:], lambda rows: _by_groups(rows, groups, of_group))
                    for x, d in zip(args, dims)], [0] * len(args)
        args = [repeat(x, axis.size) if d is None else reduce(x, (d,)) for x, d in zip(args, dims)]
        rest = tuple([a for a in axes if a != axis.name])
        return primitive.bind(*args, axes=rest, groups=None) if rest else args, [None] * len(args)

    primitive.type_rule, primitive.batch, primitive.facts["check"] = types, batch, check
    return primitive


_ordered = lambda dtype: not dtypes.is_complex(dtype) and not dtypes.is_extended(dtype)
psum_p = _reduction("psum", reductions.reduce_sum, _times, dtypes.is_numeric)
pmax_p = _reduction("pmax", reductions.reduce_max, lambda x, n: x, _ordered)
pmin_p = _reduction("pmin", reductions.reduce_min, lambda x, n: x, _ordered)


def _psum_jvp(primals, tangents, **params):
    outs = psum_p.bind(*primals, **params)
    live = [t for t in tangents if type(t) is not Zero]
    sums = iter(psum_p.bind(*live, **params) if live else ())
    return outs, [Zero(typeof(y).tangent()) if type(t) is Zero else next(sums) for y, t in zip(outs, tangents)]


def _psum_transpose(cts, *args, axes, groups):
    """Each copy gets the sum of the cotangents of all copies of the sum; along an axis that is reduced over, of which there is one, that one."""
    groups_of_args: dict[tuple, list] = {}
    for arg, ct in zip(args, cts):
        if isinstance(arg, Accumulator) and arg.wanted and type(ct) is not Zero:
            own = frozenset() if groups is not None else reduced_axes() - typeof(ct).varying
            groups_of_args.setdefault(tuple([name for name in axes if name not in own]), []).append((arg, ct))
    for sent, pairs in groups_of_args.items():
        found = psum_p.bind(*[ct for _, ct in pairs], axes=sent, groups=groups) if sent else [ct for _, ct in pairs]
        for (arg, _), total in zip(pairs, found):
            arg.add(_from_copies(arg, total, axes))


def _from_copies(arg: Accumulator, ct, axes: tuple):
    """The cotangent of a collective's operand, which takes part as so many copies even where it is the same along the axes."""
    return from_copies(ct, frozenset(axes) - arg.aval.varying)


def in_order(axes: frozenset) -> tuple:
    """Named axes as they are nested."""
    return tuple([name for name in state.axes if name in axes])


def summed(x, axes: frozenset):
    """x, summed over named axes."""
    return psum_p.bind(x, axes=in_order(axes), groups=None)[0] if axes else x


def from_copies(ct, axes: frozenset):
    """The cotangent of a value that is the same along `axes`, from that of its copies, where the backward pass reduces over axes: a total, or in
    parts (lax/totals.py)."""
    reduced = state.reduced
    if reduced is None:
        return ct
    ct = summed(ct, axes & reduced.now)
    missing = (axes & reduced.last) - typeof(ct).varying
    return pvary_p.bind(ct, axes=in_order(missing)) if missing else ct


def _extremum_jvp(primitive: Primitive) -> Callable:
    """The tangent of max or min is that of the values that attain it, averaged where there are several."""
    def rule(primals, tangents, **params):
        outs = primitive.bind(*primals, **params)
        live = [(x, y, t) for x, y, t in zip(primals, outs, tangents) if type(t) is not Zero]
        attained = [shapes.convert_element_type(elementwise.eq(x, y), typeof(y).dtype) for x, y, _ in live]
        counts = psum_p.bind(*attained, **params) if live else ()
        parts = [elementwise.mul(t, elementwise.div(a, n)) for (_, _, t), a, n in zip(live, attained, counts)]
        sums = iter(psum_p.bind(*parts, **params) if live else ())
        return outs, [Zero(typeof(y).tangent()) if type(t) is Zero else next(sums) for y, t in zip(outs, tangents)]
    return rule


psum_p.jvp, psum_p.transpose = _psum_jvp, _psum_transpose
pmax_p.jvp, pmin_p.jvp = _extremum_jvp(pmax_p), _extremum_jvp(pmin_p)


def _reduced(primitive: Primitive, x, axis_name, axis_index_groups, reduce: Callable, shared: Callable):
    """A reduction of a pytree. shared(x, n): that of a value known to be the same everywhere."""
    names, dims = _positional(axis_name)
    leaves, tree = tree_flatten(x)
    if dims:
        if axis_index_groups is not None:
            raise ValueError(f"axis_index_groups goes with named axes only, not with dimensions: {axis_name!r}")
        leaves = [reduce(leaf, shapes.canonical_axes(dims, typeof(leaf).ndim)) for leaf in leaves]
    if names:
        names, _, groups, size = _scope(names, axis_index_groups, equal=False)
        primitive.facts["check"]([typeof(leaf) for leaf in leaves], names)
        own = [_is_shared(leaf) and size > 0 for leaf in leaves]
        sent = [leaf for leaf, alone in zip(leaves, own) if not alone]
        received = iter(primitive.bind(*sent, axes=names, groups=groups) if sent else ())
        leaves = [shared(leaf, size) if alone else next(received) for leaf, alone in zip(leaves, own)]
    return tree.unflatten(leaves)


def _count_booleans(x):
    """Booleans are summed as integers."""
    if type(x) is bool:
        return int(x)
    return shapes.convert_element_type(x, dtypes.int32) if typeof(x).dtype == dtypes.bool_ else x


def psum(x, axis_name, *, axis_index_groups: Groups = None):
    """The sum Σₛ xₛ over named axes, the same for all: of every leaf of the pytree x, in one communication.

    axis_name: a name or a tuple of names (ints among them: dimensions of x). axis_index_groups: sum within groups of
    axis indices that partition the axis, e.g. [[0, 1], [2, 3]]. Booleans are counted. Of a number that is no traced value,
    such as 1, it is the number times the axis size: a Python number. Raises NameError for a name that is not in scope.
    """
    x = tree_map(_count_booleans, x)
    return _reduced(psum_p, x, axis_name, axis_index_groups, reductions.reduce_sum,
                    lambda leaf, n: leaf * n if type(leaf) in (int, float, complex) else _times(leaf, n))


def pmean(x, axis_name, *, axis_index_groups: Groups = None):
    """The mean over named axes, psum(x) / psum(1); integers give floats. Arguments as for psum."""
    names, dims = _positional(axis_name)
    size = psum(1, names, axis_index_groups=axis_index_groups) if names else 1

    def mean(leaf, total):
        aval = typeof(total)
        dtype = dtypes.to_inexact(aval.dtype)
        count = size * math.prod([typeof(leaf).shape[d] for d in dims])
        count = shapes.convert_element_type(count, dtype, aval.weak_type) if isinstance(count, Tracer) else dtype.type(count)
        return elementwise.div(shapes.convert_element_type(total, dtype, aval.weak_type), count)
    return tree_map(mean, x, psum(x, axis_name, axis_index_groups=axis_index_groups))


def pmax(x, axis_name, *, axis_index_groups: Groups = None):
    """The maximum over named axes, elementwise, the same for all. Arguments as for psum. TypeError for complex numbers.

    Derivative: that of the values that attain it, averaged.
    """
    return _reduced(pmax_p, x, axis_name, axis_index_groups, reductions.reduce_max, lambda leaf, n: leaf)


def pmin(x, axis_name, *, axis_index_groups: Groups = None):
    """The minimum over named axes, elementwise, the same for all. As pmax."""
    return _reduced(pmin_p, x, axis_name, axis_index_groups, reductions.reduce_min, lambda leaf, n: leaf)


def along_dimension(x, axes: tuple, dimension: int):
    """x with what differs along named axes side by side along one of its dimensions, the same for all."""
    return all_gather_p.bind(x, axes=axes, sizes=tuple([_axis_size(name) for name in axes]), dimension=dimension, groups=None)


# --- moving values: all_gather and its transpose psum_scatter, all_to_all, ppermute -----------------------------------------------

def _mover(name: str) -> Primitive:
    return Primitive(name, facts={"family": "collectives", "named_axes": True, "axes": lambda params: params["axes"]})


all_gather_p, psum_scatter_p, all_to_all_p, ppermute_p = map(_mover, ("all_gather", "psum_scatter", "all_to_all", "ppermute"))


def _group_size(sizes, groups) -> int:
    return math.prod(sizes) if groups is None else len(groups[0])


def _resized(x, dimension: int, size: int):
    return (*x.shape[:dimension], size, *x.shape[dimension + 1:])


def _all_gather_type(x, *, axes, sizes, dimension, groups):
    size = x.shape[dimension] * _group_size(sizes, groups)
    return x.update(shape=_resized(x, dimension, size), varying=_without(x.varying, axes, groups))


def _psum_scatter_type(x, *, axes, sizes, dimension, groups):
    n = _group_size(sizes, groups)
    _check_scatter(x, axes, dimension, n, True)
    return x.update(shape=_resized(x, dimension, x.shape[dimension] // n), varying=x.varying | frozenset(axes))


def _check_scatter(x, axes: tuple, dimension: int, n: int, tiled: bool) -> None:
    if not dtypes.is_numeric(x.dtype):
        raise TypeError(f"{_shown('psum_scatter', x, axes)}: there is no sum of values of dtype {x.dtype}")
    size = x.shape[dimension]
    if size % n or not tiled and size != n:
        raise ValueError(f"{_shown('psum_scatter', x, axes)}: dimension {dimension} of size {size} is to be dealt out to {n}: its size must be "
                         + ("a multiple of that" if tiled else "that; tiled=True takes multiples of it"))


def _all_to_all_type(x, *, axes, sizes, dimension, groups):
    return x.update(varying=x.varying | frozenset(axes))


def _ppermute_type(x, *, axes, sizes, perm):
    return x.update(varying=x.varying | frozenset(axes))


def _gathered(x, before, n, after, params):
    """Later axes are gathered first: their index is the faster one in the result."""
    d = params["dimension"]
    x = _over(all_gather_p, x, after, d + 1)
    x = _merge(shapes.moveaxis(x, 0, d), d)
    return _over(all_gather_p, x, before, d), None


def _scattered(x, before, n, after, params):
    """The sum, of which first the earlier axes, then this batch, then the later axes take their parts."""
    d = params["dimension"]
    x = _over(psum_scatter_p, reductions.reduce_sum(x, (0,)), before, d)
    x = _split(x, d, (n, typeof(x).shape[d] // n))
    return _over(psum_scatter_p, x, after, d + 1), d


def _exchanged(x, before, n, after, params):
    """Example r gets the r-th part of every example: the batch dimension and the dimension of parts change places."""
    d = params["dimension"] + 1
    x = _split(x, d, (math.prod([s for _, s in before]), n, math.prod([s for _, s in after])))
    order = list(range(typeof(x).ndim))
    order[0], order[d + 1] = d + 1, 0
    x = _over(all_to_all_p, shapes.transpose(x, order), before, d)
    return _merge(_over(all_to_all_p, x, after, d + 2), d, 3), 0


def _permuted(x, before, n, after, params):
    """The rows in their new places, as few slices, and zeros where nothing is sent."""
    return _of_all(x, before, n, after, lambda rows: _sent(rows, params["perm"])), 0


def _sent(x, perm: Sequence[tuple[int, int]]):
    n = typeof(x).shape[0]
    sources: list = [None] * n
    for source, destination in perm:
        sources[destination] = source
    runs, start = [], 0
    for i in range(1, n + 1):
        if i == n or sources[i] != (None if sources[i - 1] is None else sources[i - 1] + 1):
            first, length = sources[start], i - start
            runs.append(slicing.slice_in_dim(x, first, first + length) if first is not None
                        else shapes.broadcast(np.zeros((), typeof(x).dtype)[()], (length, *typeof(x).shape[1:])))
            start = i
    return runs[0] if len(runs) == 1 else slicing.concatenate(runs, 0)


def _moves(primitive: Primitive, type_rule: Callable, over: Callable, transposed: Callable) -> None:
    """Set the rules of a collective that is linear. transposed(ct, **params): the collective that is its transpose, of ct."""
    primitive.type_rule = type_rule
    primitive.transpose = lambda ct, x, **params: x.add(_from_copies(x, transposed(ct, **params), params["axes"]))
    shapes.linear_in_first(primitive)
    _batched(primitive, over)


def _all_gather_transposed(ct, *, axes, sizes, dimension, groups):
    """The sum of what the copies got; along axes that are reduced over, of a total one takes one's own part."""
    whole = frozenset() if groups is not None else reduced_axes() - typeof(ct).varying
    sent = tuple([pair for pair in zip(axes, sizes) if pair[0] not in whole])
    if len(sent) == len(axes):
        return psum_scatter_p.bind(ct, axes=axes, sizes=sizes, dimension=dimension, groups=groups)
    ct = _split(ct, dimension, (*sizes, typeof(ct).shape[dimension] // math.prod(sizes)))
    for at, name in reversed(list(enumerate(axes))):
        if name in whole:
            ct = slicing.dynamic_index_in_dim(ct, axis_index(name), dimension + at, False)
    return _over(psum_scatter_p, _merge(ct, dimension, len(sent) + 1), sent, dimension)


_moves(all_gather_p, _all_gather_type, _gathered, _all_gather_transposed)
_moves(psum_scatter_p, _psum_scatter_type, _scattered, all_gather_p.bind)
_moves(all_to_all_p, _all_to_all_type, _exchanged, all_to_all_p.bind)
_moves(ppermute_p, _ppermute_type, _permuted,
       lambda ct, perm, **params: ppermute_p.bind(ct, perm=tuple([(d, s) for s, d in perm]), **params))


def all_gather(x, axis_name, *, axis_index_groups: Groups = None, axis: int = 0, tiled: bool = False,
               to: str = "varying"):
    """The values of all along named axes, the same for all: stacked along a new dimension `axis`.

    x: a pytree of arrays. tiled: concatenated along the existing dimension `axis` instead. axis_index_groups: gather within
    groups of axis indices, of one size. Raises NameError for a name that is not in scope, ValueError for an axis out of bounds.
    """
    names, sizes, groups, _ = _scope(axis_name, axis_index_groups)

    def gather(leaf):
        d = shapes.canonical_axis(axis, typeof(leaf).ndim + (not tiled))
        leaf = leaf if tiled else shapes.expand_dims(leaf, (d,))
        return all_gather_p.bind(leaf, axes=names, sizes=sizes, dimension=d, groups=groups)
    return tree_map(gather, x)


def psum_scatter(x, axis_name, *, scatter_dimension: int = 0, axis_index_groups: Groups = None, tiled: bool = False):
    """psum(x, axis_name), of which each keeps one part: the one with its axis index, along scatter_dimension.

    tiled=False: that dimension has the size of the axis (or group) and is dropped. tiled=True: its size is a multiple, and
    each keeps an equal piece. Booleans are counted.
    Raises NameError for a name that is not in scope, ValueError for sizes that don't fit.
    """
    names, sizes, groups, n = _scope(axis_name, axis_index_groups)

    def scatter(leaf):
        leaf = _count_booleans(leaf)
        d = shapes.canonical_axis(scatter_dimension, typeof(leaf).ndim)
        _check_scatter(typeof(leaf), names, d, n, tiled)
        out = psum_scatter_p.bind(leaf, axes=names, sizes=sizes, dimension=d, groups=groups)
        return out if tiled else shapes.squeeze(out, (d,))
    return tree_map(scatter, x)


def pswapaxes(x, axis_name, axis: int, *, axis_index_groups: Groups = None):
    """x with its dimension `axis`, of the size of the named axis, in the place of the named axis, and the other way round: entry r of one's
    own x goes to r, and comes back from there. x.shape stays as it is. Raises as `all_to_all` does.
    """
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def all_to_all(x, axis_name, split_axis: int, concat_axis: int, *, axis_index_groups: Groups = None, tiled: bool = False):
    """Each cuts x along split_axis and sends the r-th part to r; what arrives is put together along concat_axis.

    tiled=False: x.shape[split_axis] is the size of the axis (or group); that dimension is dropped, and parts are stacked along a
    new dimension concat_axis. tiled=True: parts are equal pieces, concatenated along the existing dimension concat_axis.
    axis_index_groups: exchange within groups of axis indices, of one size.
    Raises NameError for a name that is not in scope, ValueError for sizes that don't fit or axes out of bounds.
    """
    names, sizes, groups, n = _scope(axis_name, axis_index_groups)

    def exchange(leaf):
        aval = typeof(leaf)
        split, concat = shapes.canonical_axis(split_axis, aval.ndim), shapes.canonical_axis(concat_axis, aval.ndim)
        size = aval.shape[split]
        if size % n or not tiled and size != n:
            raise ValueError(f"lax.all_to_all({aval}, {axis_name!r}): dimension {split} (split_axis) has size {size}, but {n} parts are to "
                             f"be sent: it must be {'a multiple of' if tiled else 'equal to'} the size of the axis or group")
        parts = all_to_all_p.bind(_split(leaf, split, (n, size // n)), axes=names, sizes=sizes, dimension=split, groups=groups)
        if not tiled:
            return shapes.moveaxis(shapes.squeeze(parts, (split + 1,)), split, concat)
        return _merge(shapes.moveaxis(parts, split, concat), concat)
    return tree_map(exchange, x)


def ragged_all_to_all(operand, output, input_offsets, send_sizes, output_offsets, recv_sizes, *, axis_name, axis_index_groups: Groups = None):
    """Each sends runs of its rows, of any lengths: rows input_offsets[r] to input_offsets[r] + send_sizes[r] of operand go to r, where they
    become the rows of the result from output_offsets[r] on; where nothing arrives it has the rows of output.

    operand, output: arrays that differ in size along dimension 0 at most. The others: integers, an entry for each axis index;
    recv_sizes[r], how many rows r sends here, follows from what r says and is not looked at.
    Every operand is gathered: the price is that of all_gather. Raises ValueError where shapes or dtypes don't fit.
    """
    names, sizes, groups, n = _scope(axis_name, axis_index_groups)
    have, out = typeof(operand), typeof(output)
    if not have.ndim or have.ndim != out.ndim or have.shape[1:] != out.shape[1:] or have.dtype != out.dtype:
        raise ValueError(f"lax.ragged_all_to_all: operand ({have}) and output ({out}) must agree in dtype and in all dimensions but the first")
    for name, value in (("input_offsets", input_offsets), ("send_sizes", send_sizes), ("output_offsets", output_offsets), ("recv_sizes", recv_sizes)):
        t = typeof(value)
        if t.shape != (n,) or not dtypes.is_integer(t.dtype):
            raise ValueError(f"lax.ragged_all_to_all: {name} must be {n} integers, one for each axis index, got {t}")
    if not have.shape[0]:
        return output
    me = axis_index(names)
    if groups is not None:
        place = np.array([group.index(i) for i in range(math.prod(sizes)) for group in groups if i in group], np.int32)
        me = slicing.dynamic_index_in_dim(place, me, 0, False)
    told = [slicing.dynamic_index_in_dim(all_gather(shapes.convert_element_type(v, dtypes.int32), names, axis_index_groups=groups), me, 1, False)
            for v in (input_offsets, send_sizes, output_offsets)]
    starts, counts, places = [shapes.broadcast_in_dim(v, (n, out.shape[0]), (0,)) for v in told]              # by source and row of the result
    row = elementwise.sub(broadcasted_iota(np.int32, (n, out.shape[0]), 1), places)
    arrives = elementwise.bitwise_and(elementwise.ge(row, np.int32(0)), elementwise.lt(row, counts))
    flat = elementwise.add(elementwise.mul(broadcasted_iota(np.int32, (n, out.shape[0]), 0), np.int32(have.shape[0])), elementwise.add(starts, row))
    source = reductions.reduce_max(selection.select(arrives, flat, shapes.broadcast(np.int32(-1), (n, out.shape[0]))), (0,))
    rows = _merge(all_gather(operand, names, axis_index_groups=groups), 0)
    taken = gather_slices(rows, shapes.expand_dims(source, (1,)), GatherDimensionNumbers(tuple(range(1, out.ndim)), (0,), (0,)), (1, *out.shape[1:]),
                          mode="clip")
    known = shapes.broadcast_in_dim(elementwise.ge(source, np.int32(0)), out.shape, (0,))
    return selection.select(known, taken, output)


def ppermute(x, axis_name, perm: Sequence[tuple[int, int]]):
    """Each (source, destination) of perm sends x from one axis index to another; who is no destination gets zeros.

    Raises ValueError where an index occurs twice as a source or as a destination or is out of bounds, NameError for a name that
    is not in scope.
    """
    names, sizes, _, n = _scope(axis_name, None)
    perm = tuple([(operator.index(s), operator.index(d)) for s, d in perm])
    for what, ends in (("source", [s for s, _ in perm]), ("destination", [d for _, d in perm])):
        if len(set(ends)) != len(ends) or not all([0 <= i < n for i in ends]):
            raise ValueError(f"lax.ppermute: each {what} must be an index of the axis {axis_name!r}, 0 to {n - 1}, and occur once; "
                             f"got perm={perm}")
    return tree_map(lambda leaf: ppermute_p.bind(leaf, axes=names, sizes=sizes, perm=perm), x)


def pshuffle(x, axis_name, perm: Sequence[int]):
    """x from the axis index perm[i], at axis index i. perm is a permutation of all indices, else ValueError."""
    n = axis_size(axis_name)
    if sorted(perm) != list(range(n)):
        raise ValueError(f"lax.pshuffle: perm must be a permutation of the indices 0 to {n - 1} of the axis {axis_name!r}, got {perm}")
    return ppermute(x, axis_name, list(zip(perm, range(n))))


def pbroadcast(x, axis_name, source: int):
    """x from the axis index `source`, for all. Raises ValueError for a source out of bounds."""
    n, source = axis_size(axis_name), operator.index(source)
    if not 0 <= source < n:
        raise ValueError(f"lax.pbroadcast: source must be an index of the axis {axis_name!r}, 0 to {n - 1}, got {source}")
    chosen = elementwise.eq(axis_index(axis_name), np.int32(source))

    def send(leaf):
        aval = typeof(leaf)
        mine = selection.select(chosen, leaf, shapes.broadcast(np.zeros((), aval.dtype)[()], aval.shape))
        return shapes.convert_element_type(psum(mine, axis_name), aval.dtype, aval.weak_type)
    return tree_map(send, x)


pvary_p = Primitive("pvary", facts={"family": "collectives", "named_axes": True, "axes": lambda params: params["axes"]})
pvary_p.type_rule = lambda x, *, axes: x.update(varying=x.varying | frozenset(axes))
pvary_p.transpose = lambda ct, x, *, axes: x.add(_from_copies(x, ct, axes))
shapes.linear_in_first(pvary_p)


def _pvary_batch(axis, args, dims, *, axes):
    (x,), (dim,) = args, dims
    if axis.name is not None and axis.name in axes and dim is None:
        x, dim = _in_front(x, None, axis.size), 0
    rest = tuple([a for a in axes if a != axis.name])
    return pvary_p.bind(x, axes=rest) if rest else x, dim


pvary_p.batch = _pvary_batch


def pvary(x, axis_name):
    """x, a pytree, of which each index of the named axes has a copy of its own: its type says that it differs along them.

    Derivatives that are summed over an axis (reduce_axes) are those of each copy. Raises NameError for a name that is not in scope.
    """
    names = axis_names(axis_name)
    axis_size(names)

    def vary(leaf):
        missing = tuple([name for name in names if name not in typeof(leaf).varying])
        return pvary_p.bind(leaf, axes=missing) if missing else leaf
    return tree_map(vary, x)


def pcast(x, axis_name, *, to: str):
    """x, as pvary. `to` must be "varying"."""
    if to != "varying":
        raise ValueError(f"lax.pcast: to={to!r} is not possible; psum, pmean, all_gather and pbroadcast make a value the same for all")
    return pvary(x, axis_name)


# --- axis_index -----------------------------------------------------------------------------------------------------------------

axis_index_p = Primitive("axis_index", facts={"family": "collectives", "named_axes": True,
                                              "axes": lambda params: (params["axis_name"],)})
axis_index_p.type_rule = lambda *, axis_name: array_type((), dtypes.int32, False, frozenset([axis_name]))
axis_index_p.jvp = lambda primals, tangents, **params: (axis_index_p.bind(**params), Zero(array_type((), dtypes.float0)))
axis_index_p.batch = lambda axis, args, dims, *, axis_name: (iota(dtypes.int32, axis.size), 0)


def axis_index(axis_name):
    """The index along a named axis, int32: which replica of a pmap, or which example of a vmap, this is.

    Of a tuple of names it is the row-major index over them. Raises NameError for a name that is not in scope.
    """
    index = None
    for name in axis_names(axis_name):
        size, own = _axis_size(name), axis_index_p.bind(axis_name=name)
        index = own if index is None else elementwise.add(elementwise.mul(index, np.int32(size)), own)
    return np.int32(0) if index is None else index
