"""Softmax and its relatives: sums of exponentials, computed relative to the largest; normalisation to mean 0 and variance 1."""
from __future__ import annotations

import math

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.lax.shapes import canonical_axes
from mini_jax.numpy.promotion import promote_args_inexact
from mini_jax.runtime.dispatch import library

__all__ = ["softmax", "log_softmax", "logsumexp", "logmeanexp", "standardize"]

_STATIC = ("axis", "keepdims", "return_sign")


def _axes(axis):
    """An axis argument made hashable."""
    return tuple(axis) if isinstance(axis, list) else axis


def _largest(x, axis, where):
    """The maximum along the axes (kept), as a constant for derivatives; -inf where there is nothing."""
    return lax.stop_gradient(jnp.max(x, axis, where=where, initial=-math.inf, keepdims=True))


# --- softmax --------------------------------------------------------------------------------------------------------------------------

def softmax(x, axis=-1, where=None):
    """exp(x) / Σ exp(x), the sum along `axis` (an int, a tuple, or None for all).

    where: entries to count; the others get 0, and where none is counted all get 0.
    """
    return _softmax(x, _axes(axis), where)


@library(static_argnames=("axis",))
def _softmax(x, axis, where):
    x, = promote_args_inexact("softmax", x)
    weights = _weights(x, axis, where)
    out = weights / jnp.sum(weights, axis, where=where, keepdims=True)
    return out if where is None else jnp.where(where, out, typeof(out).dtype.type(0))


def _weights(x, axis, where):
    """exp(x - max x)."""
    return jnp.exp(_masked(x, where) - _largest(x, axis, where))


def _masked(x, where):
    """x, with -inf for what does not count."""
    return x if where is None else jnp.where(where, x, typeof(x).dtype.type(-math.inf))


def log_softmax(x, axis=-1, where=None):
    """x - log Σ exp(x), the sum along `axis` (an int, a tuple, or None for all).

    where: entries to count; the others get -inf.
    """
    return _log_softmax(x, _axes(axis), where)


@library(static_argnames=("axis",))
def _log_softmax(x, axis, where):
    x, = promote_args_inexact("log_softmax", x)
    shifted = _masked(x, where) - _largest(x, axis, where)
    out = shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis, where=where, keepdims=True))
    return _masked(out, where)


# --- logsumexp --------------------------------------------------------------------------------------------------------------------------

def logsumexp(a, axis=None, b=None, keepdims=False, return_sign=False, where=None):
    """log Σ b·exp(a), the sum along `axis` (an int, a tuple, or None for all); -inf where there is nothing to sum.

    b: factors that broadcast with a. return_sign: return log |Σ| and the sign of Σ (for complex a: Σ/|Σ|); otherwise a
    negative sum gives NaN. where: entries to count. keepdims: keep the summed axes, with size 1.
    """
    return _logsumexp(a, b, where, _axes(axis), bool(keepdims), bool(return_sign))


@library(static_argnames=_STATIC)
def _logsumexp(a, b, where, axis, keepdims, return_sign):
    if b is None:
        a, = promote_args_inexact("logsumexp", a)
    else:
        a, b = promote_args_inexact("logsumexp", a, b)
        a, b = jnp.broadcast_arrays(a, b)
        a = jnp.where(b == 0, typeof(a).dtype.type(-math.inf), a)
    axis = canonical_axes(axis, a.ndim)
    if where is not None:
        a = jnp.where(where, a, typeof(a).dtype.type(0))
    is_complex = dtypes.is_complex(typeof(a).dtype)
    largest = _largest(a.real if is_complex else a, axis, where)
    largest = jnp.where(lax.is_finite(largest), largest, typeof(largest).dtype.type(0))
    terms = jnp.exp(a - largest)
    total = jnp.sum(terms if b is None else terms * b, axis, where=where, keepdims=keepdims)
    shift = largest if keepdims else jnp.squeeze(largest, axis)
    sign = jnp.sign(total)
    if is_complex and not return_sign:
        return jnp.log(total) + shift
    out = jnp.log(jnp.abs(total)) + shift
    if return_sign:
        return out, sign
    return out if b is None else jnp.where(sign < 0, typeof(out).dtype.type(math.nan), out)


def logmeanexp(x, axis=None, where=None, keepdims=False):
    """log of the mean of exp(x) along `axis`; NaN where there is nothing to average."""
    return _logmeanexp(x, where, _axes(axis), bool(keepdims))


@library(static_argnames=_STATIC)
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
    return _standardize(x, mean, variance, epsilon, where, _axes(axis), algorithm)


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
