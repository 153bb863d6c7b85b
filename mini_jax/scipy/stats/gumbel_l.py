"""The Gumbel distribution of the smallest of many exponential-tailed numbers: that of -x, where x is one of the largest (gumbel_r.py)."""
from __future__ import annotations

import math

from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise
from mini_jax.scipy.stats import gumbel_r

__all__ = ["logpdf", "pdf", "cdf", "logcdf", "sf", "logsf", "ppf"]


@elementwise
def logpdf(x, loc=0, scale=1):
    """-(z + e^-z) - log scale, z = (loc - x)/scale."""
    return gumbel_r.logpdf(-x, -loc, scale)


@elementwise
def pdf(x, loc=0, scale=1):
    """exp(-(z + e^-z)) / scale, z = (loc - x)/scale."""
    return gumbel_r.pdf(-x, -loc, scale)


@elementwise
def sf(x, loc=0, scale=1):
    """exp(-e^-z), z = (loc - x)/scale: the probability of more than x."""
    return gumbel_r.cdf(-x, -loc, scale)


@elementwise
def logsf(x, loc=0, scale=1):
    """-e^-z, z = (loc - x)/scale."""
    return gumbel_r.logcdf(-x, -loc, scale)


@elementwise
def cdf(x, loc=0, scale=1):
    """1 - exp(-e^-z), z = (loc - x)/scale: the probability of less than x."""
    return gumbel_r.sf(-x, -loc, scale)


@elementwise
def logcdf(x, loc=0, scale=1):
    """log(1 - exp(-e^-z)), z = (loc - x)/scale: close to -z where that is large."""
    return gumbel_r.logsf(-x, -loc, scale)


@elementwise
def ppf(p, loc=0, scale=1):
    """The inverse of `cdf`, loc + scale log(-log(1 - p)); NaN for p outside [0, 1]."""
    return jnp.where((p >= 0) & (p <= 1), loc + scale * jnp.log(-jnp.log1p(-p)), math.nan)
