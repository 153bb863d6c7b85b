"""Polynomials as vectors of coefficients, the highest power first."""
from __future__ import annotations

import operator

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.numpy.creation import asarray
from mini_jax.numpy.diagonals import diag, vander
from mini_jax.numpy.joining import concatenate, trim_zeros
from mini_jax.numpy.promotion import arraylike, as_array, broadcast_to_shape, promote_dtypes, promote_dtypes_inexact
from mini_jax.numpy.signals import convolve
from mini_jax.numpy.sorting import concrete
from mini_jax.runtime.dispatch import library

__all__ = ["polyval", "polyadd", "polysub", "polymul", "polydiv", "polyder", "polyint", "poly", "roots", "polyfit"]


@library(static_argnames=("unroll",))
def polyval(p, x, *, unroll: int = 16):
    """p[0] xⁿ + … + p[n], by Horner's rule.

    p: a vector of coefficients (or arrays along the first axis, which broadcast with x). x: an array.
    """
    p, x = map(as_array, promote_dtypes(*arraylike("polyval", p, x)))
    shape = np.broadcast_shapes(p.shape[1:], x.shape)
    x = broadcast_to_shape(x, shape)

    def step(y, c):
        return y * x + broadcast_to_shape(c, shape), None
    return lax.scan(step, lax.full(shape, 0, x.dtype), p, unroll=unroll)[0]


def _coefficients(name, *polynomials):
    return [lax.reshape(p, (1,)) if not p.ndim else p for p in map(as_array, promote_dtypes(*arraylike(name, *polynomials)))]


def _front_padded(p, n):
    return lax.pad(p, p.dtype.type(0), [(n - p.shape[0], 0, 0), *[(0, 0, 0)] * (p.ndim - 1)])


@library
def polyadd(a1, a2):
    """The sum of two polynomials, given as coefficients from the highest power on; its length is the longer one's."""
    a1, a2 = _coefficients("polyadd", a1, a2)
    n = max(a1.shape[0], a2.shape[0])
    return lax.add(_front_padded(a1, n), _front_padded(a2, n))


@library
def polysub(a1, a2):
    """The difference a1 - a2 of two polynomials, given as coefficients from the highest power on; its length is the longer one's."""
    a1, a2 = _coefficients("polysub", a1, a2)
    n = max(a1.shape[0], a2.shape[0])
    return lax.sub(_front_padded(a1, n), _front_padded(a2, n))


def _trimmed(p):
    """Without leading zeros; the values must be known."""
    concrete("trim_leading_zeros", "the number of coefficients", p)
    return trim_zeros(p, "f")


def polymul(a1, a2, *, trim_leading_zeros: bool = False):
    """The product of two polynomials. trim_leading_zeros: leave leading zeros of the operands out, which must be known for that."""
    a1, a2 = _coefficients("polymul", a1, a2)
    if trim_leading_zeros and (len(a1) > 1 or len(a2) > 1):
        a1, a2 = _trimmed(a1), _trimmed(a2)
    if not a1.size or not a2.size:
        return asarray(np.zeros(1, a1.dtype))
    return convolve(*promote_dtypes_inexact(a1, a2))


def polydiv(u, v, *, trim_leading_zeros: bool = False):
    """(quotient, remainder) of the division of polynomials: u = quotient v + remainder. trim_leading_zeros: leave them out of the remainder."""
    u, v = map(as_array, promote_dtypes_inexact(*arraylike("polydiv", u, v)))
    quotient, rest = _polydiv(u, v)
    return quotient, _trimmed(rest) if trim_leading_zeros else rest


@library
def _polydiv(u, v):
    m, n = u.shape[0] - 1, v.shape[0] - 1
    if m < n:
        return lax.full((1,), 0, u.dtype), u
    parts, lead = [], lax.index_in_dim(v, 0, keepdims=False)
    for k in range(m - n + 1):
        d = lax.index_in_dim(u, k, keepdims=False) / lead
        parts.append(lax.reshape(d, (1,)))
        u = lax.sub(u, lax.pad(v * d, u.dtype.type(0), [(k, m - n - k, 0)]))
    return lax.concatenate(parts, 0), u


@library(static_argnames=("m",))
def polyder(p, m: int = 1):
    """The m-th derivative of a polynomial."""
    (p,) = promote_dtypes_inexact(*arraylike("polyder", p))
    p, m = as_array(p), operator.index(m)
    if m < 0:
        raise ValueError("Order of derivative must be positive")
    if not m:
        return p
    n = p.shape[0]
    if m >= n:
        return lax.full((0,), 0, p.dtype)
    powers = np.arange(n - 1, m - 1, -1)
    factors = np.prod([powers - k for k in range(m)], axis=0)
    return lax.mul(lax.slice_in_dim(p, 0, n - m), factors.astype(p.dtype))


def polyint(p, m: int = 1, k=None):
    """The m-th antiderivative of a polynomial; k: the m constants of integration, or one for all; None: zeros."""
    m = operator.index(m)
    if m < 0:
        raise ValueError("Order of integral must be positive")
    return _polyint(p, 0 if k is None else k, m)


@library(static_argnames=("m",))
def _polyint(p, k, m):
    p, k = map(as_array, promote_dtypes_inexact(*arraylike("polyint", p, k)))
    k = lax.reshape(k, (k.size,))
    if k.size == 1:
        k = lax.broadcast_in_dim(lax.reshape(k, ()), (m,), ())
    if k.shape != (m,):
        raise ValueError(f"k must be a scalar or a rank-1 array of length 1 or {m}, got {k.aval}")
    if not m:
        return p
    n = p.shape[0]
    both = lax.concatenate([p, k], 0)
    powers = np.arange(n + m - 1, -1, -1.0)
    divisors = np.ones(n + m)
    for i in range(n + m):                              # the j-th constant is integrated m - 1 - j times
        times = m if i < n else n + m - 1 - i
        power = int(powers[i])
        divisors[i] = np.prod([power - t for t in range(times)]) if times else 1.0
    return lax.div(both, divisors.astype(p.dtype))


@library
def poly(seq_of_zeros):
    """The coefficients of the polynomial with leading coefficient 1 and these zeros, a vector; of a square matrix, its characteristic polynomial's."""
    (zeros,) = promote_dtypes_inexact(*arraylike("poly", seq_of_zeros))
    zeros = as_array(zeros)
    if zeros.ndim == 2 and zeros.shape[0] == zeros.shape[1]:
        from mini_jax.numpy import linalg            # which is imported when first used
        zeros = linalg.eigvals(zeros)
    if zeros.ndim > 1:
        raise ValueError(f"poly takes a vector of zeros or a square matrix, got {zeros.aval}")
    out = lax.full((1,), 1, zeros.dtype)
    for i in range(zeros.size):
        zero = lax.index_in_dim(lax.reshape(zeros, (zeros.size,)), i, keepdims=False)
        out = lax.sub(lax.pad(out, zeros.dtype.type(0), [(0, 1, 0)]), lax.pad(out * zero, zeros.dtype.type(0), [(1, 0, 0)]))
    return out


def roots(p, *, strip_zeros: bool = True):
    """The zeros of a polynomial: the eigenvalues of its companion matrix; a complex vector.

    strip_zeros: leave out leading zeros, whose number must be known for that; with False, under jit, they give NaN.
    """
    (p,) = promote_dtypes_inexact(*arraylike("roots", p))
    p = as_array(p)
    if p.ndim != 1:
        raise ValueError(f"Input must be a rank-1 array, got {p.aval}")
    trailing = 0
    if strip_zeros:
        known = concrete("roots with strip_zeros=True", "the number of zeros", p)
        found = np.flatnonzero(known)
        if not len(found):
            return asarray(np.zeros(0, dtypes.to_complex(p.dtype)))
        trailing = len(known) - 1 - int(found[-1])
        p = lax.slice_in_dim(p, int(found[0]), int(found[-1]) + 1)
    n = p.shape[0] - 1
    if n < 1:
        return asarray(np.zeros(trailing, dtypes.to_complex(p.dtype)))
    companion = diag(asarray(np.ones(n - 1, p.dtype)), -1).at[0, :].set(-lax.slice_in_dim(p, 1, n + 1) / lax.index_in_dim(p, 0, keepdims=False))
    from mini_jax.numpy import linalg
    found = linalg.eigvals(companion)
    return concatenate([found, asarray(np.zeros(trailing, found.dtype))]) if trailing else found


def polyfit(x, y, deg: int, rcond: float | None = None, full: bool = False, w=None, cov: bool = False):
    """The polynomial of degree `deg` closest to the points (x, y) in the sense of least squares.

    y: a vector, or a matrix whose columns are fitted. w: weights of the points. full: return (coefficients, residuals, rank, singular
    values, rcond). cov: return (coefficients, their covariance matrix), unscaled if 'unscaled'.
    """
    x, y = map(as_array, promote_dtypes_inexact(*arraylike("polyfit", x, y)))
    deg = operator.index(deg)
    if deg < 0:
        raise ValueError("expected deg >= 0")
    if x.ndim != 1 or not x.size:
        raise TypeError("expected 1D non-empty vector for x")
    if y.ndim not in (1, 2) or y.shape[0] != x.shape[0]:
        raise TypeError("expected x and y to have the same length, y of one or two dimensions")
    rcond = x.size * float(dtypes.finfo(x.dtype).eps) if rcond is None else rcond
    lhs, rhs = vander(x, deg + 1), y
    if w is not None:
        w = lax.convert_element_type(arraylike("polyfit", w)[0], x.dtype)
        if w.shape != x.shape:
            raise TypeError("expected w and x to have the same length")
        lhs = lhs * lax.expand_dims(w, (1,))
        rhs = rhs * (lax.expand_dims(w, (1,)) if rhs.ndim == 2 else w)
    scale = lax.sqrt(lax.reduce_sum(lhs * lhs, (0,)))
    from mini_jax.numpy import linalg
    c, residuals, rank, s = linalg.lstsq(lhs / lax.expand_dims(scale, (0,)), rhs, rcond)
    c = c / (lax.expand_dims(scale, (1,)) if c.ndim == 2 else scale)
    if full:
        return c, residuals, rank, s, asarray(rcond)
    if cov:
        base = linalg.inv(lhs.T @ lhs)
        if cov == "unscaled":
            factor = lax.full((1,), 1, base.dtype)
        elif x.size > deg + 1:
            factor = residuals / (x.size - deg - 1)
        else:
            raise ValueError("the number of data points must exceed order to scale the covariance matrix")
        return c, base * factor[0] if y.ndim == 1 else lax.expand_dims(base, (2,)) * factor
    return c
