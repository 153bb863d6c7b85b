"""Decompositions of matrices by their NumPy names."""
from __future__ import annotations

from typing import NamedTuple

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.core.errors import IncompatibleShapesError
from mini_jax.core.types import AbstractValue
from mini_jax.lax import linalg
from mini_jax.lax.linalg.matrices import adjoint, permuted_rows, rows_of, transposed
from mini_jax.numpy.promotion import arraylike, as_array, promote_dtypes_inexact
from mini_jax.runtime.dispatch import library

__all__ = ["cholesky", "qr", "eigh", "eigvalsh", "eig", "eigvals", "svd", "svdvals"]


class QRResult(NamedTuple):
    """What `qr` returns."""
    Q: AbstractValue
    R: AbstractValue


class EighResult(NamedTuple):
    """What `eigh` returns."""
    eigenvalues: AbstractValue
    eigenvectors: AbstractValue


class EigResult(NamedTuple):
    """What `eig` returns."""
    eigenvalues: AbstractValue
    eigenvectors: AbstractValue


class SVDResult(NamedTuple):
    """What `svd` returns."""
    U: AbstractValue
    S: AbstractValue
    Vh: AbstractValue


def matrices(name: str, x, square: bool = False):
    """The argument as matrices of a floating or complex dtype."""
    x = as_array(promote_dtypes_inexact(*arraylike(name, x))[0])
    if x.ndim < 2:
        raise ValueError(f"{name}: the argument must have at least two dimensions, got {x.aval}")
    if square and x.shape[-1] != x.shape[-2]:
        raise IncompatibleShapesError(f"Argument to {name} must have shape [..., n, n], got {x.shape}")
    return x


@library(static_argnames=("upper", "symmetrize_input"))
def cholesky(a, *, upper: bool = False, symmetrize_input: bool = True):
    """The lower triangular l with l lᴴ = a (upper: its adjoint u, uᴴ u = a) of Hermitian positive definite matrices a (..., n, n).

    NaN where a is not positive definite. symmetrize_input: take (a + aᴴ) / 2 first. Raises ValueError for matrices that are not square,
    TypeError for dtypes of half precision.
    """
    a = matrices("cholesky", a, square=True)
    return adjoint(linalg.cholesky(adjoint(a), symmetrize_input=symmetrize_input)) if upper else linalg.cholesky(a, symmetrize_input=symmetrize_input)


@library(static_argnames=("mode",))
def qr(a, mode: str = "reduced"):
    """(Q, R) with Q R = a, Q of orthonormal columns, R upper triangular, of matrices a (..., m, n).

    mode: "reduced" (or "full"), Q (..., m, k) and R (..., k, n), k = min(m, n); "complete", Q (..., m, m); "r", R alone. Raises ValueError
    for another mode or fewer than two dimensions, TypeError for dtypes of half precision.
    """
    if mode not in ("reduced", "full", "complete", "r"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}': it is 'reduced', 'complete' or 'r'")
    q, r = linalg.qr(matrices("qr", a), full_matrices=mode == "complete")
    return r if mode == "r" else QRResult(q, r)


def _lower(UPLO) -> bool:
    if UPLO not in (None, "L", "U"):
        raise ValueError(f"UPLO must be one of None, 'L', or 'U', got {UPLO!r}")
    return UPLO != "U"


@library(static_argnames=("UPLO", "symmetrize_input"))
def eigh(a, UPLO: str | None = None, symmetrize_input: bool = True):
    """(eigenvalues, eigenvectors) of Hermitian matrices a (..., n, n): w, real and ascending, and unitary v with a v = v diag(w).

    symmetrize_input: take (a + aᴴ) / 2 first; without it only the triangle UPLO, "L" (the default) or "U", of a is read. Raises ValueError
    for matrices that are not square and another UPLO, TypeError for dtypes of half precision.
    """
    v, w = linalg.eigh(matrices("eigh", a, square=True), lower=_lower(UPLO), symmetrize_input=symmetrize_input)
    return EighResult(w, v)


def eigvalsh(a, UPLO: str | None = "L", *, symmetrize_input: bool = True):
    """The eigenvalues of Hermitian matrices, ascending; see `eigh`."""
    return eigh(a, UPLO, symmetrize_input).eigenvalues


@library
def eig(a):
    """(eigenvalues, eigenvectors) of square matrices a (..., n, n), complex and in no order: w, and v of columns of norm 1 with a v = v diag(w).

    Not differentiable: see lax.linalg.eig. Raises ValueError for matrices that are not square, TypeError for dtypes of half precision.
    """
    w, v = linalg.eig(matrices("eig", a, square=True), compute_left_eigenvectors=False)
    return EigResult(w, v)


@library
def eigvals(a):
    """The eigenvalues of square matrices a (..., n, n), complex and in no order; differentiable where they are distinct. See `eig`."""
    return linalg.eig(matrices("eigvals", a, square=True), compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]


@library(static_argnames=("full_matrices", "compute_uv", "hermitian", "subset_by_index"))
def svd(a, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False, subset_by_index: tuple[int, int] | None = None):
    """(U, S, Vh) with a = U diag(S) Vh, S descending, of matrices a (..., m, n); without compute_uv, S alone.

    full_matrices: U (..., m, m) and Vh (..., n, n), else (..., m, k) and (..., k, n), k = min(m, n). hermitian: a is, and its eigenvalues
    are computed instead, which is faster. subset_by_index: (first, end), only that range of singular values. Derivatives: see
    lax.linalg.svd. Raises ValueError for fewer than two dimensions, TypeError for dtypes of half precision.
    """
    a = matrices("svd", a, square=hermitian)
    if not hermitian:
        out = linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv, subset_by_index=subset_by_index)
        return SVDResult(*out) if compute_uv else out
    v, w = linalg.eigh(a)
    first, end = subset_by_index or (0, a.shape[-1])
    part = lambda x: lax.slice_in_dim(x, first, end, axis=x.ndim - 1)
    order = _descending(w)
    if not compute_uv:
        return part(lax.sort(lax.abs(w), w.ndim - 1)[..., ::-1])
    v, w = _take_columns(v, order), _take_columns(lax.expand_dims(w, (w.ndim - 1,)), order)[..., 0, :]
    signs = lax.select(lax.lt(w, w.dtype.type(0)), lax.full_like(w, -1), lax.full_like(w, 1))
    turned = v * rows_of(lax.convert_element_type(signs, v.dtype), v.shape)
    return SVDResult(part(v), part(lax.abs(w)), adjoint(part(turned)))


def _descending(w):
    """The order in which |w| descends."""
    return lax.sort((-lax.abs(w), lax.broadcasted_iota(dtypes.int32, w.shape, w.ndim - 1)))[1]


def _take_columns(x, order):
    """x[..., order], for an order for each matrix."""
    return transposed(permuted_rows(transposed(x), order))


@library
def svdvals(x, /):
    """The singular values of matrices x (..., m, n), descending."""
    return linalg.svd(matrices("svdvals", x), compute_uv=False)


def singular_values(x, hermitian: bool):
    """Those of x, the greatest first; of a Hermitian x, unordered, by its eigenvalues."""
    return lax.abs(linalg.eigh(x)[1]) if hermitian else linalg.svd(x, compute_uv=False)
