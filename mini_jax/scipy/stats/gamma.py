"""The gamma distribution, on [0, ∞)."""
from __future__ import annotations

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise
from mini_jax.scipy.special.logarithms import _xlogy
from mini_jax.scipy.stats.densities import log_probability, log_supported

__all__ = ["logpdf", "pdf", "cdf", "logcdf", "sf", "logsf"]


def log_gamma_density(x, a, loc, scale):
    z = (x - loc) / scale
    return log_supported(z >= 0, lambda z: _xlogy(a - 1, z) - z - lax.lgamma(a) - jnp.log(scale), z, 1, a > 0)


def gamma_cdf(x, a, loc, scale):
    return lax.igamma(a, jnp.maximum((x - loc) / scale, 0))


def gamma_sf(x, a, loc, scale):
    return lax.igammac(a, jnp.maximum((x - loc) / scale, 0))


@elementwise
def logpdf(x, a, loc=0, scale=1):
    """(a-1) log z - z - log Γ(a) - log scale for z = (x - loc)/scale ≥ 0; else -∞. NaN unless a > 0."""
    return log_gamma_density(x, a, loc, scale)


@elementwise
def pdf(x, a, loc=0, scale=1):
    """z^(a-1) e^-z / Γ(a) scale for z = (x - loc)/scale ≥ 0; else 0."""
    return jnp.exp(log_gamma_density(x, a, loc, scale))


@elementwise
def cdf(x, a, loc=0, scale=1):
    """P(a, z), z = (x - loc)/scale: the probability of less than x."""
    return gamma_cdf(x, a, loc, scale)


@elementwise
def logcdf(x, a, loc=0, scale=1):
    """log of `cdf`."""
    return log_probability(gamma_cdf(x, a, loc, scale), gamma_sf(x, a, loc, scale))


@elementwise
def sf(x, a, loc=0, scale=1):
    """Q(a, z), z = (x - loc)/scale: the probability of more than x."""
    return gamma_sf(x, a, loc, scale)


@elementwise
def logsf(x, a, loc=0, scale=1):
    """log of `sf`."""
    return log_probability(gamma_sf(x, a, loc, scale), gamma_cdf(x, a, loc, scale))
