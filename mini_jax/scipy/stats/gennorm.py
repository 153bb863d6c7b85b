"""The generalised normal distribution."""
from __future__ import annotations

import math

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.scipy.elementwise import elementwise

__all__ = ["logpdf", "pdf", "cdf"]


def _logpdf(x, beta):
    return jnp.log(beta) - math.log(2) - lax.lgamma(1 / beta) - _power(x, beta)


def _power(x, beta):
    """|x|^β, whose derivatives are finite at 0 for β ≥ 1."""
    zero = x == 0
    return jnp.where(zero, 0, jnp.exp(beta * jnp.log(jnp.abs(jnp.where(zero, 1, x)))))


@elementwise
def logpdf(x, beta):
    """-|x|^β + log(β / 2Γ(1/β))."""
    return _logpdf(x, beta)


@elementwise
def pdf(x, beta):
    """β e^-|x|^β / 2Γ(1/β)."""
    return jnp.exp(_logpdf(x, beta))


@elementwise
def cdf(x, beta):
    """(1 + sign(x) P(1/β, |x|^β)) / 2: the probability of less than x."""
    inverse, power = jnp.broadcast_arrays(1 / beta, _power(x, beta))
    return jnp.where(x < 0, 0.5 * lax.igammac(inverse, power), 0.5 + 0.5 * lax.igamma(inverse, power))
