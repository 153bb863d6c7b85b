"""Sampled functions: differences, gradients, integrals, interpolation, convolution, phase unwrapping, windows."""
from __future__ import annotations

import math
import operator

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.lax.shapes import canonical_axes, canonical_axis
from mini_jax.numpy.creation import asarray
from mini_jax.numpy.indexing import take
from mini_jax.numpy.joining import concatenate
from mini_jax.numpy.manipulation import broadcast_to
from mini_jax.numpy.promotion import array_argument, arraylike, as_array, promote_dtypes, promote_dtypes_inexact
from mini_jax.numpy.sorting import searchsorted
from mini_jax.numpy.ufuncs import conjugate, remainder
from mini_jax.runtime.dispatch import library

__all__ = ["diff", "ediff1d", "gradient", "trapezoid", "interp", "unwrap", "convolve", "correlate", "bartlett", "blackman", "hamming", "hanning",
           "kaiser"]


# --- differences and integrals --------------------------------------------------------------------------------------------------------

def diff(a, n: int = 1, axis: int = -1, prepend=None, append=None):
    """The n-th differences a[i + 1] - a[i] along `axis`, of booleans the exclusive or. prepend, append: values to put in front and behind before."""
    a = array_argument("diff", a)
    n = operator.index(n)
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    if not a.ndim:
        raise ValueError(f"diff requires input that is at least one dimensional; got {a.aval}")
    axis = canonical_axis(axis, a.ndim)

    def end(value):
        value = array_argument("diff", value)
        return [broadcast_to(value, (*a.shape[:axis], 1, *a.shape[axis + 1:])) if not value.ndim else value]
    parts = [*([] if prepend is None else end(prepend)), a, *([] if append is None else end(append))]
    return _diff(concatenate(parts, axis) if len(parts) > 1 else a, n, axis)


@library(static_argnames=("n", "axis"))
def _diff(a, n, axis):
    for _ in range(n):
        size = a.shape[axis]
        later, earlier = lax.slice_in_dim(a, min(1, size), size, axis=axis), lax.slice_in_dim(a, 0, max(0, size - 1), axis=axis)
        a = lax.ne(later, earlier) if dtypes.is_bool(a.dtype) else lax.sub(later, earlier)
    return a


def ediff1d(ary, to_end=None, to_begin=None):
    """The differences of the elements of the flattened array, with to_begin in front and to_end behind."""
    ary = array_argument("ediff1d", ary)
    out = diff(lax.reshape(ary, (ary.size,)))
    ends = [None if end is None else lax.convert_element_type(array_argument("ediff1d", end), out.dtype) for end in (to_begin, to_end)]
    ends = [[] if end is None else [lax.reshape(end, (end.size,))] for end in ends]
    return concatenate([*ends[0], out, *ends[1]]) if ends[0] or ends[1] else out


def gradient(f, *varargs, axis=None, edge_order: int | None = None):
    """The derivative along each axis by central differences, at the ends by one-sided ones. A list if there are several axes.

    varargs: the spacing: none (1), a number for all axes, or for each axis a number or the vector of coordinates.
    Raises ValueError for a size below 2 along an axis.
    """
    if edge_order is not None:
        raise NotImplementedError("gradient: the argument edge_order is not supported; differences at the ends are of first order")
    (f,) = promote_dtypes_inexact(*arraylike("gradient", f))
    f = as_array(f)
    axes = canonical_axes(axis, f.ndim, "axis")
    if len(varargs) == 0:
        spacing = [1.0] * len(axes)
    elif len(varargs) == 1 and np.ndim(varargs[0]) == 0:
        spacing = [varargs[0]] * len(axes)
    elif len(varargs) == len(axes):
        spacing = list(varargs)
    else:
        raise TypeError(f"Invalid number of spacing arguments {len(varargs)} for {len(axes)} axes")
    arraylike("gradient", *spacing)
    for i, h in zip(axes, spacing):
        if f.shape[i] < 2:
            raise ValueError("Shape of array too small to calculate a numerical gradient, at least 2 elements are required.")
        if np.ndim(h) and np.shape(h) != (f.shape[i],):
            raise ValueError(f"Spacing arrays must be 1D arrays that match the length of their corresponding dimension, got {np.shape(h)} for {f.shape[i]}")
    out = _gradient(f, spacing, axes)
    return out[0] if len(axes) == 1 and (axis is None or np.ndim(axis) == 0) else out


@library(static_argnames=("axes",))
def _gradient(f, spacing, axes):
    return [_derivative(f, h, i) for h, i in zip(spacing, axes)]


def _derivative(f, h, axis):
    n = f.shape[axis]
    part = lambda start, end: lax.slice_in_dim(f, start, end, axis=axis)
    h = lax.convert_element_type(h, f.dtype)
    if not h.ndim:
        inner = (part(2, n) - part(0, n - 2)) * 0.5 / h
        first, last = (part(1, 2) - part(0, 1)) / h, (part(n - 1, n) - part(n - 2, n - 1)) / h
    else:
        steps = lax.broadcast_in_dim(lax.slice_in_dim(h, 1, n) - lax.slice_in_dim(h, 0, n - 1), [n - 1 if i == axis else 1 for i in range(f.ndim)], (axis,))
        step = lambda start, end: broadcast_to(lax.slice_in_dim(steps, start, end, axis=axis), [end - start if i == axis else m for i, m in enumerate(f.shape)])
        left, right = step(0, n - 2), step(1, n - 1)
        inner = (part(2, n) * left * left - part(0, n - 2) * right * right + part(1, n - 1) * (right * right - left * left)) / (left * right * (left + right))
        first, last = (part(1, 2) - part(0, 1)) / step(0, 1), (part(n - 1, n) - part(n - 2, n - 1)) / step(n - 2, n - 1)
    return lax.concatenate([first, inner, last], axis)


@library(static_argnames=("axis",))
def trapezoid(y, x=None, dx=1.0, axis: int = -1):
    """The integral of y along `axis` by the trapezoidal rule. x: the places of the samples (a vector, or an array like y), or dx: their distance."""
    y, x = map(as_array, promote_dtypes_inexact(*arraylike("trapezoid", y, dx if x is None else x)))
    axis = canonical_axis(axis, y.ndim)
    n = y.shape[axis]
    if x.ndim == 1:
        steps = lax.sub(lax.slice_in_dim(x, 1, n), lax.slice_in_dim(x, 0, n - 1))
        steps = lax.broadcast_in_dim(steps, [n - 1 if i == axis else m for i, m in enumerate(y.shape)], (axis,))
    elif x.ndim:
        steps = lax.sub(lax.slice_in_dim(x, 1, n, axis=axis), lax.slice_in_dim(x, 0, n - 1, axis=axis))
    else:
        steps = x
    pairs = lax.add(lax.slice_in_dim(y, min(1, n), n, axis=axis), lax.slice_in_dim(y, 0, max(0, n - 1), axis=axis))
    return lax.convert_element_type(lax.reduce_sum(pairs * steps, (axis,)) * 0.5, y.dtype)


# --- interpolation -----------------------------------------------------------------------------------------------------------------------

def interp(x, xp, fp, left=None, right=None, period=None):
    """The piecewise linear function through the points (xp, fp), xp ascending, at x.

    left, right: its values below and above all xp: a number, None (that of the end), or 'extrapolate' (the line goes on). period: makes the
    function periodic, and left and right of no use. Raises ValueError unless xp and fp are vectors of one size.
    """
    for name, side in (("left", left), ("right", right)):
        if isinstance(side, str) and side != "extrapolate":
            raise ValueError(f"the only valid string value of `{name}` is 'extrapolate', but got: {side!r}")
    if np.shape(xp) != np.shape(fp) or np.ndim(xp) != 1:
        raise ValueError(f"xp and fp must be one-dimensional arrays of equal size, got shapes {np.shape(xp)} and {np.shape(fp)}")
    if period is not None and np.ndim(period):
        raise ValueError(f"period must be a scalar; got {period!r:.60}")
    static = lambda side: side if isinstance(side, str) else None
    return _interp(x, xp, fp, None if isinstance(left, str) else left, None if isinstance(right, str) else right, period, static(left), static(right))


@library(static_argnames=("beyond_left", "beyond_right"))
def _interp(x, xp, fp, left, right, period, beyond_left, beyond_right):
    x, xp = map(as_array, promote_dtypes_inexact(*arraylike("interp", x, xp)))
    (fp,) = promote_dtypes_inexact(*arraylike("interp", fp))
    fp = as_array(fp)
    if dtypes.is_complex(x.dtype):
        raise ValueError("complex x not supported by interp")
    if period is not None:
        period = lax.abs(lax.convert_element_type(period, x.dtype))
        x, xp = remainder(x, period), remainder(xp, period)
        order = lax.sort((xp, lax.iota(np.dtype(np.int32), xp.shape[0])), 0, num_keys=1)[1]
        xp, fp = take(xp, order), take(fp, order)
        n = xp.shape[0]
        xp = lax.concatenate([lax.slice_in_dim(xp, n - 1, n) - period, xp, lax.slice_in_dim(xp, 0, 1) + period], 0)
        fp = lax.concatenate([lax.slice_in_dim(fp, n - 1, n), fp, lax.slice_in_dim(fp, 0, 1)], 0)
    n = xp.shape[0]
    if n == 1:
        out = lax.broadcast_in_dim(lax.reshape(fp, ()), x.shape, ())
    else:
        i = lax.clamp(np.int32(1), searchsorted(xp, x, "right"), np.int32(n - 1))
        x0, x1, y0, y1 = take(xp, i - 1), take(xp, i), take(fp, i - 1), take(fp, i)
        width = x1 - x0
        share = (x - x0) / lax.select(lax.eq(width, 0.0), 1.0, width)
        out = y0 + lax.convert_element_type(lax.select(lax.eq(width, 0.0), 0.0, share), fp.dtype) * (y1 - y0)
    end = lambda side, i: lax.index_in_dim(fp, i, keepdims=False) if side is None else lax.convert_element_type(side, fp.dtype)
    if beyond_left is None and period is None:
        out = lax.select(lax.lt(x, lax.index_in_dim(xp, 0, keepdims=False)), end(left, 0), out)
    if beyond_right is None and period is None:
        out = lax.select(lax.gt(x, lax.index_in_dim(xp, n - 1, keepdims=False)), end(right, n - 1), out)
    return out


@library(static_argnames=("axis",))
def unwrap(p, discont=None, axis: int = -1, period=2 * math.pi):
    """Phases with multiples of `period` added so that neighbours along `axis` differ by at most half of it (or by `discont`, if greater)."""
    (p,) = arraylike("unwrap", p)
    p = as_array(p)
    if dtypes.is_complex(p.dtype):
        raise ValueError(f"unwrap does not support complex inputs, got {p.aval}")
    if not p.shape[axis]:
        return p
    axis = canonical_axis(axis, p.ndim)
    p, period = map(as_array, promote_dtypes(p, period))
    half = period / 2 if dtypes.is_inexact(p.dtype) else lax.div(period, p.dtype.type(2))
    step = _diff(p, 1, axis)
    wrapped = remainder(step + half, period) - half
    wrapped = lax.select(lax.bitwise_and(lax.eq(wrapped, -half), lax.gt(step, 0)), half, wrapped)
    correction = wrapped - step
    limit = half if discont is None else lax.max(half, lax.convert_element_type(discont, p.dtype))
    correction = lax.select(lax.lt(lax.abs(step), limit), 0, correction)
    n = p.shape[axis]
    return lax.concatenate([lax.slice_in_dim(p, 0, 1, axis=axis), lax.slice_in_dim(p, 1, n, axis=axis) + lax.cumsum(correction, axis)], axis)


# --- convolution -------------------------------------------------------------------------------------------------------------------------

def _sliding(name: str, a, v, mode: str, flip: bool, preferred):
    """Σ_j kernel[j] a[i + j] of the longer operand and the shorter, the kernel: one multiple of `a`, moved, after the other is added."""
    a, v = map(as_array, promote_dtypes(*arraylike(name, a, v)))
    if a.ndim != 1 or v.ndim != 1:
        raise ValueError(f"{name}() only support 1-dimensional inputs, got {a.aval} and {v.aval}")
    if not a.size or not v.size:
        raise ValueError(f"{name}: inputs cannot be empty, got {a.aval} and {v.aval}")
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"{name}: mode must be one of 'full', 'same' and 'valid', got {mode!r}")
    if dtypes.is_bool(a.dtype):
        raise TypeError(f"{name} takes numbers, got {a.aval}")
    if preferred is not None:
        a, v = [lax.convert_element_type(x, dtypes.requested(preferred, name)) for x in (a, v)]
    swapped = a.shape[0] < v.shape[0]
    if swapped:
        a, v = v, a
    m, dtype = v.shape[0], a.dtype
    kernel = lax.rev(v, (0,)) if flip else v
    before, after = {"full": (m - 1, m - 1), "valid": (0, 0), "same": (m // 2, m - m // 2 - 1)}[mode]
    narrow = dtypes.is_floating(dtype) and dtypes.itemsize_bits(dtype) <= 16
    if narrow:
        a, kernel = [lax.convert_element_type(x, np.float32) for x in (a, kernel)]
    padded = lax.pad(a, a.dtype.type(0), [(before, after, 0)])
    n = padded.shape[0] - m + 1

    def add(total, item):
        place, factor = item
        return total + factor * lax.dynamic_slice_in_dim(padded, place, n), None
    start = lax.full((n,), 0, a.dtype)
    if m <= 16:
        out = start
        for j in range(m):
            out = out + lax.index_in_dim(kernel, j, keepdims=False) * lax.slice_in_dim(padded, j, j + n)
    else:
        out = lax.scan(add, start, (lax.iota(np.dtype(np.int32), m), kernel))[0]
    return lax.convert_element_type(out, dtype) if narrow else out, swapped


@library(static_argnames=("mode", "precision", "preferred_element_type"))
def convolve(a, v, mode: str = "full", *, precision=None, preferred_element_type=None):
    """The convolution Σ_j a[j] v[i - j] of two vectors.

    mode: 'full' (all places where they overlap), 'same' (as many as the longer has, from the middle), 'valid' (where they overlap fully).
    preferred_element_type: the dtype to compute in. precision is accepted and of no effect: sums are as precise as the dtype.
    """
    return _sliding("convolve", a, v, mode, True, preferred_element_type)[0]


@library(static_argnames=("mode", "precision", "preferred_element_type"))
def correlate(a, v, mode: str = "valid", *, precision=None, preferred_element_type=None):
    """The correlation Σ_j a[i + j] conj(v[j]) of two vectors; modes as for `convolve`."""
    out, swapped = _sliding("correlate", a, conjugate(v), mode, False, preferred_element_type)
    return lax.rev(out, (0,)) if swapped else out


# --- windows -----------------------------------------------------------------------------------------------------------------------------

def _window(name: str, formula, doc: str):
    def fun(M: int):
        return asarray(formula(operator.index(M)).astype(dtypes.default_float()))
    fun.__name__ = fun.__qualname__ = name
    fun.__doc__ = f"""{doc}, at M points i = 0, …, M - 1."""
    return fun


bartlett = _window("bartlett", np.bartlett, "The triangular window 1 - |2 i / (M - 1) - 1|")
blackman = _window("blackman", np.blackman, "The window 0.42 - 0.5 cos(2πi / (M - 1)) + 0.08 cos(4πi / (M - 1))")
hamming = _window("hamming", np.hamming, "The window 0.54 - 0.46 cos(2πi / (M - 1))")
hanning = _window("hanning", np.hanning, "The window 0.5 - 0.5 cos(2πi / (M - 1))")


def kaiser(M: int, beta):
    """The window I₀(β sqrt(1 - (2 i / (M - 1) - 1)²)) / I₀(β), at M points."""
    from mini_jax.numpy.ufuncs import i0
    n = operator.index(M)
    if n <= 1:
        return asarray(np.ones(max(0, n), dtypes.default_float()))
    t = np.sqrt(np.maximum(0.0, 1 - (2 * np.arange(n) / (n - 1) - 1) ** 2)).astype(dtypes.default_float())
    return i0(asarray(t) * beta) / i0(beta)
