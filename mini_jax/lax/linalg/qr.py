"""The QR decomposition, and products of Householder reflections, which it is made of."""
from __future__ import annotations

from mini_jax.core import dtypes
from mini_jax.core.linear import Accumulator, Zero, zero_like
from mini_jax.core.primitive import Primitive
from mini_jax.core.trace import typeof
from mini_jax.core.types import array_type
from mini_jax.lax.elementwise import complex as complex_, imag
from mini_jax.lax.linalg.matrices import (
    LAPACK, adjoint, check_matrix, conjugate, diagonal, leading_batch, lower_triangle, permuted_rows, product, transposed, with_diagonal, zeros)
from mini_jax.lax.linalg.triangular import triangular_solve
from mini_jax.lax.shapes import broadcast_in_dim
from mini_jax.lax.slicing import concatenate, slice_in_dim

__all__ = ["qr", "qr_p", "householder_product", "householder_product_p", "ormqr", "ormqr_p"]

qr_p = Primitive("qr", multiple_results=True, facts={"family": "linalg", "dtypes": LAPACK})
householder_product_p = Primitive("householder_product", facts={"family": "linalg", "dtypes": LAPACK, "differentiable": False})
ormqr_p = Primitive("ormqr", facts={"family": "linalg", "dtypes": LAPACK})


def qr(x, *, pivoting: bool = False, full_matrices: bool = True, use_magma: bool | None = None):
    """(q, r) with q r = x, q of orthonormal columns and r upper triangular; with pivoting, (q, r, p) with q r = x[:, p].

    x: (..., m, n). q: (..., m, m) and r: (..., m, n), or without full_matrices (..., m, k) and (..., k, n), k = min(m, n). p: int32
    (..., n), chosen so that the absolute values on r's diagonal descend. The derivative needs the first k columns (of x[:, p]) to be
    linearly independent; of the columns of q beyond k, which x does not determine, it takes the least. use_magma concerns no platform
    here. Raises TypeError for other dtypes than float32, float64, complex64 and complex128 and fewer than two dimensions. (LAPACK: geqrf, geqp3)
    """
    return tuple(qr_p.bind(x, pivoting=bool(pivoting), full_matrices=bool(full_matrices)))


def _type(x, *, pivoting, full_matrices):
    check_matrix("qr", x)
    leading, (m, n) = x.shape[:-2], x.shape[-2:]
    k = m if full_matrices else min(m, n)
    return [array_type((*leading, m, k), x.dtype), array_type((*leading, k, n), x.dtype),
            *([array_type((*leading, n), dtypes.int32)] if pivoting else [])]


def _jvp(primals, tangents, **params):
    """With dx = dq r + q dr and dq = q ω, ω skew: qᴴ dx r₁⁻¹ = ω + dr r₁⁻¹ over the first k columns, the second of which is upper
    triangular with a real diagonal. Where q is not square, dq has a part outside the columns of q, (1 − q qᴴ) dx r₁⁻¹."""
    outs = q, r, *order = qr_p.bind(*primals, **params)
    if type(tangents[0]) is Zero:
        return outs, [zero_like(y) for y in outs]
    dx = tangents[0] if not order else transposed(permuted_rows(transposed(tangents[0]), order[0]))
    (*leading, m, p), n, rank = typeof(q).shape, typeof(r).shape[-1], typeof(q).ndim
    k = min(m, n)
    first = lambda x, axis: slice_in_dim(x, 0, k, axis=axis)
    r1 = first(first(r, rank - 2), rank - 1)
    moved = triangular_solve(r1, first(dx, rank - 1), left_side=False)                            # dx r₁⁻¹: m × k
    inside = product(adjoint(q), moved)                                                            # p × k
    below = lower_triangle(inside, -1)
    if p > k:
        below = concatenate([below, zeros((*leading, p, p - k), typeof(q).dtype)], rank - 1)
    turn = below - adjoint(below)
    if dtypes.is_complex(typeof(q).dtype):
        phase = imag(diagonal(first(inside, rank - 2)))
        phase = concatenate([phase, zeros((*leading, p - k), typeof(phase).dtype)], rank - 2)
        turn = turn + with_diagonal(complex_(broadcast_in_dim(typeof(phase).dtype.type(0), typeof(phase).shape, ()), phase))
    dq = product(q, turn)
    if m > p:
        dq = dq + moved - product(q, inside)
    dr = product(adjoint(q), dx) - product(turn, r)
    dr = dr - lower_triangle(dr, -1)                                                                # zero, but for rounding
    return outs, [dq, dr, *[zero_like(i) for i in order]]


qr_p.type_rule, qr_p.jvp, qr_p.batch = _type, _jvp, leading_batch(qr_p)


def householder_product(a, taus):
    """The first n columns of h₁ h₂ ⋯ h_k, where hᵢ = 1 − τᵢ vᵢ vᵢᴴ and vᵢ is 1 at i, zero above, and below as column i of a.

    a: (..., m, n), m ≥ n. taus: (..., k), k ≤ n, of a's dtype. Returns (..., m, n). Not differentiable. Raises TypeError and ValueError for
    operands that are not such. (LAPACK: orgqr, ungqr)
    """
    return householder_product_p.bind(a, taus)


def _householder_type(a, taus):
    check_matrix("householder_product", a)
    where, (m, n) = f"lax.linalg.householder_product({a}, {taus})", a.shape[-2:]
    if taus.dtype != a.dtype or taus.shape[:-1] != a.shape[:-2] or taus.ndim != a.ndim - 1:
        raise TypeError(f"{where}: taus must have the dtype and the leading dimensions of a")
    if m < n or taus.shape[-1] > n:
        raise ValueError(f"{where}: a must have no fewer rows than columns, and no fewer columns than taus has entries")
    return array_type(a.shape, a.dtype)


householder_product_p.type_rule, householder_product_p.batch = _householder_type, leading_batch(householder_product_p)


def ormqr(a, taus, c, *, left: bool = True, transpose: bool = False):
    """q c, or without `left` c q; with `transpose` qᴴ in q's place: q = h₁ h₂ ⋯ h_k, of which a and taus hold the reflections.

    a: (..., r, k), taus: (..., k), as `householder_product` takes them, and as LAPACK's QR decomposition leaves them. c: (..., r, m), or
    (..., m, r) without `left`. q itself, (..., r, r), is never written. Returns an array of c's shape. Differentiable in c. Raises TypeError
    for dtypes that differ or are not float32, float64, complex64 or complex128, ValueError for shapes that don't fit. (LAPACK: ormqr, unmqr)
    """
    return ormqr_p.bind(a, taus, c, left=bool(left), transpose=bool(transpose))


def _ormqr_type(a, taus, c, *, left, transpose):
    check_matrix("ormqr", a)
    where, (r, k) = f"lax.linalg.ormqr({a}, {taus}, {c})", a.shape[-2:]
    if not a.dtype == taus.dtype == c.dtype:
        raise TypeError(f"{where}: the operands must have one dtype")
    if taus.shape != (*a.shape[:-2], k) or k > r:
        raise ValueError(f"{where}: a must be (..., r, k) with k ≤ r, and taus (..., k)")
    if c.ndim != a.ndim or c.shape[:-2] != a.shape[:-2] or c.shape[-2 if left else -1] != r:
        raise ValueError(f"{where}: c must be {'(..., r, m)' if left else '(..., m, r)'} for a of shape (..., r, k), with equal leading dimensions")
    return array_type(c.shape, c.dtype)


def _ormqr_jvp(primals, tangents, **params):
    a, taus, _ = primals
    if not type(tangents[0]) is type(tangents[1]) is Zero:
        raise NotImplementedError("lax.linalg.ormqr has a derivative in c alone, not in the reflections; multiply with the q of lax.linalg.qr instead")
    y = ormqr_p.bind(*primals, **params)
    return y, zero_like(y) if type(tangents[2]) is Zero else ormqr_p.bind(a, taus, tangents[2], **params)


def _ormqr_transpose(ct, a, taus, c, *, left, transpose):
    """qᵀ is the conjugate of qᴴ."""
    if isinstance(c, Accumulator) and c.wanted:
        c.add(conjugate(ormqr_p.bind(a, taus, conjugate(ct), left=left, transpose=not transpose)))


ormqr_p.type_rule, ormqr_p.jvp, ormqr_p.transpose, ormqr_p.batch = _ormqr_type, _ormqr_jvp, _ormqr_transpose, leading_batch(ormqr_p)
