"""Student's t distribution."""
from __future__ import annotations

import math

from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise
from mini_jax.scipy.special.gamma import log_beta

__all__ = ["logpdf", "pdf"]


def _logpdf(x, df, loc, scale):
    z = (x - loc) / scale
    half = jnp.full_like(df, 0.5)
    ratio = -log_beta(df / 2, half) - 0.5 * jnp.log(df)
    return jnp.where(df > 0, ratio - jnp.log(scale) - (df + 1) / 2 * jnp.log1p(z * z / df), math.nan)


@elementwise(widen=True)
def logpdf(x, df, loc=0, scale=1):
    """-(ν+1)/2 log(1 + z²/ν) - log(√ν B(ν/2, 1/2) scale), z = (x - loc)/scale, ν = df. NaN unless df > 0."""
    return _logpdf(x, df, loc, scale)


@elementwise(widen=True)
def pdf(x, df, loc=0, scale=1):
    """(1 + z²/ν)^(-(ν+1)/2) / √ν B(ν/2, 1/2) scale, z = (x - loc)/scale, ν = df."""
    return jnp.exp(_logpdf(x, df, loc, scale))
