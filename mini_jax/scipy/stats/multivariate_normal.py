"""The normal distribution of vectors."""
from __future__ import annotations

import math

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.lax import linalg
from mini_jax.numpy.promotion import arraylike, as_array, promote_dtypes_inexact
from mini_jax.runtime.dispatch import library

__all__ = ["logpdf", "pdf"]


def _logpdf(x, mean, cov):
    x, mean, cov = [as_array(y) for y in promote_dtypes_inexact(*arraylike("multivariate_normal", x, mean, cov))]
    if not mean.ndim:
        z = x - mean
        return -0.5 * z * z / cov - 0.5 * (math.log(2 * math.pi) + jnp.log(cov))
    n = mean.shape[-1]
    if not cov.ndim:
        z = x - mean
        return -0.5 * jnp.sum(z * z, -1) / cov - 0.5 * n * (math.log(2 * math.pi) + jnp.log(cov))
    if cov.ndim < 2 or cov.shape[-2:] != (n, n):
        raise ValueError(f"multivariate_normal: cov must be (..., n, n) where mean is (..., n), got {cov.aval} and {mean.aval}")
    l = linalg.cholesky(cov)
    z = x - mean
    if cov.ndim == 2:                                # one covariance: all vectors are columns of one right side
        columns = lax.reshape(z, (z.size // max(n, 1), n))
        y = lax.reshape(linalg.triangular_solve(l, columns, lower=True, transpose_a=True), z.shape)
    else:
        batch = jnp.broadcast_shapes(z.shape[:-1], l.shape[:-2])
        z, l = jnp.broadcast_to(z, (*batch, n)), jnp.broadcast_to(l, (*batch, n, n))
        y = linalg.triangular_solve(l, z[..., None], left_side=True, lower=True)[..., 0]
    log_root = jnp.sum(jnp.log(jnp.diagonal(l, 0, -2, -1)), -1)
    return -0.5 * jnp.sum(y * y, -1) - 0.5 * n * math.log(2 * math.pi) - log_root


def logpdf(x, mean, cov, allow_singular: None = None):
    """-½ (x - μ)ᵀ Σ⁻¹ (x - μ) - ½ log det 2πΣ, by Cholesky decomposition.

    x, mean: (..., n). cov: (..., n, n), positive definite (else NaN), or a number, Σ = cov·1. All broadcast. Returns (...). With a mean
    without dimensions x are numbers, of variance cov. allow_singular must be None (NotImplementedError). Raises ValueError for other shapes.
    """
    if allow_singular is not None:
        raise NotImplementedError("multivariate_normal.logpdf: allow_singular is not supported; the covariance must be positive definite")
    return _eager_logpdf(x, mean, cov)


@library
def _eager_logpdf(x, mean, cov):
    return _logpdf(x, mean, cov)


@library
def pdf(x, mean, cov):
    """exp(-½ (x - μ)ᵀ Σ⁻¹ (x - μ)) / √det 2πΣ; see `logpdf`."""
    return jnp.exp(_logpdf(x, mean, cov))
