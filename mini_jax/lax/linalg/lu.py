"""The LU decomposition with partial pivoting, its permutation, and systems of linear equations solved by it."""
from __future__ import annotations

import operator

from mini_jax.core import dtypes
from mini_jax.core.linear import Accumulator, Zero, zero_like
from mini_jax.core.primitive import Primitive
from mini_jax.core.trace import typeof
from mini_jax.core.types import array_type
from mini_jax.lax.gather import batched_at
from mini_jax.lax.identities import stop_gradient
from mini_jax.lax.iota import broadcasted_iota
from mini_jax.lax.linalg.matrices import (
    LAPACK, check_matrix, identity, leading_batch, lower_triangle, permuted_rows, product, transposed, upper_triangle)
from mini_jax.lax.linalg.triangular import triangular_solve
from mini_jax.lax.shapes import moveaxis, reshape
from mini_jax.lax.slicing import pad, slice_in_dim
from mini_jax.lax.sorting import sort

__all__ = ["lu", "lu_p", "lu_pivots_to_permutation", "lu_pivots_to_permutation_p", "lu_solve_p"]

lu_p = Primitive("lu", multiple_results=True, facts={"family": "linalg", "dtypes": LAPACK})
lu_pivots_to_permutation_p = Primitive("lu_pivots_to_permutation", facts={"family": "linalg", "dtypes": frozenset([dtypes.int32]),
                                                                          "differentiable": False})
lu_solve_p = Primitive("lu_solve", facts={"family": "linalg", "dtypes": LAPACK})


# --- the decomposition -----------------------------------------------------------------------------------------------------------------

def lu(x):
    """[lu, pivots, permutation]: x[permutation] = l u, with l unit lower and u upper triangular, by Gaussian elimination with row exchanges.

    x: (..., m, n). lu: (..., m, n), u on and above its diagonal, l (without its ones) below. pivots: int32 (..., min(m, n)), row i was
    exchanged with row pivots[i] ≥ i, one after the other. permutation: int32 (..., m). A singular x gives zeros on u's diagonal. Raises
    TypeError for other dtypes than float32, float64, complex64 and complex128 and fewer than two dimensions. (LAPACK: getrf)
    """
    return lu_p.bind(x)


def _lu_type(x):
    check_matrix("lu", x)
    leading, (m, n) = x.shape[:-2], x.shape[-2:]
    return [array_type(x.shape, x.dtype), array_type((*leading, min(m, n)), dtypes.int32), array_type((*leading, m), dtypes.int32)]


def _lu_jvp(primals, tangents):
    """With square l and u (padded by the identity) and f = l⁻¹ dx[permutation] u⁻¹: dl = l tril₋₁(f), du = triu(f) u."""
    outs = factors, pivots, permutation = lu_p.bind(*primals)
    if type(tangents[0]) is Zero:
        return outs, [zero_like(y) for y in outs]
    shape = typeof(factors).shape
    m, n = shape[-2:]
    zero, still = typeof(factors).dtype.type(0), [(0, 0, 0)] * (len(shape) - 2)
    l, u = factors, factors
    if m > n:
        l, u = pad(factors, zero, (*still, (0, 0, 0), (0, m - n, 0))), slice_in_dim(factors, 0, n, axis=len(shape) - 2)
    elif n > m:
        l, u = slice_in_dim(factors, 0, m, axis=len(shape) - 1), pad(factors, zero, (*still, (0, n - m, 0), (0, 0, 0)))
        corner = identity((*shape[:-2], n - m, n - m), typeof(factors).dtype)
        u = u + pad(corner, zero, (*still, (m, 0, 0), (m, 0, 0)))
    f = triangular_solve(l, permuted_rows(tangents[0], permutation), left_side=True, lower=True, unit_diagonal=True)
    f = triangular_solve(u, f, left_side=False)
    lower = lower_triangle(l, -1) + identity(typeof(l).shape, typeof(l).dtype)
    tangent = product(lower, lower_triangle(f, -1)) + product(upper_triangle(f), upper_triangle(u))
    return outs, [tangent, zero_like(pivots), zero_like(permutation)]


lu_p.type_rule, lu_p.jvp, lu_p.batch = _lu_type, _lu_jvp, leading_batch(lu_p)


def lu_pivots_to_permutation(pivots, permutation_size: int):
    """The permutation that exchanging row i with row pivots[i], for i = 0, 1, …, makes of 0, …, permutation_size − 1.

    pivots: int32 (..., k), k ≤ permutation_size, entries in [i, permutation_size). Raises TypeError for another dtype, ValueError for k
    too large.
    """
    return lu_pivots_to_permutation_p.bind(pivots, permutation_size=operator.index(permutation_size))


def _permutation_type(pivots, *, permutation_size):
    where = f"lax.linalg.lu_pivots_to_permutation({pivots})"
    if pivots.dtype != dtypes.int32:
        raise TypeError(f"{where}: pivots must be int32")
    if pivots.ndim < 1 or pivots.shape[-1] > permutation_size:
        raise ValueError(f"{where}: pivots must have a last dimension of at most permutation_size={permutation_size}")
    return array_type((*pivots.shape[:-1], permutation_size), dtypes.int32)


lu_pivots_to_permutation_p.type_rule = _permutation_type
lu_pivots_to_permutation_p.batch = leading_batch(lu_pivots_to_permutation_p)


# --- systems of equations ----------------------------------------------------------------------------------------------------------------

def solve(a, b):
    """a⁻¹ b for square matrices a (..., n, n) and b (..., n, m), by one LU decomposition, which derivatives of every order use again."""
    check_matrix("solve", typeof(a), square=True)
    factors, _, permutation = lu(stop_gradient(a))
    return lu_solve_p.bind(a, factors, permutation, b, transpose_a=False)


def _solve_type(a, factors, permutation, b, *, transpose_a):
    check_matrix("lu_solve", a, square=True)
    if b.dtype != a.dtype or b.ndim != a.ndim or b.shape[:-1] != a.shape[:-1]:
        raise TypeError(f"lu_solve: {b} can't be the right side of a system with {a}")
    return array_type(b.shape, b.dtype)


def apply_factors(a, factors, permutation, b, *, transpose_a):
    """x[permutation] = l u: a⁻¹ b = u⁻¹ l⁻¹ b[permutation], and a⁻ᵀ b = (l⁻ᵀ u⁻ᵀ b)[inverse of permutation]."""
    if not transpose_a:
        b = triangular_solve(factors, permuted_rows(b, permutation), left_side=True, lower=True, unit_diagonal=True)
        return triangular_solve(factors, b, left_side=True)
    b = triangular_solve(factors, b, left_side=True, transpose_a=True)
    b = triangular_solve(factors, b, left_side=True, lower=True, unit_diagonal=True, transpose_a=True)
    shape = typeof(permutation).shape
    inverse = sort((permutation, broadcasted_iota(dtypes.int32, shape, len(shape) - 1)))[1]
    return permuted_rows(b, inverse)


def _solve_jvp(primals, tangents, *, transpose_a):
    """a dx = db − da x. The factors are what they are because a is: their own tangents say nothing more."""
    (a, factors, permutation, b), (da, _, _, db) = primals, tangents
    again = lambda right: lu_solve_p.bind(a, factors, permutation, right, transpose_a=transpose_a)
    x = again(b)
    if type(da) is Zero:
        return x, zero_like(x) if type(db) is Zero else again(db)
    moved = product(transposed(da) if transpose_a else da, x)
    return x, again(-moved if type(db) is Zero else db - moved)


def _solve_transpose(ct, a, factors, permutation, b, *, transpose_a):
    if isinstance(b, Accumulator) and b.wanted:
        b.add(lu_solve_p.bind(a, factors, permutation, ct, transpose_a=not transpose_a))


def _solve_batch(axis, args, dims, *, transpose_a):
    """Many right sides of one system are one right side with more columns."""
    (*system, b), (*where, j) = args, dims
    if any([d is not None for d in where]):
        return lu_solve_p.bind(*[batched_at(axis, x, d, 0) for x, d in zip(args, dims)], transpose_a=transpose_a), 0
    b = moveaxis(b, j, typeof(b).ndim - 1)
    wide = typeof(b).shape
    x = lu_solve_p.bind(*system, reshape(b, (*wide[:-2], wide[-2] * wide[-1])), transpose_a=transpose_a)
    return reshape(x, wide), len(wide) - 1


lu_solve_p.type_rule, lu_solve_p.jvp, lu_solve_p.transpose, lu_solve_p.batch = _solve_type, _solve_jvp, _solve_transpose, _solve_batch
