"""Ragged products: of matrices whose rows, or contracted entries, or batches come in groups of different sizes, each with a factor of its own.

The groups of a dimension are intervals, one after the other. What lies behind the last group counts for nothing.
"""
from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Sequence

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.lax import elementwise
from mini_jax.lax.cumulative import cumsum
from mini_jax.lax.dot import DotDimensionNumbers, PrecisionLike, dot_general
from mini_jax.lax.iota import broadcasted_iota
from mini_jax.lax.selection import select
from mini_jax.lax.shapes import broadcast_in_dim, convert_element_type, moveaxis, reduce_sum

__all__ = ["ragged_dot", "ragged_dot_general", "RaggedDotDimensionNumbers"]


@dataclass(frozen=True)
class RaggedDotDimensionNumbers:
    """Which dimensions a ragged product contracts and pairs, as for dot_general; the one dimension of lhs that comes in groups; and the
    dimension of rhs, if any, that has an entry for each group."""
    dot_dimension_numbers: DotDimensionNumbers
    lhs_ragged_dimensions: Sequence[int]
    rhs_group_dimensions: Sequence[int]

    def __post_init__(self):
        ints = lambda dims: tuple([operator.index(d) for d in dims])
        (a, b), (c, d) = self.dot_dimension_numbers
        object.__setattr__(self, "dot_dimension_numbers", ((ints(a), ints(b)), (ints(c), ints(d))))
        object.__setattr__(self, "lhs_ragged_dimensions", ints(self.lhs_ragged_dimensions))
        object.__setattr__(self, "rhs_group_dimensions", ints(self.rhs_group_dimensions))


def ragged_dot(lhs, rhs, group_sizes, precision: PrecisionLike = None, preferred_element_type=None, group_offset=None):
    """out[i] = lhs[i] · rhs[g], where row i of lhs belongs to group g: the first group_sizes[0] rows to group 0, the next to 1, ….

    lhs: (m, k). rhs: (g, k, n). group_sizes: integers (g,). Rows behind the last group give 0. precision, preferred_element_type: as for dot_general.
    group_offset is not supported (NotImplementedError). Returns (m, n). Raises TypeError for operands that are not such.
    """
    a, b, sizes = typeof(lhs), typeof(rhs), typeof(group_sizes)
    if a.ndim != 2 or b.ndim != 3 or sizes.ndim != 1:
        raise TypeError(f"lax.ragged_dot({a}, {b}, {sizes}): lhs must be (m, k), rhs (g, k, n) and group_sizes (g,)")
    numbers = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))
    return ragged_dot_general(lhs, rhs, group_sizes, numbers, precision, preferred_element_type, group_offset)


def ragged_dot_general(lhs, rhs, group_sizes, ragged_dot_dimension_numbers: RaggedDotDimensionNumbers, precision: PrecisionLike = None,
                       preferred_element_type=None, group_offset=None):
    """dot_general where one dimension of lhs comes in groups, whose sizes are the last dimension of group_sizes.

    With b batch, k contracted, m and n other dimensions, the ragged one among
        m: lhs [b, m, k], rhs [g, b, k, n] -> [b, m, n]: each group of m has its own rhs;
        k: lhs [b, m, k], rhs [b, k, n] -> [g, b, m, n]: each group of k has its own product;
        b: lhs [b, m, k], rhs [b, k, n] -> [b, m, n]: batches behind the last group give 0.
    group_sizes: integers (g,), the same for all other indices. precision, preferred_element_type: as for dot_general. group_offset, and group
    sizes of more dimensions, are not supported (NotImplementedError). Raises TypeError for dimensions and dtypes that don't fit.
    """
    a, b, sizes, numbers = typeof(lhs), typeof(rhs), typeof(group_sizes), ragged_dot_dimension_numbers
    where = f"lax.ragged_dot_general({a}, {b}, {sizes})"
    if not isinstance(numbers, RaggedDotDimensionNumbers):
        raise TypeError(f"{where}: ragged_dot_dimension_numbers must be RaggedDotDimensionNumbers, got {numbers!r:.200}")
    (contract, rhs_contract), (batch, rhs_batch) = numbers.dot_dimension_numbers
    if group_offset is not None:
        raise NotImplementedError(f"{where}: group_offset must be None; cut rhs and group_sizes instead")
    if not dtypes.is_integer(sizes.dtype):
        raise TypeError(f"{where}: group_sizes must be integers, got {sizes}")
    if sizes.ndim > 1:
        raise NotImplementedError(f"{where}: group_sizes must be (g,); map over the others with vmap")
    if sizes.ndim != 1:
        raise TypeError(f"{where}: group_sizes must be (g,), got {sizes}")
    if len(numbers.lhs_ragged_dimensions) != 1 or not 0 <= numbers.lhs_ragged_dimensions[0] < a.ndim:
        raise TypeError(f"{where}: there must be one ragged dimension, one of lhs's {a.ndim}, got {numbers.lhs_ragged_dimensions}")
    ragged, = numbers.lhs_ragged_dimensions
    groups, of_rows = sizes.shape[0], ragged not in contract and ragged not in batch
    if len(numbers.rhs_group_dimensions) != of_rows:
        raise TypeError(f"{where}: rhs must have {'one group dimension' if of_rows else 'no group dimensions'} where the ragged dimension is one "
                        f"that {'remains' if of_rows else 'is contracted or a batch'}, got {numbers.rhs_group_dimensions}")
    dot = lambda x, y, numbers: dot_general(x, y, numbers, precision, preferred_element_type)
    if ragged in batch:
        return dot(_where(lhs, _in_any_group(group_sizes, a.shape[ragged]), (ragged,)), rhs, numbers.dot_dimension_numbers)
    grouped = broadcast_in_dim(lhs, (groups, *a.shape), tuple(range(1, a.ndim + 1)))
    grouped = _where(grouped, _in_group(group_sizes, a.shape[ragged]), (0, ragged + 1))          # [g, lhs], zero outside of group g
    after = lambda dims: tuple([d + 1 for d in dims])
    if not of_rows:                                      # each group's part of lhs with all of rhs; then groups in front
        out = dot(grouped, rhs, ((after(contract), rhs_contract), (after(batch), rhs_batch)))
        return moveaxis(out, len(batch), 0)
    place, = numbers.rhs_group_dimensions
    if not 0 <= place < b.ndim or b.shape[place] != groups:
        raise TypeError(f"{where}: expected rhs group dimension size to be {groups}, got rhs of shape {b.shape} with group dimension {place}")
    return dot(grouped, rhs, (((0, *after(contract)), (place, *rhs_contract)), (after(batch), rhs_batch)))


def _ends(group_sizes):
    return cumsum(convert_element_type(group_sizes, dtypes.int32), 0)


def _in_group(group_sizes, size: int):
    """bool[g, size]: which positions belong to which group."""
    ends = _ends(group_sizes)
    starts = elementwise.sub(ends, convert_element_type(group_sizes, dtypes.int32))
    shape = (typeof(ends).shape[0], size)
    position, wide = broadcasted_iota(dtypes.int32, shape, 1), lambda x: broadcast_in_dim(x, shape, (0,))
    return elementwise.bitwise_and(elementwise.ge(position, wide(starts)), elementwise.lt(position, wide(ends)))


def _in_any_group(group_sizes, size: int):
    """bool[size]: which positions lie before the end of the last group."""
    total = reduce_sum(convert_element_type(group_sizes, dtypes.int32), (0,))
    return elementwise.lt(broadcasted_iota(dtypes.int32, (size,), 0), total)


def _where(x, mask, dims: tuple[int, ...]):
    """x where the mask, over these of its dimensions, holds; else 0."""
    aval = typeof(x)
    return select(broadcast_in_dim(mask, aval.shape, dims), x, broadcast_in_dim(np.zeros((), aval.dtype)[()], aval.shape, ()))
