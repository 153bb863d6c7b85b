"""Reductions of square matrices to condensed form by reflections: Hessenberg form, and tridiagonal form of Hermitian matrices."""
from __future__ import annotations

from mini_jax.core import dtypes
from mini_jax.core.primitive import Primitive
from mini_jax.core.types import array_type
from mini_jax.lax.linalg.matrices import LAPACK, check_matrix, leading_batch

__all__ = ["hessenberg", "hessenberg_p", "tridiagonal", "tridiagonal_p"]

_FACTS = {"family": "linalg", "dtypes": LAPACK, "differentiable": False}
hessenberg_p = Primitive("hessenberg", multiple_results=True, facts=_FACTS)
tridiagonal_p = Primitive("tridiagonal", multiple_results=True, facts=_FACTS)


def hessenberg(a):
    """(h, taus): a = q h qᴴ, where h is zero below its first subdiagonal and q is a product of reflections.

    a: (..., n, n). h: (..., n, n); below the first subdiagonal stand the reflections, in the form that `householder_product` takes of the
    submatrix h[1:, :-1], whose taus: (..., n - 1). Where it does not succeed, and for NaN, the results are NaN. Not differentiable. Raises
    TypeError for other dtypes than float32, float64, complex64 and complex128 and fewer than two dimensions, ValueError for matrices
    that are not square. (LAPACK: gehrd)
    """
    return tuple(hessenberg_p.bind(a))


def _hessenberg_type(a):
    check_matrix("hessenberg", a, square=True)
    return [array_type(a.shape, a.dtype), array_type((*a.shape[:-2], max(a.shape[-1] - 1, 0)), a.dtype)]


def tridiagonal(a, *, lower: bool = True):
    """(t, d, e, taus): a = q t qᴴ, where t is real, symmetric and tridiagonal with diagonal d and off-diagonal e, and q a product of reflections.

    a: (..., n, n), Hermitian, of which only the lower (or upper) triangle is read. t: (..., n, n), with d and e in their places and the
    reflections beyond them; d: (..., n) and e: (..., n - 1), real; taus: (..., n - 1). Where it does not succeed, the results are NaN. Not
    differentiable. Raises TypeError for other dtypes than float32, float64, complex64 and complex128 and fewer than two dimensions,
    ValueError for matrices that are not square. (LAPACK: sytrd, hetrd)
    """
    return tuple(tridiagonal_p.bind(a, lower=bool(lower)))


def _tridiagonal_type(a, *, lower):
    check_matrix("tridiagonal", a, square=True)
    leading, n, real = a.shape[:-2], a.shape[-1], dtypes.to_real(a.dtype)
    beside = (*leading, max(n - 1, 0))
    return [array_type(a.shape, a.dtype), array_type((*leading, n), real), array_type(beside, real), array_type(beside, a.dtype)]


hessenberg_p.type_rule, hessenberg_p.batch = _hessenberg_type, leading_batch(hessenberg_p)
tridiagonal_p.type_rule, tridiagonal_p.batch = _tridiagonal_type, leading_batch(tridiagonal_p)
