"""Integrals of sampled functions."""
from __future__ import annotations

from mini_jax import numpy as jnp

__all__ = ["trapezoid"]


def trapezoid(y, x=None, dx=1.0, axis: int = -1):
    """The integral of y along `axis` by the trapezoidal rule. x: the places of the samples (a vector, or an array like y), or dx: their distance."""
    return jnp.trapezoid(y, x, dx, axis)
