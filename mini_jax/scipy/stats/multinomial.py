"""The multinomial distribution: how often each of several outcomes occurs in n tries."""
from __future__ import annotations

import math

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.numpy.promotion import arraylike, as_array, promote_dtypes_inexact
from mini_jax.runtime.dispatch import library
from mini_jax.scipy.special.logarithms import _xlogy

__all__ = ["logpmf", "pmf"]


def _logpmf(x, n, p):
    p, = promote_dtypes_inexact(*arraylike("multinomial", p))
    p, x, n = as_array(p), *[as_array(y) for y in arraylike("multinomial", x, n)]
    x, n = x.astype(p.dtype), n.astype(p.dtype)
    out = lax.lgamma(n + 1) + jnp.sum(_xlogy(x, p) - lax.lgamma(x + 1), -1)
    return jnp.where(jnp.sum(x, -1) == n, out, -math.inf)


@library
def logpmf(x, n, p):
    """log(n!/Πxᵢ! Π pᵢ^xᵢ), sums and products over the last dimension; -∞ where Σ xᵢ ≠ n.

    x: (..., k), counts. n: (...), tries. p: (..., k), probabilities that add up to 1. All broadcast.
    """
    return _logpmf(x, n, p)


@library
def pmf(x, n, p):
    """n!/Πxᵢ! Π pᵢ^xᵢ; see `logpmf`."""
    return jnp.exp(_logpmf(x, n, p))
