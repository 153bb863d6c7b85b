"""Logarithms and exponentials of statistics: x log y and entropies, the logistic function, Box-Cox transforms, sums of exponentials."""
from __future__ import annotations

import math

from mini_jax import lax
from mini_jax import nn
from mini_jax import numpy as jnp
from mini_jax.nn.softmax import logsumexp
from mini_jax.scipy.elementwise import derivatives, elementwise

__all__ = ["logsumexp", "softmax", "log_softmax", "expit", "logit", "xlogy", "xlog1py", "entr", "rel_entr", "kl_div", "boxcox", "boxcox1p"]


# --- sums of exponentials ------------------------------------------------------------------------------------------------------------

def softmax(x, /, *, axis=None):
    """exp(x) / Σ exp(x), the sum along `axis` (an int, a tuple, or None for all)."""
    return nn.softmax(x, axis)


def log_softmax(x, /, *, axis=None):
    """x - log Σ exp(x), the sum along `axis` (an int, a tuple, or None for all)."""
    return nn.log_softmax(x, axis)


# --- the logistic function -----------------------------------------------------------------------------------------------------------

@elementwise(complex_too=True)
def expit(x):
    """1 / (1 + e⁻ˣ), elementwise: the inverse of logit."""
    return lax.logistic(x)


@derivatives(lambda y, x: 1 / (x * (1 - x)))
def _logit(x):
    return jnp.log(x / (1 - x))


@elementwise
def logit(x):
    """log(x / (1 - x)), the inverse of `expit`; ±∞ at 0 and 1, NaN outside."""
    return _logit(x)


# --- x log y -------------------------------------------------------------------------------------------------------------------------

@derivatives(lambda _, x, y: jnp.log(y), lambda _, x, y: x / jnp.where((x == 0) & (y == 0), 1, y))
def _xlogy(x, y):
    zero = x == 0
    return jnp.where(zero & ~jnp.isnan(y), 0, x * jnp.log(jnp.where(zero & ~jnp.isnan(y), 1, y)))


@derivatives(lambda _, x, y: jnp.log1p(y), lambda _, x, y: x / jnp.where((x == 0) & (y == -1), 1, 1 + y))
def _xlog1py(x, y):
    zero = (x == 0) & ~jnp.isnan(y)
    return jnp.where(zero, 0, x * jnp.log1p(jnp.where(zero, 0, y)))


@elementwise(complex_too=True)
def xlogy(x, y):
    """x log y, and 0 where x = 0 (unless y is NaN)."""
    return _xlogy(x, y)


@elementwise(complex_too=True)
def xlog1py(x, y):
    """x log(1 + y), and 0 where x = 0 (unless y is NaN)."""
    return _xlog1py(x, y)


@derivatives(lambda _, x: jnp.where(x < 0, 0, -jnp.log(jnp.where(x < 0, 1, x)) - 1))
def _entr(x):
    return jnp.where(x < 0, -math.inf, -_xlogy(x, jnp.where(x < 0, 1, x)) + 0.0)


@elementwise
def entr(x):
    """-x log x: 0 at 0, -∞ below."""
    return _entr(x)


@elementwise
def rel_entr(p, q):
    """p log(p / q): 0 where p = 0 and q ≥ 0, ∞ where one is negative or only q is 0."""
    return _rel_entr(p, q)


def _rel_entr(p, q):
    inside, zero = (p > 0) & (q > 0), (p == 0) & (q >= 0)
    safe_p, safe_q = jnp.where(inside, p, 1), jnp.where(inside, q, 1)
    out = jnp.where(inside, safe_p * jnp.log(safe_p / safe_q), jnp.where(zero, 0, math.inf))
    return jnp.where(jnp.isnan(p) | jnp.isnan(q), math.nan, out)


@elementwise
def kl_div(p, q):
    """p log(p / q) - p + q: q where p = 0 and q ≥ 0, ∞ where one is negative or only q is 0."""
    finite = jnp.where((p > 0) & (q > 0), q - p, jnp.where((p == 0) & (q >= 0), q, 0))
    return _rel_entr(p, q) + finite


# --- Box-Cox -------------------------------------------------------------------------------------------------------------------------

def _power_less_one(log_x, lmbda):
    """(exp(λ log x) - 1) / λ, with its limit log x at λ = 0: a series close by, so that derivatives by λ are right there too."""
    power = lmbda * log_x
    near = (jnp.abs(power) < 1e-2) | (lmbda == 0)
    small, apart = jnp.where(near & jnp.isfinite(power), power, 0), jnp.where(near, 1, lmbda)
    series = log_x * (1 + small / 2 * (1 + small / 3 * (1 + small / 4 * (1 + small / 5 * (1 + small / 6 * (1 + small / 7))))))
    return jnp.where(near, jnp.where(jnp.isfinite(log_x), series, log_x), jnp.expm1(jnp.where(near, 1, power)) / apart)


@elementwise
def boxcox(x, lmbda):
    """(x^λ - 1) / λ, and log x where λ = 0; NaN for negative x."""
    return _power_less_one(jnp.log(x), lmbda)


@elementwise
def boxcox1p(x, lmbda):
    """((1 + x)^λ - 1) / λ, and log(1 + x) where λ = 0; NaN for x < -1."""
    return _power_less_one(jnp.log1p(x), lmbda)
