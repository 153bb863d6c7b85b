"""The Dirichlet distribution, of points of a simplex."""
from __future__ import annotations

import math

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.numpy.promotion import arraylike, as_array, promote_dtypes_inexact
from mini_jax.runtime.dispatch import library
from mini_jax.scipy.special.logarithms import _xlogy

__all__ = ["logpdf", "pdf"]


def _logpdf(x, alpha):
    x, alpha = [as_array(y) for y in promote_dtypes_inexact(*arraylike("dirichlet", x, alpha))]
    if alpha.ndim != 1:
        raise ValueError(f"dirichlet: alpha must be a vector, got {alpha.aval}")
    if x.ndim < 1 or x.shape[0] not in (alpha.shape[0], alpha.shape[0] - 1):
        raise ValueError(f"dirichlet: the first dimension of x must be that of alpha, or one less, got {x.aval} and {alpha.aval}")
    if x.shape[0] != alpha.shape[0]:
        x = jnp.concatenate([x, 1 - jnp.sum(x, 0, keepdims=True)], 0)
    column = alpha.reshape(-1, *(1,) * (x.ndim - 1))
    inside = jnp.all(x >= 0, 0) & (jnp.abs(jnp.sum(x, 0) - 1) < 1e-5)
    x = jnp.where(inside, x, 1 / alpha.shape[0])
    out = jnp.sum(_xlogy(column - 1, x), 0) - jnp.sum(lax.lgamma(alpha)) + lax.lgamma(jnp.sum(alpha))
    return jnp.where(inside, out, -math.inf)


@library
def logpdf(x, alpha):
    """Σ (αᵢ-1) log xᵢ + log Γ(Σ αᵢ) - Σ log Γ(αᵢ) on the simplex xᵢ ≥ 0, Σ xᵢ = 1, else -∞.

    alpha: (k). x: (k, *B), or (k - 1, *B), without what makes the sum 1. Returns (*B). Raises ValueError for other shapes.
    """
    return _logpdf(x, alpha)


@library
def pdf(x, alpha):
    """Π xᵢ^(αᵢ-1) Γ(Σ αᵢ) / Π Γ(αᵢ) on the simplex, else 0; see `logpdf`."""
    return jnp.exp(_logpdf(x, alpha))
