"""Reductions: sums, products, extrema, means and their like over axes, with NumPy's dtype, where, initial, keepdims and ddof."""
from __future__ import annotations

import functools
import math
import operator
from typing import Callable

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.lax.shapes import canonical_axes, canonical_axis
from mini_jax.numpy.promotion import array_argument, arraylike, as_array, broadcast_to_shape
from mini_jax.numpy.ufuncs import as_bool, unsupported_out
from mini_jax.runtime.dispatch import library

__all__ = ["sum", "prod", "max", "min", "amax", "amin", "any", "all", "mean", "var", "std", "average", "ptp", "count_nonzero", "argmax", "argmin",
           "cumsum", "cumprod", "cumulative_sum", "cumulative_prod", "nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd", "nanargmax",
           "nanargmin", "nancumsum", "nancumprod"]


def static_axis(axis):
    """An axis argument in hashable form: None, an int or a tuple of ints."""
    if axis is None or type(axis) is int or type(axis) is tuple:
        return axis
    if isinstance(axis, (list, tuple)) or np.ndim(axis):
        return tuple([operator.index(i) for i in axis])
    return operator.index(axis)


@functools.lru_cache(1024)
def reduced_axes(axis, ndim: int) -> tuple[int, ...]:
    """Distinct axes in [0, ndim) from None (all), an int or a tuple of ints."""
    return canonical_axes(axis, ndim, "axis")


def _dtype(name: str, dtype):
    return None if dtype is None else dtypes.requested(dtype, name)


def _kept(out, axes, keepdims: bool):
    """The reduced axes put back with size 1."""
    return lax.expand_dims(out, axes) if keepdims and axes else out


def _masked(name: str, a, where, identity):
    """`a` with `identity` where the mask does not hold."""
    if where is None:
        return a
    (where,) = arraylike(name, where)
    shape = np.broadcast_shapes(a.shape, typeof(where).shape)
    return lax.select(broadcast_to_shape(as_bool(where), shape), broadcast_to_shape(a, shape), identity(a.dtype))


def _summed_dtype(dtype, promote_integers: bool):
    """Sums and products of booleans and of integers narrower than the default are taken in the default integer."""
    if dtypes.is_bool(dtype):
        return dtypes.default_int()
    if promote_integers and dtypes.is_integer(dtype) and dtypes.itemsize_bits(dtype) < dtypes.itemsize_bits(dtypes.default_int()):
        return dtypes.default_int() if dtypes.is_signed(dtype) else dtypes.default_uint()
    return dtype


def _widened(x, reduce: Callable, *args):
    """reduce(x, *args), of 16-bit and narrower floats in float32, rounded once."""
    dtype = x.dtype
    if dtypes.is_floating(dtype) and dtypes.itemsize_bits(dtype) <= 16:
        return lax.convert_element_type(reduce(lax.convert_element_type(x, np.float32), *args), dtype)
    return reduce(x, *args)


# --- sums, products ----------------------------------------------------------------------------------------------------------------

_ADD = (lambda dtype: dtype.type(0), lax.reduce_sum, lax.add)
_MUL = (lambda dtype: dtype.type(1), lax.reduce_prod, lax.mul)


def _fold(name, rule, a, axis, dtype, keepdims, initial, where, promote_integers):
    identity, reduce, combine = rule
    a = array_argument(name, a)
    axes = reduced_axes(axis, a.ndim)
    dtype = _summed_dtype(a.dtype, promote_integers) if dtype is None else dtype
    a = _masked(name, lax.convert_element_type(a, dtype), where, identity)
    out = _kept(_widened(a, reduce, axes), axes, keepdims)
    if initial is None:
        return out
    return combine(out, broadcast_to_shape(lax.convert_element_type(initial, out.dtype), out.shape))


@library(static_argnames=("axis", "dtype", "keepdims", "promote_integers"))
def _sum(a, axis, dtype, keepdims, initial, where, promote_integers):
    return _fold("sum", _ADD, a, axis, dtype, keepdims, initial, where, promote_integers)


@library(static_argnames=("axis", "dtype", "keepdims", "promote_integers"))
def _prod(a, axis, dtype, keepdims, initial, where, promote_integers):
    return _fold("prod", _MUL, a, axis, dtype, keepdims, initial, where, promote_integers)


def sum(a, axis=None, dtype=None, out=None, keepdims: bool = False, initial=None, where=None, promote_integers: bool = True):
    """The sum of the elements along `axis` (an int or several; None: all).

    dtype: in which the sum is taken; None: that of `a`, but at least the default integer for booleans and, with promote_integers,
    for integers. keepdims: keep the axes with size 1. initial: a number to start from. where: booleans that broadcast with `a`:
    which elements count. Raises TypeError for what is no array, ValueError for axes out of bounds; NotImplementedError for `out`.
    """
    unsupported_out("sum", out)
    return _sum(a, static_axis(axis), _dtype("sum", dtype), bool(keepdims), initial, where, promote_integers)


def prod(a, axis=None, dtype=None, out=None, keepdims: bool = False, initial=None, where=None, promote_integers: bool = True):
    """The product of the elements along `axis`; arguments as for `sum`."""
    unsupported_out("prod", out)
    return _prod(a, static_axis(axis), _dtype("prod", dtype), bool(keepdims), initial, where, promote_integers)


# --- extrema ----------------------------------------------------------------------------------------------------------------------------

def _lowest(dtype):
    if dtypes.is_bool(dtype):
        return np.bool_(False)
    return dtype.type(-np.inf) if dtypes.is_inexact(dtype) else np.asarray(dtypes.iinfo(dtype).min).astype(dtype)[()]


def _highest(dtype):
    if dtypes.is_bool(dtype):
        return np.bool_(True)
    return dtype.type(np.inf) if dtypes.is_inexact(dtype) else np.asarray(dtypes.iinfo(dtype).max).astype(dtype)[()]


def _extremum(name, reduce, combine, identity, a, axis, keepdims, initial, where):
    a = array_argument(name, a)
    axes = reduced_axes(axis, a.ndim)
    if initial is None:
        if where is not None:
            raise ValueError(f"{name}: with `where`, `initial` must be given: the value of an empty choice")
        if 0 in [a.shape[i] for i in axes]:
            raise ValueError(f"zero-size array to reduction operation {name} which has no identity: {a.aval} along axis {axis}")
    a = _masked(name, a, where, identity)
    out = _kept(reduce(a, axes) if axes else a, axes, keepdims)
    if initial is None:
        return out
    return combine(out, broadcast_to_shape(lax.convert_element_type(initial, out.dtype), out.shape))


@library(static_argnames=("axis", "keepdims"))
def _max(a, axis, keepdims, initial, where):
    return _extremum("max", lax.reduce_max, lax.max, _lowest, a, axis, keepdims, initial, where)


@library(static_argnames=("axis", "keepdims"))
def _min(a, axis, keepdims, initial, where):
    return _extremum("min", lax.reduce_min, lax.min, _highest, a, axis, keepdims, initial, where)


def max(a, axis=None, out=None, keepdims: bool = False, initial=None, where=None):
    """The greatest element along `axis` (an int or several; None: all); NaN if there is one.

    initial: a number to start from, needed with `where` (which elements count) and along empty axes (else ValueError).
    """
    unsupported_out("max", out)
    return _max(a, static_axis(axis), bool(keepdims), initial, where)


def min(a, axis=None, out=None, keepdims: bool = False, initial=None, where=None):
    """The least element along `axis`; arguments as for `max`."""
    unsupported_out("min", out)
    return _min(a, static_axis(axis), bool(keepdims), initial, where)


amax, amin = max, min


def ptp(a, axis=None, out=None, keepdims: bool = False):
    """The greatest less the least element along `axis`."""
    unsupported_out("ptp", out)
    return _ptp(a, static_axis(axis), bool(keepdims))


@library(static_argnames=("axis", "keepdims"))
def _ptp(a, axis, keepdims):
    return lax.sub(_max(a, axis, keepdims, None, None), _min(a, axis, keepdims, None, None))


def _arg(name, reduce, a, axis, keepdims):
    a = array_argument(name, a)
    if axis is None:
        rank, a, axis = a.ndim, lax.reshape(a, (a.size,)), 0
        kept = lambda out: lax.reshape(out, (1,) * rank) if keepdims else out
    else:
        axis = canonical_axis(axis, a.ndim)
        kept = lambda out: lax.expand_dims(out, (axis,)) if keepdims else out
    if not a.shape[axis]:
        raise ValueError(f"attempt to get {name} of an empty sequence: {a.aval} along axis {axis}")
    return kept(reduce(a, axis, dtypes.default_int()))


@library(static_argnames=("axis", "keepdims"))
def _argmax(a, axis, keepdims):
    return _arg("argmax", lax.argmax, a, axis, keepdims)


@library(static_argnames=("axis", "keepdims"))
def _argmin(a, axis, keepdims):
    return _arg("argmin", lax.argmin, a, axis, keepdims)


def argmax(a, axis: int | None = None, out=None, keepdims: bool | None = None):
    """The index of the greatest element along `axis` (None: in the flattened array), the first of several; that of NaN if there is one.

    Raises ValueError along an empty axis.
    """
    unsupported_out("argmax", out)
    return _argmax(a, None if axis is None else operator.index(axis), bool(keepdims))


def argmin(a, axis: int | None = None, out=None, keepdims: bool | None = None):
    """The index of the least element along `axis`; see `argmax`."""
    unsupported_out("argmin", out)
    return _argmin(a, None if axis is None else operator.index(axis), bool(keepdims))


# --- logic ------------------------------------------------------------------------------------------------------------------------------

def _logical(name, reduce, identity, a, axis, keepdims, where):
    a = as_bool(array_argument(name, a))
    axes = reduced_axes(axis, a.ndim)
    a = _masked(name, a, where, lambda dtype: np.bool_(identity))
    return _kept(reduce(a, axes) if axes else a, axes, keepdims)


@library(static_argnames=("axis", "keepdims"))
def _any(a, axis, keepdims, where):
    return _logical("any", lax.reduce_or, False, a, axis, keepdims, where)


@library(static_argnames=("axis", "keepdims"))
def _all(a, axis, keepdims, where):
    return _logical("all", lax.reduce_and, True, a, axis, keepdims, where)


def any(a, axis=None, out=None, keepdims: bool = False, *, where=None):
    """Whether some element along `axis` is true (not zero); False of none."""
    unsupported_out("any", out)
    return _any(a, static_axis(axis), bool(keepdims), where)


def all(a, axis=None, out=None, keepdims: bool = False, *, where=None):
    """Whether all elements along `axis` are true (not zero); True of none."""
    unsupported_out("all", out)
    return _all(a, static_axis(axis), bool(keepdims), where)


def count_nonzero(a, axis=None, keepdims: bool = False):
    """The number of elements along `axis` that are not zero."""
    return _count_nonzero(a, static_axis(axis), bool(keepdims))


@library(static_argnames=("axis", "keepdims"))
def _count_nonzero(a, axis, keepdims):
    return _sum(as_bool(array_argument("count_nonzero", a)), axis, None, keepdims, None, None, True)


# --- means ---------------------------------------------------------------------------------------------------------------------------------

def _counted(name, a, axes, where, keepdims, dtype):
    """How many elements are reduced: a Python float, or an array of counts where a mask says."""
    if where is None:
        return float(math.prod([a.shape[i] for i in axes]))
    where = broadcast_to_shape(as_bool(arraylike(name, where)[0]), a.shape)
    return _kept(lax.reduce_sum(lax.convert_element_type(where, dtype), axes), axes, keepdims)


def _mean_dtypes(dtype, given):
    """(the dtype to compute in, that of the result): integers in the default float, 16-bit and narrower floats in float32."""
    result = dtypes.to_inexact(dtype) if given is None else given
    if dtypes.is_floating(result) and dtypes.itemsize_bits(result) <= 16:
        return np.dtype(np.float32), result
    return (dtypes.to_inexact(result) if not dtypes.is_inexact(result) else result), result


@library(static_argnames=("axis", "dtype", "keepdims"))
def _mean(a, axis, dtype, keepdims, where):
    a = array_argument("mean", a)
    axes = reduced_axes(axis, a.ndim)
    computed, result = _mean_dtypes(a.dtype, dtype)
    x = lax.convert_element_type(a, computed)
    if where is not None:
        x = _masked("mean", x, where, _ADD[0])
    total = _kept(lax.reduce_sum(x, axes), axes, keepdims)
    return lax.convert_element_type(total / _counted("mean", x, axes, where, keepdims, dtypes.to_real(computed)), result)


def mean(a, axis=None, dtype=None, out=None, keepdims: bool = False, *, where=None):
    """The mean of the elements along `axis` (an int or several; None: all), NaN of none.

    dtype: of the result; None: that of `a`, the default float for integers. where: which elements count.
    """
    unsupported_out("mean", out)
    return _mean(a, static_axis(axis), _dtype("mean", dtype), bool(keepdims), where)


def _square_modulus(x):
    return lax.real(x) * lax.real(x) + lax.imag(x) * lax.imag(x) if dtypes.is_complex(x.dtype) else x * x


def _variance(name, a, axis, dtype, ddof, keepdims, where, mean):
    a = array_argument(name, a)
    axes = reduced_axes(axis, a.ndim)
    computed, result = _mean_dtypes(a.dtype, dtype)
    if dtypes.is_complex(a.dtype) and not dtypes.is_complex(computed):
        if dtype is not None:
            computed, result = dtypes.to_complex(computed), result
    x = lax.convert_element_type(a, computed)
    result = dtypes.to_real(result)
    if mean is None:
        centre = lax.broadcast_in_dim(_mean(x, axis, None, False, where), x.shape, tuple([i for i in range(x.ndim) if i not in axes]))
    else:
        centre = broadcast_to_shape(lax.convert_element_type(_centre(mean, x, axes), computed), x.shape)
    squares = _square_modulus(x - centre)
    if where is not None:
        squares = _masked(name, squares, where, _ADD[0])
    total = _kept(lax.reduce_sum(squares, axes), axes, keepdims)
    count = _counted(name, x, axes, where, keepdims, squares.dtype) - ddof
    if isinstance(count, float):
        out = total / (count if count > 0 else math.nan)
    else:
        out = total / lax.select(lax.gt(count, 0.0), count, math.nan)
    return lax.convert_element_type(out, result)


def _centre(mean, x, axes):
    mean = as_array(mean)
    return mean if mean.ndim == x.ndim else lax.expand_dims(mean, axes)


@library(static_argnames=("axis", "dtype", "ddof", "keepdims"))
def _var(a, axis, dtype, ddof, keepdims, where, mean):
    return _variance("var", a, axis, dtype, ddof, keepdims, where, mean)


@library(static_argnames=("axis", "dtype", "ddof", "keepdims"))
def _std(a, axis, dtype, ddof, keepdims, where, mean):
    return lax.sqrt(_variance("std", a, axis, dtype, ddof, keepdims, where, mean))


def _ddof(name, ddof, correction):
    if correction is not None:
        if ddof:
            raise ValueError(f"{name}: ddof and correction mean the same; give one of them")
        return correction
    return ddof


def var(a, axis=None, dtype=None, out=None, ddof=0, keepdims: bool = False, *, where=None, mean=None, correction=None):
    """The variance Σ |a - mean|² / (n - ddof) of the n elements along `axis`.

    dtype: in which it is computed; where: which elements count; mean: theirs, if it is known; correction: another name of ddof.
    """
    unsupported_out("var", out)
    return _var(a, static_axis(axis), _dtype("var", dtype), _ddof("var", ddof, correction), bool(keepdims), where, mean)


def std(a, axis=None, dtype=None, out=None, ddof=0, keepdims: bool = False, *, where=None, mean=None, correction=None):
    """The standard deviation along `axis`: the square root of `var`, whose arguments it takes."""
    unsupported_out("std", out)
    return _std(a, static_axis(axis), _dtype("std", dtype), _ddof("std", ddof, correction), bool(keepdims), where, mean)


def average(a, axis=None, weights=None, returned: bool = False, keepdims: bool = False):
    """The weighted mean Σ w a / Σ w along `axis`.

    weights: of the shape of `a`, or one for each element along `axis`, an int; None: the mean. returned: return (average, Σ w).
    Raises ValueError where the weights do not fit.
    """
    value, total = _average(a, static_axis(axis), weights, bool(keepdims))
    return (value, total) if returned else value


@library(static_argnames=("axis", "keepdims"))
def _average(a, axis, weights, keepdims):
    a = array_argument("average", a)
    if weights is None:
        value = _mean(a, axis, None, keepdims, None)
        count = a.size // math.prod(value.shape) if value.size else 0
        return value, lax.full(value.shape, count, value.dtype)
    w = array_argument("average", weights)
    dtype = dtypes.to_inexact(dtypes.promote((a.dtype, a.weak_type), (w.dtype, w.weak_type))[0])
    a, w = lax.convert_element_type(a, dtype), lax.convert_element_type(w, dtype)
    if a.shape != w.shape:
        if axis is None or isinstance(axis, tuple) and len(axis) != w.ndim:
            raise ValueError(f"average: with weights of shape {w.shape} for an array of shape {a.shape}, axis must say which axes they belong to")
        axes = reduced_axes(axis, a.ndim)
        if tuple([a.shape[i] for i in axes]) != w.shape:
            raise ValueError(f"average: weights of shape {w.shape} do not fit axis {axis} of an array of shape {a.shape}")
        order = np.argsort(axes).tolist()
        w = lax.broadcast_in_dim(lax.transpose(w, order), a.shape, tuple([axes[i] for i in order]))
    total = _sum(w, axis, None, keepdims, None, None, True)
    return _sum(lax.mul(a, w), axis, None, keepdims, None, None, True) / total, total


# --- cumulative ----------------------------------------------------------------------------------------------------------------------------

def _cumulative(name, scan, a, axis, dtype):
    a = array_argument(name, a)
    if axis is None:
        a, axis = lax.reshape(a, (a.size,)), 0
    axis = canonical_axis(axis, a.ndim)
    dtype = _summed_dtype(a.dtype, False) if dtype is None else dtype
    return scan(lax.convert_element_type(a, dtype), axis)


@library(static_argnames=("axis", "dtype"))
def _cumsum(a, axis, dtype):
    return _cumulative("cumsum", lax.cumsum, a, axis, dtype)


@library(static_argnames=("axis", "dtype"))
def _cumprod(a, axis, dtype):
    return _cumulative("cumprod", lax.cumprod, a, axis, dtype)


def _axis(axis):
    return None if axis is None else operator.index(axis)


def cumsum(a, axis: int | None = None, dtype=None, out=None):
    """The sums of the first 1, 2, … elements along `axis` (None: of the flattened array). dtype: in which they are taken."""
    unsupported_out("cumsum", out)
    return _cumsum(a, _axis(axis), _dtype("cumsum", dtype))


def cumprod(a, axis: int | None = None, dtype=None, out=None):
    """The products of the first 1, 2, … elements along `axis` (None: of the flattened array)."""
    unsupported_out("cumprod", out)
    return _cumprod(a, _axis(axis), _dtype("cumprod", dtype))


def _array_api_cumulative(name, scan, start, x, axis, dtype, include_initial):
    x = array_argument(name, x)
    if not x.ndim:
        raise ValueError(f"{name} takes an array of at least one dimension")
    if axis is None:
        if x.ndim > 1:
            raise ValueError(f"The input array has rank {x.ndim}, however axis was not set to an explicit value. "
                             "The axis argument is only optional for one-dimensional arrays.")
        axis = 0
    axis = canonical_axis(axis, x.ndim)
    dtype = _summed_dtype(x.dtype, True) if dtype is None else dtypes.requested(dtype, name)
    out = scan(x, axis, dtype)
    if include_initial:
        out = lax.concatenate([lax.full((*x.shape[:axis], 1, *x.shape[axis + 1:]), start, out.dtype), out], axis)
    return out


def cumulative_sum(x, /, *, axis: int | None = None, dtype=None, include_initial: bool = False):
    """The sums of the first 1, 2, … elements along `axis`, with include_initial those of the first 0 too. (Python array API)"""
    return _array_api_cumulative("cumulative_sum", _cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x, /, *, axis: int | None = None, dtype=None, include_initial: bool = False):
    """The products of the first 1, 2, … elements along `axis`, with include_initial those of the first 0 too. (Python array API)"""
    return _array_api_cumulative("cumulative_prod", _cumprod, 1, x, axis, dtype, include_initial)


# --- without NaN ------------------------------------------------------------------------------------------------------------------------------

def _nan_mask(name, a):
    """(array, where it is NaN), None for dtypes that have none."""
    a = array_argument(name, a)
    return a, lax.ne(a, a) if dtypes.is_inexact(a.dtype) else None


def _without_nan(name, a, value):
    a, nan = _nan_mask(name, a)
    return a if nan is None else lax.select(nan, value(a.dtype), a)


@library(static_argnames=("axis", "dtype", "keepdims"))
def _nansum(a, axis, dtype, keepdims, initial, where):
    return _sum(_without_nan("nansum", a, _ADD[0]), axis, dtype, keepdims, initial, where, True)


@library(static_argnames=("axis", "dtype", "keepdims"))
def _nanprod(a, axis, dtype, keepdims, initial, where):
    return _prod(_without_nan("nanprod", a, _MUL[0]), axis, dtype, keepdims, initial, where, True)


def nansum(a, axis=None, dtype=None, out=None, keepdims: bool = False, initial=None, where=None):
    """`sum` of the elements that are not NaN."""
    unsupported_out("nansum", out)
    return _nansum(a, static_axis(axis), _dtype("nansum", dtype), bool(keepdims), initial, where)


def nanprod(a, axis=None, dtype=None, out=None, keepdims: bool = False, initial=None, where=None):
    """`prod` of the elements that are not NaN."""
    unsupported_out("nanprod", out)
    return _nanprod(a, static_axis(axis), _dtype("nanprod", dtype), bool(keepdims), initial, where)


def _nan_extremum(name, extremum, value, a, axis, keepdims, initial, where):
    a, nan = _nan_mask(name, a)
    if nan is None:
        return extremum(a, axis, keepdims, initial, where)
    out = extremum(lax.select(nan, value(a.dtype), a), axis, keepdims, initial, where)
    if initial is not None:
        return out
    nothing = _all(nan, axis, keepdims, where)
    return lax.select(nothing, a.dtype.type(math.nan), out)


@library(static_argnames=("axis", "keepdims"))
def _nanmax(a, axis, keepdims, initial, where):
    return _nan_extremum("nanmax", _max, _lowest, a, axis, keepdims, initial, where)


@library(static_argnames=("axis", "keepdims"))
def _nanmin(a, axis, keepdims, initial, where):
    return _nan_extremum("nanmin", _min, _highest, a, axis, keepdims, initial, where)


def nanmax(a, axis=None, out=None, keepdims: bool = False, initial=None, where=None):
    """`max` of the elements that are not NaN; NaN where there are no others."""
    unsupported_out("nanmax", out)
    return _nanmax(a, static_axis(axis), bool(keepdims), initial, where)


def nanmin(a, axis=None, out=None, keepdims: bool = False, initial=None, where=None):
    """`min` of the elements that are not NaN; NaN where there are no others."""
    unsupported_out("nanmin", out)
    return _nanmin(a, static_axis(axis), bool(keepdims), initial, where)


def _valid(a, nan, where):
    """The mask of the elements that count: those not NaN, and chosen by `where`."""
    valid = lax.bitwise_not(nan)
    if where is None:
        return valid
    shape = np.broadcast_shapes(a.shape, np.shape(where))
    return lax.bitwise_and(broadcast_to_shape(valid, shape), broadcast_to_shape(as_bool(where), shape))


@library(static_argnames=("axis", "dtype", "keepdims"))
def _nanmean(a, axis, dtype, keepdims, where):
    a, nan = _nan_mask("nanmean", a)
    if nan is None:
        return _mean(a, axis, dtype, keepdims, where)
    return _mean(lax.select(nan, a.dtype.type(0), a), axis, dtype, keepdims, _valid(a, nan, where))


@library(static_argnames=("axis", "dtype", "ddof", "keepdims"))
def _nanvar(a, axis, dtype, ddof, keepdims, where, mean):
    a, nan = _nan_mask("nanvar", a)
    if nan is None:
        return _var(a, axis, dtype, ddof, keepdims, where, mean)
    return _var(lax.select(nan, a.dtype.type(0), a), axis, dtype, ddof, keepdims, _valid(a, nan, where), mean)


def nanmean(a, axis=None, dtype=None, out=None, keepdims: bool = False, where=None):
    """`mean` of the elements that are not NaN."""
    unsupported_out("nanmean", out)
    return _nanmean(a, static_axis(axis), _dtype("nanmean", dtype), bool(keepdims), where)


def nanvar(a, axis=None, dtype=None, out=None, ddof=0, keepdims: bool = False, where=None, mean=None):
    """`var` of the elements that are not NaN."""
    unsupported_out("nanvar", out)
    return _nanvar(a, static_axis(axis), _dtype("nanvar", dtype), ddof, bool(keepdims), where, mean)


def nanstd(a, axis=None, dtype=None, out=None, ddof=0, keepdims: bool = False, where=None, mean=None):
    """`std` of the elements that are not NaN."""
    unsupported_out("nanstd", out)
    return lax.sqrt(_nanvar(a, static_axis(axis), _dtype("nanstd", dtype), ddof, bool(keepdims), where, mean))


def _nan_arg(arg, value, a, axis, keepdims):
    a, nan = _nan_mask("nanargmax", a)
    if nan is None:
        return arg(a, axis, keepdims)
    found = arg(lax.select(nan, value(a.dtype), a), axis, keepdims)
    return lax.select(_all(nan, axis, keepdims, None), -1, found)


@library(static_argnames=("axis", "keepdims"))
def _nanargmax(a, axis, keepdims):
    return _nan_arg(_argmax, _lowest, a, axis, keepdims)


@library(static_argnames=("axis", "keepdims"))
def _nanargmin(a, axis, keepdims):
    return _nan_arg(_argmin, _highest, a, axis, keepdims)


def nanargmax(a, axis: int | None = None, out=None, keepdims: bool | None = None):
    """`argmax` among the elements that are not NaN; -1 where there are no others."""
    unsupported_out("nanargmax", out)
    return _nanargmax(a, _axis(axis), bool(keepdims))


def nanargmin(a, axis: int | None = None, out=None, keepdims: bool | None = None):
    """`argmin` among the elements that are not NaN; -1 where there are no others."""
    unsupported_out("nanargmin", out)
    return _nanargmin(a, _axis(axis), bool(keepdims))


def nancumsum(a, axis: int | None = None, dtype=None, out=None):
    """outᵢ = Σ a_k over k ≤ i along `axis` (None: of all elements in order), NaN counting as 0."""
    unsupported_out("nancumsum", out)
    return _nan_cumulative(a, _axis(axis), _dtype("nancumsum", dtype), "sum")


def nancumprod(a, axis: int | None = None, dtype=None, out=None):
    """outᵢ = Π a_k over k ≤ i along `axis` (None: of all elements in order), NaN counting as 1."""
    unsupported_out("nancumprod", out)
    return _nan_cumulative(a, _axis(axis), _dtype("nancumprod", dtype), "prod")


@library(static_argnames=("axis", "dtype", "kind"))
def _nan_cumulative(a, axis, dtype, kind):
    (identity, *_), scan = (_ADD, _cumsum) if kind == "sum" else (_MUL, _cumprod)
    return scan(_without_nan(f"nancum{kind}", a, identity), axis, dtype)
