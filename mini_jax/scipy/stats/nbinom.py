"""The negative binomial distribution: how many fail until n have succeeded, each with probability p."""
from __future__ import annotations

from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise
from mini_jax.scipy.special.gamma import log_beta
from mini_jax.scipy.special.logarithms import _xlog1py, _xlogy
from mini_jax.scipy.stats.densities import log_supported, whole

__all__ = ["logpmf", "pmf"]


def _logpmf(k, n, p, loc):
    j = k - loc
    density = lambda j: -jnp.log(n + j) - log_beta(n, j + 1) + _xlogy(n, p) + _xlog1py(j, -p)
    return log_supported((j >= 0) & whole(j), density, j, 0)


@elementwise(widen=True)
def logpmf(k, n, p, loc=0):
    """log(Γ(j+n)/j!Γ(n) pⁿ (1-p)ʲ) for whole j = k - loc ≥ 0, else -∞."""
    return _logpmf(k, n, p, loc)


@elementwise(widen=True)
def pmf(k, n, p, loc=0):
    """Γ(j+n)/j!Γ(n) pⁿ (1-p)ʲ for whole j = k - loc ≥ 0, else 0."""
    return jnp.exp(_logpmf(k, n, p, loc))
