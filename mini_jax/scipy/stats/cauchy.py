"""The Cauchy distribution."""
from __future__ import annotations

import math

from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise
from mini_jax.scipy.stats.densities import log_probability

__all__ = ["logpdf", "pdf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf"]


def _below(z):
    """atan2(1, -z)/π = 1/2 + atan(z)/π, accurate for large negative z."""
    return jnp.arctan2(jnp.ones_like(z), -z) / math.pi


def _quantile(q):
    inside = (q >= 0) & (q <= 1)
    lower = jnp.minimum(q, 1 - q)
    size = 1 / jnp.tan(math.pi * jnp.where(inside & (lower > 0), lower, 0.25))
    size = jnp.where(lower == 0, math.inf, jnp.where(lower == 0.5, 0, size))
    return jnp.where(inside, jnp.where(q < 0.5, -size, size), math.nan)


@elementwise
def logpdf(x, loc=0, scale=1):
    """-log π scale (1 + z²), z = (x - loc)/scale."""
    z = (x - loc) / scale
    return -jnp.log1p(z * z) - jnp.log(scale) - math.log(math.pi)


@elementwise
def pdf(x, loc=0, scale=1):
    """1 / π scale (1 + z²), z = (x - loc)/scale."""
    z = (x - loc) / scale
    return 1 / (math.pi * scale * (1 + z * z))


@elementwise
def cdf(x, loc=0, scale=1):
    """1/2 + atan(z)/π, z = (x - loc)/scale: the probability of less than x."""
    return _below((x - loc) / scale)


@elementwise
def logcdf(x, loc=0, scale=1):
    """log of `cdf`."""
    return log_probability(_below((x - loc) / scale), _below((loc - x) / scale))


@elementwise
def sf(x, loc=0, scale=1):
    """1/2 - atan(z)/π, z = (x - loc)/scale: the probability of more than x."""
    return _below((loc - x) / scale)


@elementwise
def logsf(x, loc=0, scale=1):
    """log of `sf`."""
    return log_probability(_below((loc - x) / scale), _below((x - loc) / scale))


@elementwise
def ppf(q, loc=0, scale=1):
    """loc + scale tan(π(q - 1/2)), the inverse of `cdf`; NaN for q outside [0, 1]."""
    return _quantile(q) * scale + loc


@elementwise
def isf(q, loc=0, scale=1):
    """loc - scale tan(π(q - 1/2)), the inverse of `sf`; NaN for q outside [0, 1]."""
    return loc - _quantile(q) * scale
