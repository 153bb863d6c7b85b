"""The Poisson distribution: how many events there are when μ are expected."""
from __future__ import annotations

import math

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise
from mini_jax.scipy.special.logarithms import _xlogy
from mini_jax.scipy.stats.densities import log_supported, whole

__all__ = ["logpmf", "pmf", "cdf", "entropy"]


def _logpmf(k, mu, loc):
    j = k - loc
    return log_supported((j >= 0) & whole(j), lambda j: _xlogy(j, mu) - lax.lgamma(j + 1) - mu, j, 0, mu >= 0)


@elementwise
def logpmf(k, mu, loc=0):
    """j log μ - μ - log j! for whole j = k - loc ≥ 0, else -∞. NaN for μ < 0."""
    return _logpmf(k, mu, loc)


@elementwise
def pmf(k, mu, loc=0):
    """μʲ e^-μ / j! for whole j = k - loc ≥ 0, else 0."""
    return jnp.exp(_logpmf(k, mu, loc))


@elementwise
def cdf(k, mu, loc=0):
    """Q(⌊j⌋ + 1, μ), j = k - loc: the probability of at most k."""
    j = k - loc
    least = j >= 0
    a, mu = jnp.broadcast_arrays(jnp.floor(jnp.where(least, j, 0)) + 1, mu)
    return jnp.where(jnp.isnan(j), math.nan, jnp.where(least, lax.igammac(a, mu), 0))


_TERMS = 120
_MANY = 60.0


def _entropy(mu):
    """-Σ p log p over the first terms; of large μ the expansion ½ log 2πeμ - 1/12μ - 1/24μ² - ….
    (Evans, Boersma 1988)"""
    many = mu > _MANY
    few, large = jnp.where(many, 1, mu), jnp.where(many, mu, _MANY)
    k = jnp.arange(_TERMS, dtype=mu.dtype).reshape(-1, *(1,) * mu.ndim)
    log_p = _xlogy(k, few[None]) - lax.lgamma(k + 1) - few[None]
    direct = -jnp.sum(jnp.where(jnp.isinf(log_p), 0, jnp.exp(log_p) * jnp.where(jnp.isinf(log_p), 0, log_p)), 0)
    inverse = 1 / large
    rest = inverse * (1 / 12 + inverse * (1 / 24 + inverse * (19 / 360 + inverse * (9 / 80 + inverse * 863 / 2520))))
    far = 0.5 * jnp.log(2 * math.pi * math.e * large) - rest
    return jnp.where(mu >= 0, jnp.where(many, far, direct), math.nan)


@elementwise(widen=True)
def entropy(mu, loc=0):
    """-Σ pₖ log pₖ, whatever loc; NaN for μ < 0."""
    return _entropy(mu + 0 * loc)
