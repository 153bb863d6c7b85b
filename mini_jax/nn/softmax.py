"""Softmax and its relatives: sums of exponentials, computed relative to the largest; normalisation to mean 0 and variance 1."""
from __future__ import annotations

import math

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.lax.reductions import reduce_max_number
from mini_jax.lax.shapes import canonical_axes
from mini_jax.numpy.promotion import promote_args_inexact
from mini_jax.runtime.dispatch import library

__all__ = ["softmax", "log_softmax", "logsumexp", "logmeanexp", "standardize"]


def _hashable(axis):
    return tuple(axis) if isinstance(axis, list) else axis


def _spread(reduced, shape, axes):
    """What a reduction over the axes gave, repeated over them."""
    return lax.broadcast_in_dim(reduced, shape, tuple([i for i in range(len(shape)) if i not in axes]))


def _largest(x, axes):
    """The maximum over the axes, a constant for derivatives; -inf where there is nothing. Of complex numbers: the real part's."""
    x = lax.stop_gradient(x)
    return reduce_max_number(lax.real(x) if dtypes.is_complex(typeof(x).dtype) else x, axes)


def _masked(x, where, value):
    """x, with `value` for what does not count."""
    return x if where is None else jnp.where(where, x, value)


# --- softmax --------------------------------------------------------------------------------------------------------------------------

def softmax(x, axis=-1, where=None):
    """exp(x) / Σ exp(x), the sum along `axis` (an int, a tuple, or None for all).

    where: entries to count; the others get 0, and where none is counted all get 0.
    """
    return _softmax(x, where, _hashable(axis))


def log_softmax(x, axis=-1, where=None):
    """x - log Σ exp(x), the sum along `axis` (an int, a tuple, or None for all).

    where: entries to count; the others get -inf.
    """
    return _log_softmax(x, where, _hashable(axis))


@library(static_argnames=("axis",))
def _softmax(x, where, axis):
    x, axes = _arguments("softmax", x, where, axis)
    weights = _masked(lax.exp(_shifted(x, where, axes)), where, 0)
    return _masked(lax.div(weights, _spread(lax.reduce_sum(weights, axes), typeof(x).shape, axes)), where, 0)


@library(static_argnames=("axis",))
def _log_softmax(x, where, axis):
    x, axes = _arguments("log_softmax", x, where, axis)
    shifted = _shifted(x, where, axes)
    total = lax.log(lax.reduce_sum(_masked(lax.exp(shifted), where, 0), axes))
    return _masked(lax.sub(shifted, _spread(total, typeof(x).shape, axes)), where, -math.inf)


def _arguments(name, x, where, axis):
    x, = promote_args_inexact(name, x)
    if where is not None:
        x, _ = jnp.broadcast_arrays(x, where)
    return x, canonical_axes(axis, typeof(x).ndim)


def _shifted(x, where, axes):
    """x - max x."""
    x = _masked(x, where, -math.inf)
    return x - _spread(_largest(x, axes), typeof(x).shape, axes)


# --- logsumexp --------------------------------------------------------------------------------------------------------------------------

def logsumexp(a, axis=None, b=None, keepdims=False, return_sign=False, where=None):
    """log Σ b·exp(a), the sum along `axis` (an int, a tuple, or None for all); -inf where there is nothing to sum.

    b: factors that broadcast with a. return_sign: return log |Σ| and the sign of Σ (for complex a: Σ/|Σ|); otherwise a
    negative sum gives NaN. where: entries to count. keepdims: keep the summed axes, with size 1.
    """
    return _logsumexp(a, b, where, _hashable(axis), bool(keepdims), bool(return_sign))


@library(static_argnames=("axis", "keepdims", "return_sign"))
def _logsumexp(a, b, where, axis, keepdims, return_sign):
    if b is not None:
        a, b = jnp.broadcast_arrays(*promote_args_inexact("logsumexp", a, b))
        a = jnp.where(b == 0, -math.inf, a)
    a, axes = _arguments("logsumexp", a, where, axis)
    a = _masked(a, where, 0)
    largest = _largest(_masked(a, where, -math.inf), axes)
    largest = jnp.where(lax.is_finite(largest), largest, 0)
    terms = lax.exp(a - _spread(largest, typeof(a).shape, axes))
    total = lax.reduce_sum(_masked(terms if b is None else terms * b, where, 0), axes)
    is_complex = dtypes.is_complex(typeof(total).dtype)
    signed = return_sign or b is not None and not is_complex
    out = lax.log(lax.abs(total) if signed else total) + largest
    sign = lax.sign(total) if signed else None
    if signed and not return_sign:
        out = jnp.where(sign < 0, math.nan, out)
    if keepdims:
        out, sign = [None if x is None else lax.expand_dims(x, axes) for x in (out, sign)]
    return (out, sign) if return_sign else out


def logmeanexp(x, axis=None, where=None, keepdims=False):
    """log of the mean of exp(x) along `axis`; NaN where there is nothing to average."""
    return _logmeanexp(x, where, _hashable(axis), bool(keepdims))


@library(static_argnames=("axis", "keepdims"))
def _logmeanexp(x, where, axis, keepdims):
    total = _logsumexp(x, None, where, axis, keepdims, False)
    dtype = dtypes.to_real(typeof(total).dtype)
    shape = jnp.shape(x)
    if where is None:
        axes = canonical_axes(axis, len(shape))
        return total - jnp.log(dtype.type(math.prod([shape[a] for a in axes])))
    count = jnp.sum(jnp.broadcast_to(where, shape), axis, keepdims=keepdims, dtype=dtype)
    return total - jnp.log(count)


# --- standardize ---------------------------------------------------------------------------------------------------------------------------

def standardize(x, axis=-1, mean=None, variance=None, epsilon=1e-5, where=None, *, algorithm="fast"):
    """(x - mean) / √(variance + epsilon), along `axis` (an int, a tuple, or None for all).

    mean, variance: computed where they are not given, of the entries that `where` counts. algorithm: 'fast' takes the mean
    of squares minus the square of the mean, 'stable' the mean of squared differences. ValueError for another word.
    """
    if algorithm not in ("fast", "stable"):
        raise ValueError(f"nn.standardize: algorithm is 'fast' or 'stable', got {algorithm!r}")
    return _standardize(x, mean, variance, epsilon, where, _hashable(axis), algorithm)


@library(static_argnames=("axis", "algorithm"))
def _standardize(x, mean, variance, epsilon, where, axis, algorithm):
    x, = promote_args_inexact("standardize", x)
    if mean is None:
        mean = jnp.mean(x, axis, keepdims=True, where=where)
    if variance is None:
        if algorithm == "fast":
            difference = jnp.mean(x * x, axis, keepdims=True, where=where) - mean * mean
            variance = jnp.where(difference < 0, typeof(difference).dtype.type(0), difference)      # rounding; NaN stays NaN
        else:
            variance = jnp.mean((x - mean) * (x - mean), axis, keepdims=True, where=where)
    return (x - mean) * lax.rsqrt(variance + epsilon)
