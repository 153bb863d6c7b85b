"""The geometric distribution: how many tries it takes until one succeeds, each with probability p."""
from __future__ import annotations

from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise
from mini_jax.scipy.special.logarithms import _xlog1py
from mini_jax.scipy.stats.densities import log_supported, whole

__all__ = ["logpmf", "pmf"]


def _logpmf(k, p, loc):
    j = k - loc
    return log_supported((j >= 1) & whole(j), lambda j: _xlog1py(j - 1, -p) + jnp.log(p), j, 1)


@elementwise
def logpmf(k, p, loc=0):
    """log(p (1-p)ʲ⁻¹) for whole j = k - loc ≥ 1, else -∞."""
    return _logpmf(k, p, loc)


@elementwise
def pmf(k, p, loc=0):
    """p (1-p)ʲ⁻¹ for whole j = k - loc ≥ 1, else 0."""
    return jnp.exp(_logpmf(k, p, loc))
