"""Norms of vectors and matrices, and what follows from singular values: condition numbers and ranks."""
from __future__ import annotations

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.lax.shapes import canonical_axis
from mini_jax.numpy.linalg.decompositions import singular_values
from mini_jax.numpy.linalg.equations import inv, relative_tolerance
from mini_jax.numpy.promotion import arraylike, as_array, promote_dtypes_inexact
from mini_jax.numpy.reductions import static_axis
from mini_jax.runtime.dispatch import library

__all__ = ["norm", "vector_norm", "matrix_norm", "cond", "matrix_rank"]


def _p_norm(x, order, axes, keepdims):
    """(Σ |x|^p)^(1/p) over `axes`, and its limits."""
    kept = lambda out: lax.expand_dims(out, axes) if keepdims and axes else out
    if order is None or order == 2:
        squares = lax.real(x * lax.conj(x)) if dtypes.is_complex(x.dtype) else x * x
        return kept(lax.sqrt(lax.reduce_sum(squares, axes)))
    if order == np.inf:
        return kept(lax.reduce_max(lax.abs(x), axes))
    if order == -np.inf:
        return kept(lax.reduce_min(lax.abs(x), axes))
    if order == 0:
        return kept(lax.reduce_sum(lax.convert_element_type(lax.ne(x, x.dtype.type(0)), dtypes.to_real(x.dtype)), axes))
    if order == 1:
        return kept(lax.reduce_sum(lax.abs(x), axes))
    if isinstance(order, str):
        raise ValueError(f"Invalid order '{order}' for vector norm.")
    total = lax.reduce_sum(lax.pow(lax.abs(x), np.asarray(order).astype(dtypes.to_real(x.dtype))[()]), axes)
    return kept(lax.pow(total, np.asarray(1 / order).astype(dtypes.to_real(x.dtype))[()]))


def _last(x, axes):
    """The matrices of the two axes, as the last ones."""
    return lax.transpose(x, [d for d in range(x.ndim) if d not in axes] + list(axes))


def _matrix_norm(x, order, axes, keepdims):
    rows, columns = axes
    kept = lambda out: lax.expand_dims(out, axes) if keepdims else out
    if order is None or order in ("f", "fro"):
        return _p_norm(x, 2, tuple(sorted(axes)), keepdims)
    if order in (1, -1, np.inf, -np.inf):
        summed, other = (rows, columns) if abs(order) == 1 else (columns, rows)
        sums = lax.reduce_sum(lax.abs(x), (summed,))
        return kept((lax.reduce_max if order > 0 else lax.reduce_min)(sums, (other - (other > summed),)))
    if order in (2, -2, "nuc"):
        s = lax.linalg.svd(_last(x, axes), compute_uv=False)
        out = (lax.reduce_sum if order == "nuc" else lax.reduce_max if order == 2 else lax.reduce_min)(s, (s.ndim - 1,))
        return kept(out)
    raise ValueError(f"Invalid order '{order}' for matrix norm.")


@library(static_argnames=("ord", "axis", "keepdims"))
def _norm(x, ord, axis, keepdims):
    x = as_array(promote_dtypes_inexact(*arraylike("norm", x))[0])
    if axis is None and ord is None:
        out = _p_norm(lax.reshape(x, (x.size,)), 2, (0,), False)
        return lax.reshape(out, (1,) * x.ndim) if keepdims else out
    axes = tuple(range(x.ndim)) if axis is None else tuple([canonical_axis(i, x.ndim) for i in ((axis,) if isinstance(axis, int) else axis)])
    if len(axes) == 1:
        return _p_norm(x, ord, axes, keepdims)
    if len(axes) == 2:
        if axes[0] == axes[1]:
            raise ValueError(f"norm: axes must differ, got {axis}")
        return _matrix_norm(x, ord, axes, keepdims)
    raise ValueError(f"Improper number of axes for norm: axis={axis} of {x.aval}")


def norm(x, ord=None, axis=None, keepdims: bool = False):
    """The norm of a vector (axis an int) or of a matrix (axis a pair), or of all elements (axis and ord None: the square root of Σ |x|²).

    ord for vectors: a number p, (Σ |x|^p)^(1/p); inf and -inf, the greatest and the least |x|; 0, how many are not zero; None: 2.
    For matrices: 'fro' or None, the square root of Σ |x|²; 1, -1, inf, -inf, the greatest or least sum of a column or of a row; 2, -2, the
    greatest or least singular value; 'nuc', their sum. Raises ValueError for another ord, or more than two axes.
    """
    return _norm(x, ord, static_axis(axis), bool(keepdims))


def vector_norm(x, /, *, axis=None, keepdims: bool = False, ord=2):
    """The p-norm of vectors along `axis` (several: of the elements along all of them; None: of all). (Python array API)"""
    return _vector_norm(x, static_axis(axis), bool(keepdims), ord)


@library(static_argnames=("axis", "keepdims", "ord"))
def _vector_norm(x, axis, keepdims, ord):
    x = as_array(promote_dtypes_inexact(*arraylike("vector_norm", x))[0])
    axes = tuple(range(x.ndim)) if axis is None else tuple(sorted([canonical_axis(i, x.ndim) for i in ((axis,) if isinstance(axis, int) else axis)]))
    return _p_norm(x, ord, axes, keepdims)


def matrix_norm(x, /, *, keepdims: bool = False, ord="fro"):
    """The norm of matrices, the last two axes; see `norm`. (Python array API)"""
    return norm(x, ord, (-2, -1), keepdims)


# --- condition numbers and ranks ----------------------------------------------------------------------------------------------------

@library(static_argnames=("p",))
def cond(x, p=None):
    """The condition number of square matrices x (..., n, n): the norm of x times that of its inverse, in the matrix norm `p` (see `norm`).

    p None or 2: the greatest over the least singular value, which x need not be square for; -2: the inverse of that. Singular matrices
    have inf. Raises ValueError for matrices that are not square, another p, or fewer than two dimensions.
    """
    x = as_array(promote_dtypes_inexact(*arraylike("cond", x))[0])
    if x.ndim < 2:
        raise ValueError(f"cond: the argument must have at least two dimensions, got {x.aval}")
    if p in (None, 2, -2):
        s = lax.linalg.svd(x, compute_uv=False)
        first, last = [lax.index_in_dim(s, i, s.ndim - 1, keepdims=False) for i in (0, -1)]
        out = last / first if p == -2 else first / last
    else:
        out = norm(x, p, (-2, -1)) * norm(inv(x), p, (-2, -1))
    whole = lax.reduce_and(lax.eq(x, x), (x.ndim - 2, x.ndim - 1))
    return lax.select(lax.bitwise_and(whole, lax.ne(out, out)), lax.full_like(out, np.inf), out)


def matrix_rank(M, rtol=None, *, hermitian: bool = False, tol=None):
    """The number of singular values above rtol times the greatest, of matrices M (..., m, n); of vectors and numbers, 1 unless all zero.

    rtol: default max(m, n) eps; an array has the leading dimensions. tol: its former name. hermitian: M is, and eigenvalues are
    computed instead, which is faster. Raises ValueError for both rtol and tol.
    """
    if tol is not None:
        if rtol is not None:
            raise ValueError("matrix_rank: rtol and tol are the same; pass one of them")
        rtol = tol
    return _matrix_rank(M, rtol, bool(hermitian))


@library(static_argnames=("hermitian",))
def _matrix_rank(M, rtol, hermitian):
    M = as_array(promote_dtypes_inexact(*arraylike("matrix_rank", M))[0])
    if M.ndim < 2:
        return lax.convert_element_type(lax.reduce_or(lax.ne(M, M.dtype.type(0)), tuple(range(M.ndim))), dtypes.default_int())
    s = singular_values(M, hermitian)
    above = lax.gt(s, relative_tolerance(s, M.shape, rtol, 1))
    return lax.reduce_sum(lax.convert_element_type(above, dtypes.default_int()), (s.ndim - 1,))
