"""Matrices, the last two dimensions of arrays: products, triangles, diagonals, and what all decompositions ask of their operands."""
from __future__ import annotations

from typing import Callable

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.primitive import Primitive
from mini_jax.core.trace import typeof
from mini_jax.lax import elementwise
from mini_jax.lax.dot import Precision, dot_general
from mini_jax.lax.gather import GatherDimensionNumbers, GatherScatterMode, batched_at, gather
from mini_jax.lax.iota import broadcasted_iota
from mini_jax.lax.selection import select
from mini_jax.lax.shapes import broadcast_in_dim, convert_element_type, reduce_sum, reshape, transpose

LAPACK = frozenset([dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128])


# --- operands ----------------------------------------------------------------------------------------------------------------------

def check_matrix(name: str, x, square: bool = False) -> None:
    """Raise unless the type x is of (square) matrices in a dtype that LAPACK computes in."""
    if x.dtype not in LAPACK:
        raise TypeError(f"lax.linalg.{name}({x}): dtype {x.dtype} is not accepted; it takes float32, float64, complex64 and complex128, so "
                        "convert the operand first")
    if x.ndim < 2:
        raise TypeError(f"lax.linalg.{name}({x}): the operand must have at least two dimensions, got shape {x.shape}")
    if square and x.shape[-1] != x.shape[-2]:
        raise ValueError(f"lax.linalg.{name}({x}): the operand must be square matrices, got shape {x.shape}")


def leading_batch(primitive: Primitive) -> Callable:
    """Batching of an operation on the last dimensions: one more leading dimension of all operands."""
    def rule(axis, args, dims, **params):
        out = primitive.bind(*[batched_at(axis, x, d, 0) for x, d in zip(args, dims)], **params)
        return out, [0] * len(out) if primitive.multiple_results else 0
    return rule


# --- products and transposes ---------------------------------------------------------------------------------------------------------

def product(x, y):
    """x y, in full precision."""
    n = typeof(x).ndim
    leading = tuple(range(n - 2))
    return dot_general(x, y, (((n - 1,), (n - 2,)), (leading, leading)), precision=Precision.HIGHEST)


def transposed(x):
    """xᵀ."""
    n = typeof(x).ndim
    return transpose(x, (*range(n - 2), n - 1, n - 2))


def conjugate(x):
    """x̄, of x's dtype."""
    return elementwise.conj(x) if dtypes.is_complex(typeof(x).dtype) else x


def real_part(x):
    return elementwise.real(x) if dtypes.is_complex(typeof(x).dtype) else x


def adjoint(x):
    """xᴴ, the conjugate transpose."""
    return conjugate(transposed(x))


def hermitian_part(x):
    """(x + xᴴ) / 2."""
    return (x + adjoint(x)) * typeof(x).dtype.type(0.5)


# --- triangles and diagonals ---------------------------------------------------------------------------------------------------------

def _positions(shape):
    return [broadcasted_iota(dtypes.int32, shape[-2:], d) for d in (0, 1)]


def _where(mask, x, y):
    shape = typeof(x).shape
    return select(broadcast_in_dim(mask, shape, (len(shape) - 2, len(shape) - 1)), x, y)


def zeros(shape, dtype):
    return broadcast_in_dim(dtype.type(0), shape, ())


def lower_triangle(x, k: int = 0):
    """The entries on and below diagonal k, and zeros."""
    i, j = _positions(typeof(x).shape)
    return _where(elementwise.ge(i + np.int32(k), j), x, zeros(typeof(x).shape, typeof(x).dtype))


def upper_triangle(x, k: int = 0):
    """The entries on and above diagonal k, and zeros."""
    i, j = _positions(typeof(x).shape)
    return _where(elementwise.le(i + np.int32(k), j), x, zeros(typeof(x).shape, typeof(x).dtype))


def identity(shape, dtype):
    """Identity matrices: an array of `shape` with ones on the diagonal."""
    i, j = _positions(shape)
    return convert_element_type(broadcast_in_dim(elementwise.eq(i, j), shape, (len(shape) - 2, len(shape) - 1)), dtype)


def with_diagonal(d):
    """The square matrices whose diagonals are the last dimension of d."""
    shape = (*typeof(d).shape, typeof(d).shape[-1])
    i, j = _positions(shape)
    return _where(elementwise.eq(i, j), rows_of(d, shape), zeros(shape, typeof(d).dtype))


def diagonal(x):
    """The diagonals of square matrices."""
    i, j = _positions(typeof(x).shape)
    return reduce_sum(_where(elementwise.eq(i, j), x, zeros(typeof(x).shape, typeof(x).dtype)), (typeof(x).ndim - 1,))


def rows_of(d, shape):
    """Matrices all of whose rows are the vector d: entry ij is dⱼ, so that multiplying by them scales columns."""
    n = len(shape)
    return broadcast_in_dim(d, shape, (*range(n - 2), n - 1))


def columns_of(d, shape):
    """Matrices all of whose columns are the vector d: entry ij is dᵢ."""
    return broadcast_in_dim(d, shape, tuple(range(len(shape) - 1)))


def from_lower(x):
    """The Hermitian matrix whose lower triangle is that of x (its diagonal: the real part)."""
    below = lower_triangle(x, -1)
    return below + adjoint(below) + with_diagonal(convert_element_type(real_part(diagonal(x)), typeof(x).dtype))


# --- permutations ----------------------------------------------------------------------------------------------------------------------

def permuted_rows(x, permutation):
    """Row i of the result is row permutation[i] of x; both have the same leading dimensions."""
    shape = typeof(x).shape
    if 0 in shape:
        return x
    k = len(shape) - 2
    leading = tuple(range(k))
    numbers = GatherDimensionNumbers(offset_dims=(k + 1,), collapsed_slice_dims=(k,), start_index_map=(k,),
                                     operand_batching_dims=leading, start_indices_batching_dims=leading)
    return gather(x, reshape(permutation, (*typeof(permutation).shape, 1)), numbers, (*(1,) * (k + 1), shape[-1]), unique_indices=True,
                  mode=GatherScatterMode.PROMISE_IN_BOUNDS)
