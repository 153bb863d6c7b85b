"""The von Mises distribution, of angles."""
from __future__ import annotations

import math

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise

__all__ = ["logpdf", "pdf"]


def _logpdf(x, kappa):
    kappa = jnp.where(kappa >= 0, kappa, math.nan)
    return kappa * (jnp.cos(x) - 1) - math.log(2 * math.pi) - jnp.log(lax.bessel_i0e(kappa))


@elementwise
def logpdf(x, kappa):
    """κ cos x - log 2πI₀(κ). NaN for κ < 0."""
    return _logpdf(x, kappa)


@elementwise
def pdf(x, kappa):
    """e^(κ cos x) / 2πI₀(κ)."""
    return jnp.exp(_logpdf(x, kappa))
