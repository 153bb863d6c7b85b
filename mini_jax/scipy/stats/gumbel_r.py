"""The Gumbel distribution of the largest of many exponential-tailed numbers."""
from __future__ import annotations

import math

from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise
from mini_jax.scipy.stats.densities import log_probability

__all__ = ["logpdf", "pdf", "cdf", "logcdf", "sf", "logsf", "ppf"]


def _logpdf(x, loc, scale):
    z = (x - loc) / scale
    return jnp.where(z == -math.inf, -math.inf, -(z + jnp.exp(-z)) - jnp.log(scale))


@elementwise
def logpdf(x, loc=0, scale=1):
    """-(z + e^-z) - log scale, z = (x - loc)/scale."""
    return _logpdf(x, loc, scale)


@elementwise
def pdf(x, loc=0, scale=1):
    """exp(-(z + e^-z)) / scale, z = (x - loc)/scale."""
    return jnp.exp(_logpdf(x, loc, scale))


@elementwise
def cdf(x, loc=0, scale=1):
    """exp(-e^-z), z = (x - loc)/scale: the probability of less than x."""
    return jnp.exp(-jnp.exp(-((x - loc) / scale)))


@elementwise
def logcdf(x, loc=0, scale=1):
    """-e^-z, z = (x - loc)/scale."""
    return -jnp.exp(-((x - loc) / scale))


@elementwise
def sf(x, loc=0, scale=1):
    """1 - exp(-e^-z), z = (x - loc)/scale: the probability of more than x."""
    return -jnp.expm1(-jnp.exp(-((x - loc) / scale)))


@elementwise
def logsf(x, loc=0, scale=1):
    """log(1 - exp(-e^-z)), z = (x - loc)/scale: close to -z where that is large."""
    z = (x - loc) / scale
    far = z > 30
    rate = jnp.exp(-jnp.where(far, 30, z))
    return jnp.where(far, -z, log_probability(-jnp.expm1(-rate), jnp.exp(-rate)))


@elementwise
def ppf(p, loc=0, scale=1):
    """The inverse of `cdf`, loc - scale log(-log p); NaN for p outside [0, 1]."""
    return jnp.where((p >= 0) & (p <= 1), loc - scale * jnp.log(-jnp.log(p)), math.nan)
