"""The Pareto distribution, on [1, ∞)."""
from __future__ import annotations

import math

from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise
from mini_jax.scipy.stats.densities import log_supported

__all__ = ["logpdf", "pdf", "cdf", "logcdf", "sf", "logsf", "ppf"]


def _logpdf(x, b, loc, scale):
    z = (x - loc) / scale
    return log_supported(z >= 1, lambda z: jnp.log(b) - jnp.log(scale) - (b + 1) * jnp.log(z), z, 1)


def _logsf(x, b, loc, scale):
    return -b * jnp.log(jnp.maximum((x - loc) / scale, 1))


@elementwise
def logpdf(x, b, loc=0, scale=1):
    """log b - (b+1) log z - log scale for z = (x - loc)/scale ≥ 1; else -∞."""
    return _logpdf(x, b, loc, scale)


@elementwise
def pdf(x, b, loc=0, scale=1):
    """b / z^(b+1) scale for z = (x - loc)/scale ≥ 1; else 0."""
    return jnp.exp(_logpdf(x, b, loc, scale))


@elementwise
def cdf(x, b, loc=0, scale=1):
    """1 - z^-b, z = (x - loc)/scale ≥ 1: the probability of less than x."""
    return -jnp.expm1(_logsf(x, b, loc, scale))


@elementwise
def logcdf(x, b, loc=0, scale=1):
    """log(1 - z^-b), z = (x - loc)/scale."""
    log_sf = _logsf(x, b, loc, scale)
    none = log_sf == 0
    return jnp.where(none, -math.inf, jnp.log(-jnp.expm1(jnp.where(none, -1, log_sf))))


@elementwise
def sf(x, b, loc=0, scale=1):
    """z^-b, z = (x - loc)/scale ≥ 1: the probability of more than x."""
    return jnp.exp(_logsf(x, b, loc, scale))


@elementwise
def logsf(x, b, loc=0, scale=1):
    """-b log z, z = (x - loc)/scale ≥ 1."""
    return _logsf(x, b, loc, scale)


@elementwise
def ppf(q, b, loc=0, scale=1):
    """loc + scale (1 - q)^(-1/b), the inverse of `cdf`; NaN for q outside [0, 1]."""
    return jnp.where((q >= 0) & (q <= 1), loc + scale * jnp.exp(-jnp.log1p(-q) / b), math.nan)
