"""The Cauchy distribution wrapped around the circle, of angles in [0, 2π]."""
from __future__ import annotations

import math

from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise
from mini_jax.scipy.stats.densities import log_supported

__all__ = ["logpdf", "pdf"]


def _logpdf(x, c):
    density = lambda x: jnp.log1p(-c * c) - math.log(2 * math.pi) - jnp.log(1 + c * c - 2 * c * jnp.cos(x))
    out = log_supported((x >= 0) & (x <= 2 * math.pi), density, x, 0.0)
    return jnp.where((c > 0) & (c < 1), out, math.nan)


@elementwise
def logpdf(x, c):
    """log((1 - c²) / 2π(1 + c² - 2c cos x)) for 0 ≤ x ≤ 2π, else -∞. NaN unless 0 < c < 1."""
    return _logpdf(x, c)


@elementwise
def pdf(x, c):
    """(1 - c²) / 2π(1 + c² - 2c cos x) for 0 ≤ x ≤ 2π, else 0."""
    return jnp.exp(_logpdf(x, c))
