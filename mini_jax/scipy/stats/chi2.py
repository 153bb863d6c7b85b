"""The chi-square distribution: of the sum of df squares of standard normal numbers."""
from __future__ import annotations

from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise
from mini_jax.scipy.stats.densities import log_probability
from mini_jax.scipy.stats.gamma import gamma_cdf, gamma_sf, log_gamma_density

__all__ = ["logpdf", "pdf", "cdf", "logcdf", "sf", "logsf"]


@elementwise
def logpdf(x, df, loc=0, scale=1):
    """(k/2-1) log z - z/2 - log(2^(k/2) Γ(k/2) scale) for z = (x - loc)/scale ≥ 0, k = df; else -∞. NaN unless df > 0."""
    return log_gamma_density(x, df / 2, loc, 2 * scale)


@elementwise
def pdf(x, df, loc=0, scale=1):
    """z^(k/2-1) e^(-z/2) / 2^(k/2) Γ(k/2) scale for z = (x - loc)/scale ≥ 0, k = df; else 0."""
    return jnp.exp(log_gamma_density(x, df / 2, loc, 2 * scale))


@elementwise
def cdf(x, df, loc=0, scale=1):
    """P(df/2, z/2), z = (x - loc)/scale: the probability of less than x."""
    return gamma_cdf(x, df / 2, loc, 2 * scale)


@elementwise
def logcdf(x, df, loc=0, scale=1):
    """log of `cdf`."""
    return log_probability(gamma_cdf(x, df / 2, loc, 2 * scale), gamma_sf(x, df / 2, loc, 2 * scale))


@elementwise
def sf(x, df, loc=0, scale=1):
    """Q(df/2, z/2), z = (x - loc)/scale: the probability of more than x."""
    return gamma_sf(x, df / 2, loc, 2 * scale)


@elementwise
def logsf(x, df, loc=0, scale=1):
    """log of `sf`."""
    return log_probability(gamma_sf(x, df / 2, loc, 2 * scale), gamma_cdf(x, df / 2, loc, 2 * scale))
