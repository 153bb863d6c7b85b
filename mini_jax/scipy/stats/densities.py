"""What the distributions' formulas are written with: a density on its support, and masks that keep derivatives finite beside it."""
from __future__ import annotations

import math

from mini_jax import numpy as jnp


def log_supported(inside, log_density, x, at, valid=True):
    """log_density(x) where `inside`, else -∞; NaN where x is, and unless the parameters are `valid`.

    Outside it is evaluated, and differentiated, at `at` instead.
    """
    value = log_density(jnp.where(inside, x, at))
    return jnp.where(jnp.isnan(x) | ~jnp.asarray(valid), math.nan, jnp.where(inside, value, -math.inf))


def log_probability(p, q):
    """log p, of a probability p and that of the opposite: where p is close to 1, by log(1 - q)."""
    likely = p > 0.5
    return jnp.where(likely, jnp.log1p(-jnp.where(likely, q, 0)), jnp.log(jnp.where(likely, 1, p)))


def whole(k):
    """Is k a whole number?"""
    return k == jnp.floor(k)
