"""The beta-binomial distribution: binomial, with a probability that is beta distributed."""
from __future__ import annotations

from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise
from mini_jax.scipy.special.gamma import log_beta
from mini_jax.scipy.stats.densities import log_supported, whole

__all__ = ["logpmf", "pmf"]


def _logpmf(k, n, a, b, loc):
    j = k - loc
    density = lambda j: -jnp.log1p(n) - log_beta(n - j + 1, j + 1) + log_beta(j + a, n - j + b) - log_beta(a, b)
    return log_supported((j >= 0) & (j <= n) & whole(j), density, j, 0, (a > 0) & (b > 0))


@elementwise(widen=True)
def logpmf(k, n, a, b, loc=0):
    """log(n!/j!(n-j)! B(j+a, n-j+b) / B(a, b)) for whole j = k - loc between 0 and n, else -∞. NaN unless a, b > 0."""
    return _logpmf(k, n, a, b, loc)


@elementwise(widen=True)
def pmf(k, n, a, b, loc=0):
    """n!/j!(n-j)! B(j+a, n-j+b) / B(a, b) for whole j = k - loc between 0 and n, else 0."""
    return jnp.exp(_logpmf(k, n, a, b, loc))
