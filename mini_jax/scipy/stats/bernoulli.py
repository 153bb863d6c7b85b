"""The Bernoulli distribution: 1 with probability p, else 0."""
from __future__ import annotations

import math

from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise

__all__ = ["logpmf", "pmf", "cdf", "ppf"]


def _valid(p):
    return jnp.where((p >= 0) & (p <= 1), p, math.nan)


def _pmf(k, p, loc):
    j = k - loc
    return jnp.where(jnp.isnan(k), math.nan, jnp.where(j == 0, 1 - p, jnp.where(j == 1, p, 0)))


@elementwise
def logpmf(k, p, loc=0):
    """log p for k = loc + 1, log(1 - p) for k = loc, else -∞."""
    j = k - loc
    out = jnp.where(j == 0, jnp.log1p(-p), jnp.where(j == 1, jnp.log(p), -math.inf))
    return jnp.where(jnp.isnan(k), math.nan, out)


@elementwise
def pmf(k, p, loc=0):
    """p for k = loc + 1, 1 - p for k = loc, else 0."""
    return _pmf(k, p, loc)


@elementwise
def cdf(k, p):
    """0 for k < 0, 1 - p for 0 ≤ k < 1, 1 above: the probability of at most k. NaN for p outside [0, 1]."""
    out = jnp.where(k < 0, 0, jnp.where(k < 1, 1 - p, 1))
    return jnp.where(jnp.isnan(k) | jnp.isnan(_valid(p)), math.nan, out)


@elementwise
def ppf(q, p):
    """0 for q ≤ 1 - p, 1 above: the least k with cdf(k, p) ≥ q. NaN for q or p outside [0, 1]."""
    return jnp.where(jnp.isnan(_valid(q)) | jnp.isnan(_valid(p)), math.nan, jnp.where(q <= 1 - p, 0, 1))
