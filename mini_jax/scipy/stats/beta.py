"""The beta distribution, on [0, 1]."""
from __future__ import annotations

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise
from mini_jax.scipy.special.gamma import log_beta
from mini_jax.scipy.special.logarithms import _xlog1py, _xlogy
from mini_jax.scipy.stats.densities import log_probability, log_supported

__all__ = ["logpdf", "pdf", "cdf", "logcdf", "sf", "logsf"]


def _logpdf(x, a, b, loc, scale):
    z = (x - loc) / scale
    density = lambda z: _xlogy(a - 1, z) + _xlog1py(b - 1, -z) - log_beta(a, b) - jnp.log(scale)
    return log_supported((z >= 0) & (z <= 1), density, z, 0.5, (a > 0) & (b > 0))


@elementwise(widen=True)
def logpdf(x, a, b, loc=0, scale=1):
    """(a-1) log z + (b-1) log(1-z) - log B(a, b) - log scale for 0 ≤ z ≤ 1, z = (x - loc)/scale; else -∞. NaN unless a, b > 0."""
    return _logpdf(x, a, b, loc, scale)


@elementwise(widen=True)
def pdf(x, a, b, loc=0, scale=1):
    """z^(a-1) (1-z)^(b-1) / B(a, b) scale for 0 ≤ z ≤ 1, z = (x - loc)/scale; else 0."""
    return jnp.exp(_logpdf(x, a, b, loc, scale))


def _cdf(x, a, b, loc, scale):
    return lax.betainc(a, b, jnp.clip((x - loc) / scale, 0, 1))


@elementwise
def cdf(x, a, b, loc=0, scale=1):
    """I(a, b, z), z = (x - loc)/scale: the probability of less than x."""
    return _cdf(x, a, b, loc, scale)


@elementwise
def logcdf(x, a, b, loc=0, scale=1):
    """log of `cdf`."""
    return log_probability(_cdf(x, a, b, loc, scale), _sf(x, a, b, loc, scale))


def _sf(x, a, b, loc, scale):
    return lax.betainc(b, a, jnp.clip(1 - (x - loc) / scale, 0, 1))


@elementwise
def sf(x, a, b, loc=0, scale=1):
    """I(b, a, 1 - z), z = (x - loc)/scale: the probability of more than x."""
    return _sf(x, a, b, loc, scale)


@elementwise
def logsf(x, a, b, loc=0, scale=1):
    """log of `sf`."""
    return log_probability(_sf(x, a, b, loc, scale), _cdf(x, a, b, loc, scale))
