"""The binomial distribution: how many of n tries succeed, each with probability p."""
from __future__ import annotations

from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise
from mini_jax.scipy.special.gamma import log_beta
from mini_jax.scipy.special.logarithms import _xlog1py, _xlogy
from mini_jax.scipy.stats.densities import log_supported, whole

__all__ = ["logpmf", "pmf"]


def _logpmf(k, n, p, loc):
    j = k - loc
    density = lambda j: -jnp.log1p(n) - log_beta(n - j + 1, j + 1) + _xlogy(j, p) + _xlog1py(n - j, -p)
    return log_supported((j >= 0) & (j <= n) & whole(j), density, j, 0)


@elementwise(widen=True)
def logpmf(k, n, p, loc=0):
    """log(n!/j!(n-j)! pʲ (1-p)ⁿ⁻ʲ) for whole j = k - loc between 0 and n, else -∞."""
    return _logpmf(k, n, p, loc)


@elementwise(widen=True)
def pmf(k, n, p, loc=0):
    """n!/j!(n-j)! pʲ (1-p)ⁿ⁻ʲ for whole j = k - loc between 0 and n, else 0."""
    return jnp.exp(_logpmf(k, n, p, loc))
