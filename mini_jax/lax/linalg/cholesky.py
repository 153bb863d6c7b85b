"""The Cholesky decomposition of positive definite matrices, and what becomes of it when a product w wᵀ is added to them."""
from __future__ import annotations

from mini_jax.core import dtypes
from mini_jax.core.linear import Zero, zero_like
from mini_jax.core.primitive import Primitive
from mini_jax.core.trace import typeof
from mini_jax.core.types import array_type
from mini_jax.lax.linalg.matrices import (
    LAPACK, check_matrix, columns_of, diagonal, from_lower, hermitian_part, leading_batch, lower_triangle, product, rows_of, transposed, upper_triangle,
    with_diagonal)
from mini_jax.lax.linalg.triangular import triangular_solve

__all__ = ["cholesky", "cholesky_p", "cholesky_update", "cholesky_update_p"]

cholesky_p = Primitive("cholesky", facts={"family": "linalg", "dtypes": LAPACK})
cholesky_update_p = Primitive("cholesky_update", facts={"family": "linalg", "dtypes": frozenset([dtypes.float32, dtypes.float64])})


def cholesky(x, *, symmetrize_input: bool = True):
    """The lower triangular l with positive diagonal and l lᴴ = x.

    x: (..., n, n), Hermitian and positive definite; where it is not, l is NaN (zero above the diagonal). symmetrize_input: take
    (x + xᴴ) / 2 first, so that the gradient is Hermitian too; without it only the lower triangle of x is read. Raises TypeError for other
    dtypes than float32, float64, complex64 and complex128 and fewer than two dimensions, ValueError for matrices that are not square.
    (LAPACK: potrf)
    """
    check_matrix("cholesky", typeof(x), square=True)
    return cholesky_p.bind(hermitian_part(x) if symmetrize_input else x)


def _type(x):
    check_matrix("cholesky", x, square=True)
    return array_type(x.shape, x.dtype)


def _jvp(primals, tangents):
    """dl = l Φ(l⁻¹ dx l⁻ᴴ), where Φ takes the lower triangle and half of the diagonal. (Murray 2016, arXiv:1602.07527)"""
    l = cholesky_p.bind(*primals)
    if type(tangents[0]) is Zero:
        return l, zero_like(l)
    return l, _tangent(l, from_lower(tangents[0]))


def _tangent(l, dx):
    """The tangent of the lower triangular l where x = l lᴴ moves by dx."""
    t = triangular_solve(l, dx, left_side=False, lower=True, transpose_a=True, conjugate_a=True)
    t = triangular_solve(l, t, left_side=True, lower=True)
    half = typeof(t).dtype.type(0.5)
    return product(l, lower_triangle(t) - with_diagonal(diagonal(t) * half))


cholesky_p.type_rule, cholesky_p.jvp, cholesky_p.batch = _type, _jvp, leading_batch(cholesky_p)


# --- rank-one updates --------------------------------------------------------------------------------------------------------------------

def cholesky_update(r_matrix, w_vector):
    """The upper triangular s with sᵀ s = rᵀ r + w wᵀ, by n rotations: O(n²) operations instead of O(n³).

    r_matrix: (..., n, n), of which the upper triangle is read. w_vector: (..., n). The diagonal of s is not negative. Raises TypeError for
    other dtypes than float32 and float64, ValueError for shapes that don't fit. (Golub & Van Loan, Matrix Computations, 6.5.4)
    """
    return cholesky_update_p.bind(r_matrix, w_vector)


def _update_type(r, w):
    check_matrix("cholesky_update", r, square=True)
    if dtypes.is_complex(r.dtype) or w.dtype != r.dtype:
        raise TypeError(f"lax.linalg.cholesky_update({r}, {w}): both operands must be float32, or both float64")
    if w.shape != r.shape[:-1]:
        raise ValueError(f"lax.linalg.cholesky_update({r}, {w}): w_vector must be (..., n) for r_matrix of shape (..., n, n)")
    return array_type(r.shape, r.dtype)


def _update_jvp(primals, tangents):
    """The tangent of the decomposition, where rᵀ r + w wᵀ moves by drᵀ r + rᵀ dr + dw wᵀ + w dwᵀ."""
    (r, w), (dr, dw) = primals, tangents
    s = cholesky_update_p.bind(r, w)
    if type(dr) is Zero and type(dw) is Zero:
        return s, zero_like(s)
    shape, halves = typeof(r).shape, []
    if type(dr) is not Zero:
        halves.append(product(transposed(upper_triangle(r)), upper_triangle(dr)))
    if type(dw) is not Zero:
        halves.append(columns_of(w, shape) * rows_of(dw, shape))
    half = halves[0] if len(halves) == 1 else halves[0] + halves[1]
    return s, transposed(_tangent(transposed(s), half + transposed(half)))


cholesky_update_p.type_rule, cholesky_update_p.jvp, cholesky_update_p.batch = _update_type, _update_jvp, leading_batch(cholesky_update_p)
