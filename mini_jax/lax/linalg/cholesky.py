"""The Cholesky decomposition of positive definite matrices."""
from __future__ import annotations

from mini_jax.core.linear import Zero, zero_like
from mini_jax.core.primitive import Primitive
from mini_jax.core.trace import typeof
from mini_jax.core.types import array_type
from mini_jax.lax.linalg.matrices import (
    LAPACK, check_matrix, diagonal, from_lower, hermitian_part, leading_batch, lower_triangle, product, with_diagonal)
from mini_jax.lax.linalg.triangular import triangular_solve

__all__ = ["cholesky", "cholesky_p"]

cholesky_p = Primitive("cholesky", facts={"family": "linalg", "dtypes": LAPACK})


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
    t = triangular_solve(l, from_lower(tangents[0]), left_side=False, lower=True, transpose_a=True, conjugate_a=True)
    t = triangular_solve(l, t, left_side=True, lower=True)
    half = typeof(t).dtype.type(0.5)
    return l, product(l, lower_triangle(t) - with_diagonal(diagonal(t) * half))


cholesky_p.type_rule, cholesky_p.jvp, cholesky_p.batch = _type, _jvp, leading_batch(cholesky_p)
