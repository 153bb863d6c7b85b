"""The exponential distribution, on [0, ∞)."""
from __future__ import annotations

import math

from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise
from mini_jax.scipy.stats.densities import log_supported

__all__ = ["logpdf", "pdf", "cdf", "logcdf", "sf", "logsf", "ppf"]


def _logpdf(x, loc, scale):
    z = (x - loc) / scale
    return log_supported(z >= 0, lambda z: -z - jnp.log(scale), z, 0)


def _above(x, loc, scale):
    """(x - loc)/scale where it is positive, else 0."""
    return jnp.maximum((x - loc) / scale, 0)


@elementwise
def logpdf(x, loc=0, scale=1):
    """-z - log scale for z = (x - loc)/scale ≥ 0; else -∞."""
    return _logpdf(x, loc, scale)


@elementwise
def pdf(x, loc=0, scale=1):
    """e^-z / scale for z = (x - loc)/scale ≥ 0; else 0."""
    return jnp.exp(_logpdf(x, loc, scale))


@elementwise
def cdf(x, loc=0, scale=1):
    """1 - e^-z, z = (x - loc)/scale: the probability of less than x."""
    return -jnp.expm1(-_above(x, loc, scale))


@elementwise
def logcdf(x, loc=0, scale=1):
    """log(1 - e^-z), z = (x - loc)/scale."""
    z = _above(x, loc, scale)
    far = z > 0.7
    inside = jnp.where(far, jnp.log1p(-jnp.exp(-jnp.where(far, z, 1))), jnp.log(-jnp.expm1(-jnp.where(far | (z == 0), 1, z))))
    return jnp.where(z == 0, -math.inf, inside)


@elementwise
def sf(x, loc=0, scale=1):
    """e^-z, z = (x - loc)/scale: the probability of more than x."""
    return jnp.exp(-_above(x, loc, scale))


@elementwise
def logsf(x, loc=0, scale=1):
    """-z, z = (x - loc)/scale."""
    return -_above(x, loc, scale)


@elementwise
def ppf(q, loc=0, scale=1):
    """loc - scale log(1 - q), the inverse of `cdf`; NaN for q outside [0, 1]."""
    return jnp.where((q >= 0) & (q <= 1), loc - scale * jnp.log1p(-q), math.nan)
