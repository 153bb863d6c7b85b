"""The normal distribution."""
from __future__ import annotations

import math

from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise
from mini_jax.scipy.special.error import log_normal_cdf, normal_cdf, normal_quantile

__all__ = ["logpdf", "pdf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf"]


@elementwise
def logpdf(x, loc=0, scale=1):
    """-((x - μ)/σ)²/2 - log(σ√2π), with μ = loc and σ = scale."""
    z = (x - loc) / scale
    return -0.5 * z * z - jnp.log(scale) - 0.5 * math.log(2 * math.pi)


@elementwise
def pdf(x, loc=0, scale=1):
    """exp(-((x - μ)/σ)²/2) / σ√2π, with μ = loc and σ = scale."""
    z = (x - loc) / scale
    return jnp.exp(-0.5 * z * z) / (scale * math.sqrt(2 * math.pi))


@elementwise
def cdf(x, loc=0, scale=1):
    """Φ((x - loc) / scale), the probability of less than x."""
    return normal_cdf((x - loc) / scale)


@elementwise(widen=True)
def logcdf(x, loc=0, scale=1):
    """log Φ((x - loc) / scale), accurate in both tails."""
    return log_normal_cdf((x - loc) / scale)


@elementwise
def sf(x, loc=0, scale=1):
    """1 - Φ((x - loc) / scale), accurate for large x."""
    return normal_cdf((loc - x) / scale)


@elementwise(widen=True)
def logsf(x, loc=0, scale=1):
    """log(1 - Φ((x - loc) / scale)), accurate in both tails."""
    return log_normal_cdf((loc - x) / scale)


@elementwise(widen=True)
def ppf(q, loc=0, scale=1):
    """loc + scale Φ⁻¹(q), the inverse of `cdf`; NaN for q outside [0, 1]."""
    return normal_quantile(q) * scale + loc


@elementwise(widen=True)
def isf(q, loc=0, scale=1):
    """loc - scale Φ⁻¹(q), the inverse of `sf`; NaN for q outside [0, 1]."""
    return loc - normal_quantile(q) * scale
