"""The uniform distribution, on [loc, loc + scale]."""
from __future__ import annotations

import math

from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise
from mini_jax.scipy.stats.densities import log_supported

__all__ = ["logpdf", "pdf", "cdf", "ppf"]


def _logpdf(x, loc, scale):
    return log_supported((x >= loc) & (x <= loc + scale), lambda x: -jnp.log(scale) + 0 * x, x, loc)


@elementwise
def logpdf(x, loc=0, scale=1):
    """-log scale for loc ≤ x ≤ loc + scale; else -∞."""
    return _logpdf(x, loc, scale)


@elementwise
def pdf(x, loc=0, scale=1):
    """1/scale for loc ≤ x ≤ loc + scale; else 0."""
    return jnp.exp(_logpdf(x, loc, scale))


@elementwise
def cdf(x, loc=0, scale=1):
    """(x - loc)/scale between loc and loc + scale: the probability of less than x."""
    return jnp.clip((x - loc) / scale, 0, 1)


@elementwise
def ppf(q, loc=0, scale=1):
    """loc + scale q, the inverse of `cdf`; NaN for q outside [0, 1]."""
    return jnp.where((q >= 0) & (q <= 1), loc + scale * q, math.nan)
