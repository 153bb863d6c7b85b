"""Decompositions of matrices by their SciPy names."""
from __future__ import annotations

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.lax import linalg
from mini_jax.lax.linalg.matrices import adjoint, conjugate, lower_triangle, product, upper_triangle
from mini_jax.numpy.linalg.decompositions import matrices
from mini_jax.numpy.promotion import arraylike, as_array, promote_dtypes_inexact
from mini_jax.runtime.dispatch import library

__all__ = ["cholesky", "lu", "qr", "qr_multiply", "svd", "eigh", "eigh_tridiagonal", "schur", "rsf2csf", "hessenberg", "polar"]


@library(static_argnames=("lower",))
def _cholesky(a, lower):
    a = matrices("cholesky", a, square=True)
    l = linalg.cholesky(a if lower else adjoint(a), symmetrize_input=False)
    return l if lower else adjoint(l)


def cholesky(a, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True):
    """The upper triangular u with uᴴ u = a, or with `lower` the lower triangular l with l lᴴ = a, of positive definite matrices (..., n, n).

    Only that triangle of a is read. NaN where a is not positive definite. overwrite_a, check_finite: of no effect.
    """
    return _cholesky(a, bool(lower))


@library(static_argnames=("permute_l",))
def _lu(a, permute_l):
    a = matrices("lu", a)
    m, n = a.shape[-2:]
    k = min(m, n)
    factors, _, permutation = linalg.lu(a)
    l = lower_triangle(factors, -1)[..., :k] + jnp.eye(m, k, dtype=a.dtype)
    u = upper_triangle(factors)[..., :k, :]
    p = (jnp.arange(m)[:, None] == permutation[..., None, :]).astype(dtypes.to_real(a.dtype))
    return (product(p.astype(a.dtype), l), u) if permute_l else (p, l, u)


def lu(a, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True):
    """(p, l, u) with a = p l u, p a permutation matrix, l unit lower and u upper triangular; with permute_l, (p l, u).

    a: (..., m, n). l: (..., m, k), u: (..., k, n), k = min(m, n).
    """
    return _lu(a, bool(permute_l))


@library(static_argnames=("mode", "pivoting"))
def _qr(a, mode, pivoting):
    a = matrices("qr", a)
    q, r, *order = linalg.qr(a, full_matrices=mode == "full", pivoting=pivoting)
    if mode == "r":
        m, (k, n) = a.shape[-2], r.shape[-2:]
        r = jnp.concatenate([r, jnp.zeros((*r.shape[:-2], m - k, n), r.dtype)], -2) if m > k else r
        return (r, *order)
    return (q, r, *order)


def qr(a, overwrite_a: bool = False, lwork=None, mode: str = "full", pivoting: bool = False, check_finite: bool = True):
    """(q, r) with q r = a, q of orthonormal columns, r upper triangular, of matrices a (..., m, n).

    mode: 'full', q (..., m, m); 'economic', q (..., m, min(m, n)); 'r', (r,) alone. pivoting: a third result, the order (int32) in which the
    columns of a were taken, so that r's diagonal decreases: q r = a[:, order]. Raises ValueError for another mode.
    """
    if mode not in ("full", "economic", "r"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}': it is 'full', 'economic' or 'r'")
    return _qr(a, mode, bool(pivoting))


@library(static_argnames=("mode", "pivoting", "conjugate_q"))
def _qr_multiply(a, c, mode, pivoting, conjugate_q):
    a, c = [as_array(x) for x in promote_dtypes_inexact(*arraylike("qr_multiply", a, c))]
    q, r, *order = linalg.qr(matrices("qr_multiply", a), full_matrices=False, pivoting=pivoting)
    q = conjugate(q) if conjugate_q else q
    fits = c.shape[0] == q.shape[-1] if mode == "left" else c.shape[-1] == q.shape[-2]
    if c.ndim == 0 or not fits:
        raise ValueError(f"qr_multiply: c of shape {c.shape} does not fit Q of shape {q.shape} from the {mode}")
    return (q @ c if mode == "left" else c @ q, r, *order)


def qr_multiply(a, c, mode: str = "right", pivoting: bool = False, conjugate: bool = False, overwrite_a: bool = False, overwrite_c: bool = False):
    """(c q, r), or (q c, r) with mode='left', of the economic QR decomposition q r = a; with pivoting the order of columns too, see `qr`.

    conjugate: multiply by the conjugate of q. Raises ValueError for another mode and for a c that doesn't fit.
    """
    if mode not in ("left", "right"):
        raise ValueError(f"qr_multiply: mode is 'left' or 'right', got {mode!r}")
    return _qr_multiply(a, c, mode, bool(pivoting), bool(conjugate))


def svd(a, full_matrices: bool = True, compute_uv: bool = True, overwrite_a: bool = False, check_finite: bool = True, lapack_driver: str = "gesdd"):
    """(u, s, vh) with u diag(s) vh = a, s descending; without compute_uv, s. Matrices (..., m, n). See numpy.linalg.svd."""
    out = jnp.linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv)
    return tuple(out) if compute_uv else out


# --- eigenvalues -------------------------------------------------------------------------------------------------------------------------

@library(static_argnames=("lower", "type"))
def _eigh(a, b, lower, type):
    """With b = l lᴴ: the eigenvectors y of l⁻¹ a l⁻ᴴ (type 1) or lᴴ a l (2, 3) give l⁻ᴴ y (1, 2) or l y (3)."""
    if b is None:
        v, w = linalg.eigh(matrices("eigh", a, square=True), lower=lower, symmetrize_input=False)
        return w, v
    a, b = [matrices("eigh", x, square=True) for x in promote_dtypes_inexact(*arraylike("eigh", a, b))]
    whole = lambda x: lower_triangle(x) + adjoint(lower_triangle(x, -1)) if lower else upper_triangle(x) + adjoint(upper_triangle(x, 1))
    l, a = linalg.cholesky(whole(b)), whole(a)
    if type == 1:
        half = linalg.triangular_solve(l, a, left_side=True, lower=True)
        inner = linalg.triangular_solve(l, half, lower=True, transpose_a=True, conjugate_a=True)
    else:
        inner = product(product(adjoint(l), a), l)
    y, w = linalg.eigh(inner)
    v = product(l, y) if type == 3 else linalg.triangular_solve(l, y, left_side=True, lower=True, transpose_a=True, conjugate_a=True)
    return w, v


def eigh(a, b=None, lower: bool = True, eigvals_only: bool = False, overwrite_a: bool = False, overwrite_b: bool = False, turbo: bool = True,
         eigvals: None = None, type: int = 1, check_finite: bool = True):
    """(w, v): real ascending eigenvalues and the eigenvectors (columns) of Hermitian matrices a; with eigvals_only, w.

    Only the lower (or upper) triangle of a is read. With a positive definite b: those of a v = w b v (type 1), a b v = w v (2) or b a v = w v
    (3), vᴴ b v = 1 (3: vᴴ b⁻¹ v = 1). eigvals must be None (NotImplementedError). overwrite_a, overwrite_b, turbo, check_finite: of no effect.
    """
    if eigvals is not None:
        raise NotImplementedError("eigh: eigvals is not supported; take a slice of the result")
    if type not in (1, 2, 3):
        raise ValueError(f"eigh: type is 1, 2 or 3, got {type!r}")
    w, v = _eigh(a, b, bool(lower), type)
    return w if eigvals_only else (w, v)


def eigh_tridiagonal(d, e, *, eigvals_only: bool = False, select: str = "a", select_range=None, tol: float | None = None, key=None):
    """(w, v): ascending eigenvalues and eigenvectors of the symmetric matrix with diagonal d (n) and off-diagonal e (n - 1); or w alone.

    select: 'a' all of them, or 'i' those numbered select_range[0] to select_range[1], both included. ('v', by value, raises NotImplementedError: how
    many there are would depend on values.) tol, key: of no effect. Raises TypeError or ValueError for shapes that don't fit.
    """
    if select == "v":
        raise NotImplementedError("eigh_tridiagonal: select='v' is not supported, since the number of results would depend on values; use 'a' or 'i'")
    if select not in ("a", "i"):
        raise ValueError(f"eigh_tridiagonal: select is 'a' or 'i', got {select!r}")
    low, high = 0, None
    if select == "i":
        if select_range is None or not 0 <= select_range[0] <= select_range[1] < jnp.shape(d)[0]:
            raise ValueError(f"eigh_tridiagonal: with select='i' select_range must be two indices in ascending order, got {select_range}")
        low, high = int(select_range[0]), int(select_range[1]) + 1
    w, v = _eigh_tridiagonal(d, e)
    return w[low:high] if eigvals_only else (w[low:high], v[:, low:high])


@library
def _eigh_tridiagonal(d, e):
    d, e = [as_array(x) for x in promote_dtypes_inexact(*arraylike("eigh_tridiagonal", d, e))]
    if d.ndim != 1 or e.shape != (max(d.shape[0] - 1, 0),):
        raise ValueError(f"eigh_tridiagonal: d must have shape (n,) and e (n - 1,), got {d.aval} and {e.aval}")
    v, w = linalg.eigh(jnp.diag(lax.real(d).astype(d.dtype) if dtypes.is_complex(d.dtype) else d) + jnp.diag(e, 1) + jnp.diag(jnp.conj(e), -1))
    return w, v


# --- triangular forms ----------------------------------------------------------------------------------------------------------------------

@library(static_argnames=("output",))
def schur(a, output: str = "real"):
    """(t, z) with a = z t zᴴ, z unitary, t upper triangular; of real a with output='real', z is real and t has 2 × 2 blocks on its diagonal.

    Not differentiable. Raises ValueError for another output than 'real' and 'complex'.
    """
    if output not in ("real", "complex"):
        raise ValueError(f"Expected 'output' to be either 'real' or 'complex', got output={output!r}.")
    a = matrices("schur", a, square=True)
    return tuple(linalg.schur(a.astype(jnp.promote_types(a.dtype, dtypes.complex64)) if output == "complex" else a))


@library
def _rsf2csf(T, Z):
    T, Z = [as_array(x) for x in promote_dtypes_inexact(*arraylike("rsf2csf", T, Z))]
    T, Z = [matrices("rsf2csf", x, square=True) for x in (T, Z)]
    if T.shape != Z.shape:
        raise ValueError(f"rsf2csf: T and Z must have one shape, got {T.aval} and {Z.aval}")
    dtype = jnp.promote_types(T.dtype, dtypes.complex64)
    t, u = linalg.schur(T.astype(dtype))
    return t, product(Z.astype(dtype), u)


def rsf2csf(T, Z, check_finite: bool = True):
    """(t, z), the complex Schur form of the matrix Z T Zᴴ whose real one is (T, Z): t triangular, z unitary, z t zᴴ = Z T Zᴴ."""
    return _rsf2csf(T, Z)


@library
def _hessenberg(a):
    """Householder reflections, one for each column, from both sides. (Golub, Van Loan, Matrix Computations, 7.4)"""
    a = matrices("hessenberg", a, square=True)
    n = a.shape[-1]
    if a.ndim > 2:
        return jnp.vectorize(_hessenberg.__wrapped__, signature="(n,n)->(n,n),(n,n)")(a)
    row = jnp.arange(n)

    def step(state, k):
        h, q = state
        x = jnp.where(row > k, h[:, k], 0)
        length = jnp.sqrt(jnp.sum(jnp.abs(x) ** 2)).astype(a.dtype)
        first = x[k + 1]
        size = jnp.abs(first)
        phase = jnp.where(size == 0, 1, first / jnp.where(size == 0, 1, size).astype(a.dtype))
        v = x + jnp.where(row == k + 1, phase * length, 0)
        square = jnp.sum(jnp.abs(v) ** 2)
        scale = (2 / jnp.where(square == 0, 1, square)).astype(a.dtype)
        h = h - scale * v[:, None] * (jnp.conj(v) @ h)[None]
        h = h - scale * (h @ v)[:, None] * jnp.conj(v)[None]
        return (h, q - scale * (q @ v)[:, None] * jnp.conj(v)[None]), None
    (h, q), _ = lax.scan(step, (a, jnp.eye(n, dtype=a.dtype)), jnp.arange(max(n - 2, 0)))
    return upper_triangle(h, -1), q


def hessenberg(a, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True):
    """h, or with calc_q (h, q): a = q h qᴴ, q unitary, h zero below its first subdiagonal; of square matrices (..., n, n)."""
    h, q = _hessenberg(a)
    return (h, q) if calc_q else h


@library(static_argnames=("side",))
def _polar(a, side):
    a = matrices("polar", a)
    w, s, vh = linalg.svd(a, full_matrices=False)
    s = s[..., None, :].astype(a.dtype)
    return product(w, vh), product(adjoint(vh) * s, vh) if side == "right" else product(w * s, adjoint(w))


def polar(a, side: str = "right", *, method: str = "qdwh", eps: float | None = None, max_iterations: int | None = None):
    """(u, p) with a = u p, or with side='left' a = p u: u of orthonormal columns (or rows), p Hermitian positive semidefinite.

    a: (..., m, n). By singular values, whichever method ('qdwh', 'svd') is named; eps, max_iterations: of no effect. Raises ValueError for another
    side or method.
    """
    if side not in ("right", "left"):
        raise ValueError(f"The argument `side` must be either 'right' or 'left', got {side!r}")
    if method not in ("qdwh", "svd"):
        raise ValueError(f"Unknown polar decomposition method {method}.")
    return _polar(a, side)
