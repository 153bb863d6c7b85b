"""Random vectors and matrices: normal vectors of a given covariance, orthogonal matrices."""
from __future__ import annotations

import operator

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.lax.shapes import canonical_shape
from mini_jax.numpy.promotion import arraylike, as_array, broadcast_shapes, promote_dtypes_inexact
from mini_jax.random.arguments import placed
from mini_jax.random.continuous import standard_normal
from mini_jax.random.keys import opened
from mini_jax.runtime.dispatch import library

__all__ = ["multivariate_normal", "orthogonal"]


def multivariate_normal(key, mean, cov, shape=None, dtype=None, method="cholesky", *, out_sharding=None):
    """Normal vectors of expectation `mean` (*B, n) and covariance `cov` (*C, n, n): mean + F z, with F Fᵀ = cov and z standard normal.

    shape: what B and C broadcast to (by default that). Returns [*shape, n]. method: how F is found: 'cholesky', or 'eigh' or 'svd',
    which take a singular cov too. Raises ValueError for another method, for shapes that do not fit and for a dtype that is not floating.
    """
    data, generator, _ = opened(key, "multivariate_normal")
    mean, cov = promote_dtypes_inexact(*arraylike("multivariate_normal", mean, cov))
    m, c = typeof(mean), typeof(cov)
    if method not in ("svd", "eigh", "cholesky"):
        raise ValueError(f"random.multivariate_normal: method is 'cholesky', 'eigh' or 'svd', got {method!r}")
    if m.ndim < 1 or c.ndim < 2 or c.shape[-2:] != (m.shape[-1], m.shape[-1]):
        raise ValueError(f"random.multivariate_normal: mean must be (..., n) and cov (..., n, n), got {m} and {c}")
    dtype = m.dtype if dtype is None else dtypes.requested(dtype, "random.multivariate_normal")
    if not dtypes.is_floating(dtype):
        raise ValueError(f"random.multivariate_normal: dtype must be floating, got {dtype}")
    own = broadcast_shapes(m.shape[:-1], c.shape[:-2])
    shape = own if shape is None else canonical_shape(shape)
    if broadcast_shapes(own, shape) != shape:
        raise ValueError(f"random.multivariate_normal: mean {m} and cov {c} do not broadcast to the requested batch shape {shape}")
    out = _multivariate_normal(data, generator, mean, cov, shape, dtype, method)
    return out if out_sharding is None else placed(out, out_sharding)


@library(static_argnames=("generator", "shape", "dtype", "method"))
def _multivariate_normal(data, generator, mean, cov, shape, dtype, method):
    mean, cov = as_array(mean), as_array(cov)
    if method == "cholesky":
        factor = jnp.linalg.cholesky(cov)
    elif method == "eigh":
        w, v = jnp.linalg.eigh(cov)
        factor = v * jnp.sqrt(w[..., None, :])
    else:
        u, s, _ = jnp.linalg.svd(cov)
        factor = u * jnp.sqrt(s[..., None, :])
    z = standard_normal(data, generator, (*shape, mean.shape[-1]), dtype)
    return mean + jnp.einsum("...ij,...j->...i", factor, z)


def orthogonal(key, n, shape=(), dtype=None, m=None, *, out_sharding=None):
    """Matrices (*shape, n, m) of orthonormal columns (rows where n < m), uniform among all such; m is n unless given.

    The Q of the QR decomposition of a normal matrix, each column times the sign of R's diagonal. Real or complex. (Mezzadri 2007)
    """
    data, generator, _ = opened(key, "orthogonal")
    n = operator.index(n)
    m = n if m is None else operator.index(m)
    dtype = dtypes.default_float() if dtype is None else dtypes.requested(dtype, "random.orthogonal")
    out = _orthogonal(data, generator, canonical_shape(shape), dtype, n, m)
    return out if out_sharding is None else placed(out, out_sharding)


@library(static_argnames=("generator", "shape", "dtype", "n", "m"))
def _orthogonal(data, generator, shape, dtype, n, m):
    q, r = jnp.linalg.qr(standard_normal(data, generator, (*shape, max(n, m), min(n, m)), dtype))
    q = q * lax.expand_dims(jnp.sign(jnp.diagonal(r, 0, -2, -1)), (len(shape),))
    return q.mT if n < m else q
