"""Sorting: sort, of one or several arrays together, and top_k, exact and approximate."""
from __future__ import annotations

import operator

from mini_jax.core import dtypes
from mini_jax.core.linear import Zero, zero_like
from mini_jax.core.primitive import Primitive
from mini_jax.core.trace import typeof
from mini_jax.core.types import array_type
from mini_jax.lax.elementwise import neg
from mini_jax.lax.gather import GatherDimensionNumbers, GatherScatterMode, batched_at, gather
from mini_jax.lax.iota import broadcasted_iota
from mini_jax.lax.rows import ANY, BOOL, REALS, dtype_list
from mini_jax.lax.shapes import canonical_axis, reshape

__all__ = ["sort", "sort_key_val", "top_k", "approx_max_k", "approx_min_k", "sort_p", "top_k_p"]

sort_p = Primitive("sort", multiple_results=True, facts={"family": "sorting", "dtypes": ANY})
top_k_p = Primitive("top_k", multiple_results=True, facts={"family": "sorting", "dtypes": REALS | BOOL})


def sort(operand, dimension: int = -1, is_stable: bool = True, num_keys: int = 1):
    """The operand in ascending order along `dimension`: an array, or a tuple of arrays that are permuted together.

    operand: an array, or a sequence of arrays of one shape, of which the first num_keys, the first one foremost, decide the
    order. -0 and 0 are equal, NaN comes last, False before True; complex numbers go by the real, then by the imaginary part.
    is_stable: equal entries keep their order (here they do in any case).
    Raises TypeError for no operand and for shapes that differ, ValueError for a dimension or a num_keys out of bounds.
    """
    several = isinstance(operand, (tuple, list))
    operands = tuple(operand) if several else (operand,)
    if not operands:
        raise TypeError("lax.sort: there is no operand")
    if not 1 <= num_keys <= len(operands):
        raise ValueError(f"lax.sort: num_keys={num_keys} must lie between 1 and the number of operands, {len(operands)}")
    dimension = canonical_axis(dimension, typeof(operands[0]).ndim)
    out = sort_p.bind(*operands, dimension=dimension, is_stable=bool(is_stable), num_keys=operator.index(num_keys))
    return tuple(out) if several else out[0]


def sort_key_val(keys, values, dimension: int = -1, is_stable: bool = True):
    """(keys in ascending order along `dimension`, values in the same permutation), both of one shape. See `sort`."""
    return sort((keys, values), dimension, is_stable)


def top_k(operand, k: int, *, axis: int = -1, is_stable: bool = True):
    """[values, indices] of the k greatest entries along `axis`, the greatest first and of equal ones the first.

    operand: real numbers or booleans, in the total order in which -NaN < -inf and inf < NaN. values: of the operand's dtype, with
    size k along axis. indices: int32. Raises ValueError for a k below 0 or above the size of the axis, and for an axis out of
    bounds, and for complex operands. is_stable: whether the order of equal entries matters; it is kept in either case.
    """
    k = operator.index(k)
    return top_k_p.bind(operand, k=k, axis=canonical_axis(axis, typeof(operand).ndim))


def approx_max_k(operand, k: int, reduction_dimension: int = -1, recall_target: float = 0.95, reduction_input_size_override: int = -1,
                 aggregate_to_topk: bool = True) -> tuple:
    """(values, indices) of about the k greatest entries along reduction_dimension, the greatest first.

    Here, as on every platform without a kernel that saves time by missing some, they are exactly the k greatest. recall_target: how many of
    them may be missing, in (0, 1]. aggregate_to_topk False: candidates instead, among which they are; here these are all entries, sorted.
    reduction_input_size_override: the size that the candidates are chosen for, -1 or at least that of the dimension. Raises ValueError
    for other than floating dtypes and for the other arguments. (Chern et al., TPU-KNN, 2022)
    """
    return _approximate("approx_max_k", operand, k, reduction_dimension, recall_target, reduction_input_size_override, aggregate_to_topk)


def approx_min_k(operand, k: int, reduction_dimension: int = -1, recall_target: float = 0.95, reduction_input_size_override: int = -1,
                 aggregate_to_topk: bool = True) -> tuple:
    """(values, indices) of about the k smallest entries along reduction_dimension, the smallest first. See `approx_max_k`."""
    values, indices = _approximate("approx_min_k", neg(operand), k, reduction_dimension, recall_target, reduction_input_size_override, aggregate_to_topk)
    return neg(values), indices


def _approximate(name: str, x, k, axis, recall_target, override, aggregate: bool) -> tuple:
    aval, k = typeof(x), operator.index(k)
    if not dtypes.is_floating(aval.dtype):
        raise ValueError(f"lax.{name}({aval}): the operand must be floating; top_k takes other dtypes")
    axis = canonical_axis(axis, aval.ndim)
    size = aval.shape[axis]
    if not 0 <= k <= size:
        raise ValueError(f"lax.{name}({aval}): k must lie between 0 and the size {size} of dimension {axis}, got {k}")
    if not 0 < recall_target <= 1:
        raise ValueError(f"lax.{name}({aval}): recall_target must lie in (0, 1], got {recall_target}")
    if override != -1 and operator.index(override) < size:
        raise ValueError(f"lax.{name}({aval}): reduction_input_size_override must be -1 or at least {size}, got {override}")
    return tuple(top_k(x, k if aggregate else size, axis=axis))


def _sort_type(*types, dimension, is_stable, num_keys):
    for t in types:
        if t.shape != types[0].shape:
            raise TypeError(f"lax.sort: operands must have one shape, got {', '.join(map(str, types))}")
        if t.dtype not in ANY:
            raise TypeError(f"lax.sort: operands of dtype {t.dtype} can't be sorted")
    return list(types)


def _sort_jvp(primals, tangents, **params):
    """The tangents go where their primals go."""
    if all([type(t) is Zero for t in tangents]):
        outs = sort_p.bind(*primals, **params)
        return outs, [zero_like(y) for y in outs]
    dimension = params["dimension"]
    *outs, permutation = sort_p.bind(*primals, broadcasted_iota(dtypes.int32, typeof(primals[0]).shape, dimension), **params)
    return outs, [zero_like(y) if type(t) is Zero else take_along(t, permutation, dimension) for y, t in zip(outs, tangents)]


def take_along(x, indices, axis: int):
    """x at `indices` along `axis`, each row of indices taken in its own row; they are distinct and within bounds."""
    shape = typeof(indices).shape
    others = tuple([d for d in range(len(shape)) if d != axis])
    numbers = GatherDimensionNumbers((), (axis,), (axis,), others, others)
    return gather(x, reshape(indices, (*shape, 1)), numbers, (1,) * len(shape), unique_indices=True,
                  mode=GatherScatterMode.PROMISE_IN_BOUNDS)


def _sort_batch(axis, args, dims, *, dimension, **params):
    d = next(d for d in dims if d is not None)
    args = [batched_at(axis, x, have, d) for x, have in zip(args, dims)]
    return sort_p.bind(*args, dimension=dimension + (d <= dimension), **params), [d] * len(args)


def _top_k_type(x, *, k, axis):
    if dtypes.is_complex(x.dtype):
        raise ValueError(f"lax.top_k({x}): complex numbers have no order; take the top of their absolute values")
    if x.dtype not in REALS | BOOL:
        raise TypeError(f"lax.top_k({x}): dtype {x.dtype} is not accepted; it takes {dtype_list(REALS | BOOL)}")
    if k < 0:
        raise ValueError(f"lax.top_k({x}): k must not be negative, got {k}")
    if k > x.shape[axis]:
        raise ValueError(f"lax.top_k({x}): k={k} is more than there is along axis {axis}, which has size {x.shape[axis]}")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1:])
    return [x.update(shape=shape), array_type(shape, dtypes.int32)]


def _top_k_jvp(primals, tangents, *, k, axis):
    (x,), (t,) = primals, tangents
    values, indices = top_k_p.bind(x, k=k, axis=axis)
    return [values, indices], [zero_like(values) if type(t) is Zero else take_along(t, indices, axis), zero_like(indices)]


def _top_k_batch(_, args, dims, *, k, axis):
    return top_k_p.bind(*args, k=k, axis=axis + (dims[0] <= axis)), [dims[0]] * 2


sort_p.type_rule, sort_p.jvp, sort_p.batch = _sort_type, _sort_jvp, _sort_batch
top_k_p.type_rule, top_k_p.jvp, top_k_p.batch = _top_k_type, _top_k_jvp, _top_k_batch
