"""The Laplace distribution."""
from __future__ import annotations

import math

from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise

__all__ = ["logpdf", "pdf", "cdf"]


@elementwise
def logpdf(x, loc=0, scale=1):
    """-|z| - log(2 scale), z = (x - loc)/scale."""
    return -jnp.abs((x - loc) / scale) - jnp.log(scale) - math.log(2)


@elementwise
def pdf(x, loc=0, scale=1):
    """e^-|z| / 2 scale, z = (x - loc)/scale."""
    return jnp.exp(-jnp.abs((x - loc) / scale)) / (2 * scale)


@elementwise
def cdf(x, loc=0, scale=1):
    """e^z/2 for z ≤ 0, 1 - e^-z/2 above, z = (x - loc)/scale: the probability of less than x."""
    z = (x - loc) / scale
    half = 0.5 * jnp.exp(-jnp.abs(z))
    return jnp.where(z <= 0, half, 1 - half)
