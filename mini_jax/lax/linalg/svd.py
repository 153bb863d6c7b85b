"""The singular value decomposition."""
from __future__ import annotations

import enum

from mini_jax.core import dtypes
from mini_jax.core.linear import Zero, zero_like
from mini_jax.core.primitive import Primitive
from mini_jax.core.trace import typeof
from mini_jax.core.types import array_type
from mini_jax.lax.elementwise import complex as complex_, imag
from mini_jax.lax.linalg.matrices import (
    LAPACK, adjoint, check_matrix, columns_of, diagonal, identity, leading_batch, product, real_part, rows_of, with_diagonal, zeros)
from mini_jax.lax.shapes import convert_element_type
from mini_jax.lax.slicing import slice_in_dim

__all__ = ["svd", "svd_p", "SvdAlgorithm"]

svd_p = Primitive("svd", multiple_results=True, facts={"family": "linalg", "dtypes": LAPACK})


class SvdAlgorithm(enum.Enum):
    """Algorithms of `svd`. On CPU: QR iteration (LAPACK: gesvd), and divide and conquer (gesdd), which DEFAULT and the others mean."""
    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"


def svd(x, *, full_matrices: bool = True, compute_uv: bool = True, subset_by_index: tuple[int, int] | None = None,
        algorithm: SvdAlgorithm | None = None):
    """(u, s, vᴴ) with x = u diag(s) vᴴ, s descending; without compute_uv, s alone.

    x: (..., m, n), k = min(m, n). s: (..., k), real. u: (..., m, m) and vᴴ: (..., n, n), unitary; without full_matrices only their first k
    columns and rows. subset_by_index: (first, end), only the singular values and vectors of that range, for which full_matrices must be
    False. Where it does not converge, and for NaN, the results are NaN. The derivatives of u and v need full_matrices=False or a square x,
    and distinct singular values other than zero. Raises TypeError for other dtypes than float32, float64, complex64 and complex128 and fewer than
    two dimensions, ValueError for a subset that is empty or comes with full_matrices.
    """
    algorithm = None if algorithm is None else SvdAlgorithm(algorithm)
    s, *uv = svd_p.bind(x, full_matrices=bool(full_matrices), compute_uv=bool(compute_uv), iterate=algorithm is SvdAlgorithm.QR)
    if subset_by_index is not None:
        first, end = subset_by_index
        k = typeof(s).shape[-1]
        if not 0 <= first < end <= k:
            raise ValueError(f"lax.linalg.svd: subset_by_index={subset_by_index} must name a range within the {k} singular values")
        if full_matrices and compute_uv and (first, end) != (0, k):
            raise ValueError("lax.linalg.svd: a part of the singular vectors (subset_by_index) needs full_matrices=False")
        part = lambda y, axis: slice_in_dim(y, first, end, axis=axis)
        s = part(s, typeof(s).ndim - 1)
        uv = [part(uv[0], typeof(s).ndim), part(uv[1], typeof(s).ndim - 1)] if uv else []
    return (uv[0], s, uv[1]) if uv else s


def _type(x, *, full_matrices, compute_uv, iterate):
    check_matrix("svd", x)
    leading, (m, n) = x.shape[:-2], x.shape[-2:]
    k = min(m, n)
    s = array_type((*leading, k), dtypes.to_real(x.dtype))
    if not compute_uv:
        return [s]
    return [s, array_type((*leading, m, m if full_matrices else k), x.dtype), array_type((*leading, n if full_matrices else k, n), x.dtype)]


def _jvp(primals, tangents, *, full_matrices, compute_uv, iterate):
    """With c = uᴴ dx v: ds = diag(c), du = u (f ∘ (c s + s cᴴ)) + (1 − u uᴴ) dx v s⁻¹, dv = v (f ∘ (s c + cᴴ s)) + (1 − v vᴴ) dxᴴ u s⁻¹,
    where fᵢⱼ = 1 / (sⱼ² − sᵢ²) without diagonal. (Townsend 2016; Wan & Zhang 2019 for complex x, whose diagonal of c turns u.)"""
    (x,), (dx,) = primals, tangents
    if type(dx) is Zero:
        outs = svd_p.bind(x, full_matrices=full_matrices, compute_uv=compute_uv, iterate=iterate)
        return outs, [zero_like(y) for y in outs]
    m, n = typeof(x).shape[-2:]
    if compute_uv and full_matrices and m != n:
        raise NotImplementedError(f"lax.linalg.svd({typeof(x)}): the singular vectors that full_matrices=True adds are not determined by the operand "
                                  "and have no derivative; pass full_matrices=False, or compute_uv=False")
    s, u, vh = svd_p.bind(x, full_matrices=False, compute_uv=True, iterate=iterate)
    dtype, shape, v = typeof(x).dtype, (*typeof(s).shape, typeof(s).shape[-1]), adjoint(vh)
    moved = product(dx, v)
    c = product(adjoint(u), moved)
    ds = real_part(diagonal(c))
    if not compute_uv:
        return [s], [ds]
    whole = convert_element_type(s, dtype)
    right, left, one = rows_of(whole, shape), columns_of(whole, shape), identity(shape, dtype)
    f = 1 / ((right - left) * (right + left) + one) - one                       # the diagonal: 1 / 1 − 1
    turn_u, turn_v = f * (c * right + left * adjoint(c)), f * (left * c + adjoint(c) * right)
    if dtypes.is_complex(dtype):
        phase = imag(diagonal(c)) / s
        turn_u = turn_u + with_diagonal(complex_(zeros(typeof(s).shape, typeof(s).dtype), phase))
    du, dv = product(u, turn_u), product(v, turn_v)
    k = min(m, n)
    if m > k:
        du = du + (moved - product(u, c)) / rows_of(whole, typeof(u).shape)
    if n > k:
        du_side = product(adjoint(dx), u)
        dv = dv + (du_side - product(v, adjoint(c))) / rows_of(whole, typeof(v).shape)
    return [s, u, vh], [ds, du, adjoint(dv)]


svd_p.type_rule, svd_p.jvp, svd_p.batch = _type, _jvp, leading_batch(svd_p)
