"""The normal distribution given that a ≤ (x - loc)/scale ≤ b."""
from __future__ import annotations

import math

from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise
from mini_jax.scipy.special.error import log_normal_cdf
from mini_jax.scipy.stats.densities import log_supported

__all__ = ["logpdf", "pdf", "cdf", "logcdf", "sf", "logsf"]


def _log_mass(low, high):
    """log(Φ(high) - Φ(low)): in whichever tail they lie, log(e^l - e^s) = l + log(1 - e^(s - l)) of the larger and the smaller mass."""
    right = low > 0
    smaller, larger = jnp.where(right, -high, low), jnp.where(right, -low, high)
    large, small = log_normal_cdf(larger), log_normal_cdf(smaller)
    empty = jnp.isinf(small)
    apart = jnp.where(large > small, jnp.where(empty, -1, small) - jnp.where(empty, 0, large), -1)
    mass = jnp.where(apart > -0.7, jnp.log(-jnp.expm1(apart)), jnp.log1p(-jnp.exp(apart)))
    return jnp.where(empty, large, jnp.where(large > small, large + mass, -math.inf))


@elementwise(widen=True)
def logpdf(x, a, b, loc=0, scale=1):
    """log φ(z) - log σ - log(Φ(b) - Φ(a)) for a ≤ z ≤ b, z = (x - loc)/σ, σ = scale; else -∞. NaN where b < a."""
    return _logpdf(x, a, b, loc, scale)


def _logpdf(x, a, b, loc, scale):
    z = (x - loc) / scale
    at = jnp.where(jnp.isfinite(a), a, jnp.where(jnp.isfinite(b), b, 0))
    density = lambda z: -0.5 * z * z - 0.5 * math.log(2 * math.pi) - jnp.log(scale) - _log_mass(a, b)
    return jnp.where(a < b, log_supported((z >= a) & (z <= b), density, z, at), math.nan)


@elementwise(widen=True)
def pdf(x, a, b, loc=0, scale=1):
    """φ(z) / σ(Φ(b) - Φ(a)) for a ≤ z ≤ b, z = (x - loc)/σ, σ = scale; else 0."""
    return jnp.exp(_logpdf(x, a, b, loc, scale))


def _log_share(low, high, a, b):
    """log of the share of [low, high] in [a, b]."""
    inside = (low < high) & (low >= a) & (high <= b)
    share = _log_mass(jnp.where(inside, low, a), jnp.where(inside, high, b)) - _log_mass(a, b)
    return jnp.where(a < b, share, math.nan), inside


@elementwise(widen=True)
def logcdf(x, a, b, loc=0, scale=1):
    """log of the probability of less than x."""
    return _logcdf(x, a, b, loc, scale)


def _logcdf(x, a, b, loc, scale):
    z = (x - loc) / scale
    share, inside = _log_share(a, z, a, b)
    return jnp.where(jnp.isnan(z) | jnp.isnan(share), math.nan, jnp.where(inside & (z < b), share, jnp.where(z <= a, -math.inf, 0)))


@elementwise(widen=True)
def cdf(x, a, b, loc=0, scale=1):
    """(Φ(z) - Φ(a)) / (Φ(b) - Φ(a)), z = (x - loc)/scale between a and b: the probability of less than x."""
    return jnp.exp(_logcdf(x, a, b, loc, scale))


@elementwise(widen=True)
def logsf(x, a, b, loc=0, scale=1):
    """log of the probability of more than x."""
    return _logcdf(-x, -b, -a, -loc, scale)


@elementwise(widen=True)
def sf(x, a, b, loc=0, scale=1):
    """1 - cdf, accurate for large x."""
    return jnp.exp(_logcdf(-x, -b, -a, -loc, scale))
