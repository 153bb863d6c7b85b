"""Eigenvalues and eigenvectors: of Hermitian matrices (eigh), of all square matrices (eig)."""
from __future__ import annotations

import enum

from mini_jax.core import dtypes
from mini_jax.core.linear import Zero, zero_like
from mini_jax.core.primitive import Primitive
from mini_jax.core.trace import typeof
from mini_jax.core.types import array_type
from mini_jax.lax.linalg.lu import solve
from mini_jax.lax.linalg.matrices import (
    LAPACK, adjoint, check_matrix, columns_of, conjugate, diagonal, from_lower, hermitian_part, identity, leading_batch, product, real_part,
    rows_of)
from mini_jax.lax.shapes import convert_element_type, reduce_sum
from mini_jax.lax.slicing import slice_in_dim

__all__ = ["eigh", "eigh_p", "eig", "eig_p", "EighImplementation", "EigImplementation"]

eigh_p = Primitive("eigh", multiple_results=True, facts={"family": "linalg", "dtypes": LAPACK})
eig_p = Primitive("eig", multiple_results=True, facts={"family": "linalg", "dtypes": LAPACK})


class EighImplementation(enum.Enum):
    """Algorithms of `eigh`. On CPU there is LAPACK's alone, divide and conquer, whichever is named."""
    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


class EigImplementation(enum.Enum):
    """Implementations of `eig`. On CPU there is LAPACK's alone."""
    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


# --- Hermitian matrices ------------------------------------------------------------------------------------------------------------------

def eigh(x, *, lower: bool = True, symmetrize_input: bool = True, sort_eigenvalues: bool = True,
         subset_by_index: tuple[int, int] | None = None, implementation: EighImplementation | None = None):
    """(v, w): x v = v diag(w), v unitary, w real and ascending.

    x: (..., n, n), Hermitian. symmetrize_input: take (x + xᴴ) / 2 first; without it only the lower (or upper) triangle of x is read.
    subset_by_index: (first, end), only the eigenvalues and vectors w[first:end]. sort_eigenvalues and implementation change nothing on CPU.
    Where it does not converge, and for NaN, the results are NaN. The derivative of v is that with a zero diagonal of vᴴ dv, and infinite or
    NaN where eigenvalues coincide; that of w is right everywhere. Raises TypeError for other dtypes than float32, float64, complex64 and
    complex128 and fewer than two dimensions, ValueError for matrices that are not square and an empty subset. (LAPACK: syevd, heevd)
    """
    check_matrix("eigh", typeof(x), square=True)
    v, w = eigh_p.bind(hermitian_part(x) if symmetrize_input else x, lower=bool(lower))
    if subset_by_index is not None:
        first, end = subset_by_index
        n = typeof(x).shape[-1]
        if not 0 <= first < end <= n:
            raise ValueError(f"lax.linalg.eigh: subset_by_index={subset_by_index} must name a range within the {n} eigenvalues")
        v, w = [slice_in_dim(y, first, end, axis=typeof(y).ndim - 1) for y in (v, w)]
    return v, w


def _eigh_type(x, *, lower):
    check_matrix("eigh", x, square=True)
    return [array_type(x.shape, x.dtype), array_type(x.shape[:-1], dtypes.to_real(x.dtype))]


def _eigh_jvp(primals, tangents, *, lower):
    """dw = diag(vᴴ dx v), dv = v (f ∘ vᴴ dx v) with fᵢⱼ = 1 / (wⱼ − wᵢ) and no diagonal. (Magnus 1985)"""
    v, w = eigh_p.bind(*primals, lower=lower)
    if type(tangents[0]) is Zero:
        return [v, w], [zero_like(v), zero_like(w)]
    dx = from_lower(tangents[0] if lower else adjoint(tangents[0]))
    change = product(product(adjoint(v), dx), v)
    shape, dtype = typeof(v).shape, typeof(w).dtype
    one = identity(shape, dtype)
    factors = 1 / (rows_of(w, shape) - columns_of(w, shape) + one) - one
    return [v, w], [product(v, convert_element_type(factors, typeof(v).dtype) * change), real_part(diagonal(change))]


eigh_p.type_rule, eigh_p.jvp, eigh_p.batch = _eigh_type, _eigh_jvp, leading_batch(eigh_p)


# --- all square matrices -------------------------------------------------------------------------------------------------------------------

def eig(x, *, compute_left_eigenvectors: bool = True, compute_right_eigenvectors: bool = True, enable_eigvec_derivs: bool = False,
        implementation: EigImplementation | None = None, use_magma: bool | None = None):
    """[w], then the left eigenvectors vl, then the right ones vr, as wanted: x vr = vr diag(w), vlᴴ x = diag(w) vlᴴ; all of them complex.

    x: (..., n, n). w: (..., n), in no order; vl, vr: (..., n, n), columns of norm 1. Where it does not converge, and for NaN, the results
    are NaN. Eigenvalues are differentiable where they are distinct. Eigenvectors are where enable_eigvec_derivs is set, which asserts that
    the result depends neither on their phases nor their norms. implementation and use_magma concern no platform here. Raises TypeError
    for other dtypes than float32, float64, complex64 and complex128 and fewer than two dimensions, ValueError for matrices that are not square.
    (LAPACK: geev)
    """
    return eig_p.bind(x, left=bool(compute_left_eigenvectors), right=bool(compute_right_eigenvectors), enable_eigvec_derivs=bool(enable_eigvec_derivs))


def _eig_type(x, *, left, right, enable_eigvec_derivs):
    check_matrix("eig", x, square=True)
    dtype = dtypes.complex128 if dtypes.to_real(x.dtype) == dtypes.float64 else dtypes.complex64
    return [array_type(x.shape[:-1], dtype)] + [array_type(x.shape, dtype)] * (left + right)


def _eig_jvp(primals, tangents, *, left, right, enable_eigvec_derivs):
    """With c = v⁻¹ dx v: dw = diag(c), and dv = v (f ∘ c) with fᵢⱼ = 1 / (wⱼ − wᵢ), less what lies along v itself. The left eigenvectors
    are the right ones of xᴴ, whose eigenvalues are w̄."""
    if type(tangents[0]) is Zero:
        outs = eig_p.bind(*primals, left=left, right=right, enable_eigvec_derivs=enable_eigvec_derivs)
        return outs, [zero_like(y) for y in outs]
    if (left or right) and not enable_eigvec_derivs:
        raise NotImplementedError("the derivatives of eigenvectors of matrices that are not symmetric have a meaning only for functions that "
                                  "don't depend on the vectors' phases and norms; pass enable_eigvec_derivs=True to lax.linalg.eig to say that "
                                  "yours is such, or ask for the eigenvalues alone")
    w, *vectors = eig_p.bind(*primals, left=left, right=True, enable_eigvec_derivs=enable_eigvec_derivs)
    v = vectors[-1]
    dx = convert_element_type(tangents[0], typeof(v).dtype)
    change = solve(v, product(dx, v))
    found, moved = [w, *vectors[:left + right]], [diagonal(change)]
    if left:
        vl = vectors[0]
        moved.append(_vector_tangent(conjugate(w), vl, solve(vl, product(adjoint(dx), vl))))
    if right:
        moved.append(_vector_tangent(w, v, change))
    return found, moved


def _vector_tangent(w, v, change):
    shape = typeof(v).shape
    one = identity(shape, typeof(v).dtype)
    dv = product(v, (1 / (rows_of(w, shape) - columns_of(w, shape) + one) - one) * change)
    along = reduce_sum(conjugate(v) * dv, (len(shape) - 2,))
    return dv - v * rows_of(along, shape)


eig_p.type_rule, eig_p.jvp, eig_p.batch = _eig_type, _eig_jvp, leading_batch(eig_p)
