"""The logistic distribution."""
from __future__ import annotations

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise
from mini_jax.scipy.special.logarithms import _logit

__all__ = ["logpdf", "pdf", "cdf", "sf", "ppf", "isf"]


def _logpdf(x, loc, scale):
    z = jnp.abs((x - loc) / scale)
    return -z - 2 * jnp.log1p(jnp.exp(-z)) - jnp.log(scale)


@elementwise
def logpdf(x, loc=0, scale=1):
    """-z - 2 log(1 + e^-z) - log scale, z = (x - loc)/scale."""
    return _logpdf(x, loc, scale)


@elementwise
def pdf(x, loc=0, scale=1):
    """e^-z / (1 + e^-z)² scale, z = (x - loc)/scale."""
    return jnp.exp(_logpdf(x, loc, scale))


@elementwise
def cdf(x, loc=0, scale=1):
    """1 / (1 + e^-z), z = (x - loc)/scale: the probability of less than x."""
    return lax.logistic((x - loc) / scale)


@elementwise
def sf(x, loc=0, scale=1):
    """1 / (1 + e^z), z = (x - loc)/scale: the probability of more than x."""
    return lax.logistic((loc - x) / scale)


@elementwise
def ppf(x, loc=0, scale=1):
    """loc + scale log(q / (1 - q)), the inverse of `cdf`, of the probability q = x."""
    return _logit(x) * scale + loc


@elementwise
def isf(x, loc=0, scale=1):
    """loc - scale log(q / (1 - q)), the inverse of `sf`, of the probability q = x."""
    return loc - _logit(x) * scale
