"""Systems of linear equations: solved, in the least squares' sense, and by inverses."""
from __future__ import annotations

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.lax import linalg
from mini_jax.lax.linalg.lu import solve as solve_by_lu
from mini_jax.lax.linalg.matrices import adjoint, identity, product, rows_of
from mini_jax.numpy.linalg.decompositions import matrices
from mini_jax.numpy.promotion import arraylike, as_array, broadcast_shapes, promote_dtypes_inexact
from mini_jax.runtime.dispatch import library
from mini_jax.transforms.custom_derivatives import custom_jvp

__all__ = ["solve", "inv", "pinv", "lstsq", "tensorsolve", "tensorinv"]


def _spread(x, leading: tuple):
    """The matrices x, repeated along the leading dimensions to which their own broadcast."""
    shape = (*leading, *x.shape[-2:])
    return lax.broadcast_in_dim(x, shape, tuple(range(len(shape) - x.ndim, len(shape))))


@library
def solve(a, b):
    """The x with a x = b, by LU decomposition with partial pivoting.

    a: (..., n, n). b: (n) or (..., n, m), the leading dimensions broadcast against a's. x has the shape of b (so broadcast). NaN or
    infinities where a is singular. Raises ValueError for matrices that are not square and shapes that don't fit, TypeError for dtypes of half
    precision.
    """
    a, b = [as_array(x) for x in promote_dtypes_inexact(*arraylike("solve", a, b))]
    a = matrices("solve", a, square=True)
    vector = b.ndim == 1
    if b.ndim == 0 or b.shape[-1 if vector else -2] != a.shape[-1]:
        raise ValueError(f"solve: {b.aval} can't be the right side of a system with {a.aval}; it must have shape (n,) or (..., n, m)")
    b = lax.expand_dims(b, (1,)) if vector else b
    leading = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if a.ndim == 2 and b.ndim > 2:                              # one system with many right sides: one right side with more columns
        columns = lax.transpose(b, (b.ndim - 2, *range(b.ndim - 2), b.ndim - 1))
        x = lax.reshape(solve_by_lu(a, lax.reshape(columns, (a.shape[-1], b.size // max(a.shape[-1], 1)))), columns.shape)
        return lax.transpose(x, (*range(1, b.ndim - 1), 0, b.ndim - 1))
    x = solve_by_lu(_spread(a, leading), _spread(b, leading))
    return lax.squeeze(x, (x.ndim - 1,)) if vector else x


@library
def inv(a):
    """The inverse of square matrices a (..., n, n), by LU decomposition; NaN or infinities where a is singular.

    Raises ValueError for matrices that are not square, TypeError for dtypes of half precision.
    """
    a = matrices("inv", a, square=True)
    return solve_by_lu(a, identity(a.shape, a.dtype))


def relative_tolerance(s, shape: tuple, rtol, factor: int):
    """rtol (default: factor max(m, n) eps) times the greatest of the singular values s, in the shape of s."""
    if s.shape[-1] == 0:
        return s
    if rtol is None:
        rtol = factor * max(shape[-2:]) * dtypes.finfo(s.dtype).eps
    rtol = lax.convert_element_type(as_array(rtol), s.dtype)
    greatest = lax.reduce_max(s, (s.ndim - 1,))
    leading = s.shape[:-1]
    rtol = lax.broadcast_in_dim(rtol, leading, tuple(range(len(leading) - rtol.ndim, len(leading))))
    return lax.broadcast_in_dim(greatest * rtol, s.shape, tuple(range(s.ndim - 1)))


def pinv(a, rtol=None, hermitian: bool = False, *, rcond=None):
    """The Moore-Penrose inverse (..., n, m) of matrices a (..., m, n), from singular values above rtol times the greatest.

    rtol: default 10 max(m, n) eps; rcond is its former name. hermitian: a is; eigenvalues are computed instead. The derivative is that at
    constant rank. Raises ValueError for both rtol and rcond and for fewer than two dimensions, TypeError for dtypes of half precision.
    """
    if rcond is not None:
        if rtol is not None:
            raise ValueError("pinv: rtol and rcond are the same; pass one of them")
        rtol = rcond
    return _pinv(a, rtol, bool(hermitian))


@library(static_argnames=("hermitian",))
def _pinv(a, rtol, hermitian):
    return _pseudoinverse(matrices("pinv", a, square=hermitian), rtol, hermitian)


def _pseudoinverse(a, rtol, hermitian):
    @custom_jvp
    def pseudoinverse(a):
        if a.size == 0:
            return lax.full((*a.shape[:-2], a.shape[-1], a.shape[-2]), 0, a.dtype)
        if hermitian:
            v, w = linalg.eigh(a)
            u, s, signed = v, lax.abs(w), w
        else:
            u, s, vh = linalg.svd(a, full_matrices=False)
            v, signed = adjoint(vh), s
        kept = lax.gt(s, relative_tolerance(s, a.shape, rtol, 10))
        one, zero = lax.full_like(s, 1), lax.full_like(s, 0)
        inverse = lax.select(kept, one / lax.select(kept, signed, one), zero)
        return product(v * rows_of(lax.convert_element_type(inverse, a.dtype), v.shape), adjoint(u))

    @pseudoinverse.defjvp
    def rule(primals, tangents):
        """dp = −p da p + p pᴴ daᴴ (1 − a p) + (1 − p a) daᴴ pᴴ p. (Golub & Pereyra 1973)"""
        (a,), (da,) = primals, tangents
        p = pseudoinverse(a)
        ph, dah = adjoint(p), adjoint(da)
        range_part, domain_part = product(ph, dah), product(dah, ph)
        return p, (product(p, range_part - product(product(range_part, a), p)) + product(domain_part - product(p, product(a, domain_part)), p)
                   - product(product(p, da), p))
    return pseudoinverse(a)


def lstsq(a, b, rcond: float | None = None, *, numpy_resid: bool = False):
    """(x, residuals, rank, s): the x of least |b − a x|, and of these the one of least |x|, by singular values.

    a: (m, n). b: (m) or (m, k). residuals: (k) (or (1)), Σ |b − a x|²; with numpy_resid empty where NumPy gives none, that is for a rank below n
    and m ≤ n. rank: of a, an integer; s: its singular values. Those not above rcond (default max(m, n) eps; below zero eps) times the
    greatest count as zero. Raises TypeError or ValueError for shapes that don't fit.
    """
    x, residuals, rank, s = _lstsq(a, b, rcond)
    (m, n) = np.shape(a)
    if numpy_resid and (m <= n or int(rank) < n):
        residuals = residuals[:0]
    return x, residuals, rank, s


@library
def _lstsq(a, b, rcond):
    a, b = [as_array(x) for x in promote_dtypes_inexact(*arraylike("lstsq", a, b))]
    if a.ndim != 2 or b.ndim not in (1, 2) or b.shape[0] != a.shape[0]:
        raise ValueError(f"lstsq: the arguments must have shapes (m, n) and (m,) or (m, k), got {a.aval} and {b.aval}")
    n, vector = a.shape[1], b.ndim == 1
    b = lax.expand_dims(b, (1,)) if vector else b
    if a.size == 0:
        x, s, rank = lax.full((n, b.shape[1]), 0, a.dtype), lax.full((0,), 0, dtypes.to_real(a.dtype)), lax.full((), 0, dtypes.default_int())
    else:
        u, s, vh = linalg.svd(a, full_matrices=False)
        if rcond is not None:
            rcond = lax.convert_element_type(as_array(rcond), s.dtype)
            rcond = lax.select(lax.lt(rcond, 0.0), lax.full_like(rcond, dtypes.finfo(s.dtype).eps), rcond)
        kept = lax.gt(s, relative_tolerance(s, a.shape, rcond, 1))
        rank = lax.reduce_sum(lax.convert_element_type(kept, dtypes.default_int()), (0,))
        inverse = lax.select(kept, 1 / lax.select(kept, s, lax.full_like(s, 1)), lax.full_like(s, 0))
        projected = product(adjoint(u), b)
        x = product(adjoint(vh), projected * lax.broadcast_in_dim(lax.convert_element_type(inverse, a.dtype), projected.shape, (0,)))
    rest = b - product(a, x)
    squares = lax.real(rest * lax.conj(rest)) if dtypes.is_complex(rest.dtype) else rest * rest
    return lax.squeeze(x, (1,)) if vector else x, lax.reduce_sum(squares, (0,)), rank, s


@library(static_argnames=("axes",))
def _tensorsolve(a, b, axes):
    a, b = [as_array(x) for x in promote_dtypes_inexact(*arraylike("tensorsolve", a, b))]
    if axes is not None:
        axes = [axis % a.ndim for axis in axes]
        a = lax.transpose(a, [d for d in range(a.ndim) if d not in axes] + axes)
    shape = a.shape[b.ndim:]
    if a.shape[:b.ndim] != b.shape or int(np.prod(shape)) != b.size:
        raise ValueError(f"tensorsolve: {a.aval} must have the shape of {b.aval}, followed by dimensions of as many elements")
    return lax.reshape(solve(lax.reshape(a, (b.size, b.size)), lax.reshape(b, (b.size,))), shape)


def tensorsolve(a, b, axes: tuple[int, ...] | None = None):
    """The x with tensordot(a, x, x.ndim) = b.

    a: of shape b.shape + x.shape, both of as many elements; `axes`: those of a to move to its end first. Raises ValueError for shapes that
    don't fit.
    """
    return _tensorsolve(a, b, None if axes is None else tuple(axes))


@library(static_argnames=("ind",))
def tensorinv(a, ind: int = 2):
    """The inverse of a as the map x ↦ tensordot(a, x, …) from its dimensions from `ind` on to those before.

    Returns an array of shape a.shape[ind:] + a.shape[:ind]. Raises ValueError where both have not as many elements, or ind is not positive.
    """
    a = as_array(promote_dtypes_inexact(*arraylike("tensorinv", a))[0])
    if ind <= 0:
        raise ValueError(f"ind must be a positive integer; got ind={ind}")
    rows, columns = a.shape[:ind], a.shape[ind:]
    if np.prod(rows) != np.prod(columns):
        raise ValueError(f"tensorinv: the dimensions of {a.aval} before {ind} and from there on must have as many elements")
    return lax.reshape(inv(lax.reshape(a, (int(np.prod(rows)), int(np.prod(columns))))), (*columns, *rows))
