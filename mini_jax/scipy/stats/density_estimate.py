"""Estimating a density from samples: a normal bump at each of them."""
from __future__ import annotations

import math
from typing import NamedTuple

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax import random
from mini_jax.core import dtypes
from mini_jax.core.pytree import register_pytree_node_class
from mini_jax.lax import linalg
from mini_jax.nn.softmax import logsumexp
from mini_jax.numpy.promotion import arraylike, as_array, promote_dtypes_inexact
from mini_jax.runtime.dispatch import library
from mini_jax.scipy.special.error import normal_cdf

__all__ = ["gaussian_kde"]


class _Estimate(NamedTuple):
    """What an estimate consists of: the effective number of samples, the samples (d, n), their weights, the covariance of a bump, its inverse."""
    neff: object
    dataset: object
    weights: object
    covariance: object
    inv_cov: object


@register_pytree_node_class
class gaussian_kde:
    """The density Σ wᵢ N(x; xᵢ, Σ) of samples xᵢ, Σ being their covariance times the square of a factor.

    dataset: (d, n), n samples of d dimensions, or (n). weights: (n), default all alike; they are made to add up to 1. bw_method: the factor: 'scott'
    (the default), nₑ^(-1/(d+4)), nₑ = 1/Σwᵢ²; 'silverman', (nₑ(d+2)/4)^(-1/(d+4)); a number; or a function of the estimate.
    A pytree: it goes in and out of transformed functions. Raises ValueError for less than two elements and weights that don't fit.
    """

    def __init__(self, dataset, bw_method=None, weights=None):
        dataset, = promote_dtypes_inexact(*arraylike("gaussian_kde", dataset))
        dataset = jnp.atleast_2d(dataset)
        if dtypes.is_complex(dataset.dtype):
            raise NotImplementedError(f"gaussian_kde takes real samples, got {dataset.aval}")
        if dataset.size <= 1:
            raise ValueError(f"gaussian_kde: dataset must have more than one element, got {dataset.aval}")
        d, n = dataset.shape
        if weights is None:
            weights = jnp.full(n, 1 / n, dataset.dtype)
        else:
            weights = as_array(arraylike("gaussian_kde", weights)[0]).astype(dataset.dtype)
            if weights.shape != (n,):
                raise ValueError(f"gaussian_kde: weights must have shape ({n},), one for each sample, got {weights.aval}")
            weights = weights / jnp.sum(weights)
        neff = 1 / jnp.sum(weights * weights)
        self._values = _Estimate(neff, dataset, weights, None, None)
        if bw_method is None or isinstance(bw_method, str) and bw_method == "scott":
            factor = neff ** (-1 / (d + 4))
        elif isinstance(bw_method, str) and bw_method == "silverman":
            factor = (neff * (d + 2) / 4) ** (-1 / (d + 4))
        elif callable(bw_method):
            factor = bw_method(self)
        elif isinstance(bw_method, str) or jnp.ndim(bw_method):
            raise ValueError(f"gaussian_kde: bw_method is 'scott', 'silverman', a number or a function, got {bw_method!r:.100}")
        else:
            factor = bw_method
        covariance = jnp.atleast_2d(jnp.cov(dataset, rowvar=True, bias=False, aweights=weights)) * jnp.asarray(factor, dataset.dtype) ** 2
        self._values = _Estimate(neff, dataset, weights, covariance, jnp.linalg.inv(covariance))

    neff = property(lambda self: self._values.neff, doc="The effective number of samples, 1/Σwᵢ².")
    dataset = property(lambda self: self._values.dataset, doc="The samples, (d, n).")
    weights = property(lambda self: self._values.weights, doc="The samples' weights, (n), of sum 1.")
    covariance = property(lambda self: self._values.covariance, doc="The covariance of each bump, (d, d).")
    inv_cov = property(lambda self: self._values.inv_cov, doc="Its inverse.")
    d = property(lambda self: self.dataset.shape[0], doc="The number of dimensions.")
    n = property(lambda self: self.dataset.shape[1], doc="The number of samples.")

    def tree_flatten(self):
        """The arrays it consists of."""
        return tuple(self._values), None

    @classmethod
    def tree_unflatten(cls, _, children):
        """The estimate that consists of these arrays."""
        made = object.__new__(cls)
        made._values = _Estimate(*children)
        return made

    def evaluate(self, points):
        """The density at points (d, m), or (m) where d = 1 (and (d) for one point): (m)."""
        return jnp.exp(self.logpdf(points))

    __call__ = pdf = evaluate

    def logpdf(self, x):
        """The logarithm of the density at points (d, m): (m)."""
        return _log_density(self._values.dataset, self.weights, self.covariance, self._points(x))

    def _points(self, x):
        x, _ = promote_dtypes_inexact(*arraylike("gaussian_kde", x, self.dataset))
        x = jnp.atleast_2d(x)
        if x.shape[0] != self.d and x.shape == (1, self.d):
            x = x.T
        if x.ndim != 2 or x.shape[0] != self.d:
            raise ValueError(f"gaussian_kde: points must be ({self.d}, m), the estimate being of {self.d} dimensions; got {x.aval}")
        return x

    def integrate_gaussian(self, mean, cov):
        """∫ p(x) N(x; mean, cov) dx, of the normal density of this mean (d) and covariance (d, d)."""
        mean, cov = jnp.atleast_1d(mean), jnp.atleast_2d(cov)
        if mean.shape != (self.d,) or cov.shape != (self.d, self.d):
            raise ValueError(f"gaussian_kde: mean must have shape ({self.d},) and cov ({self.d}, {self.d}), got {mean.aval} and {cov.aval}")
        return jnp.exp(_log_density(self.dataset, self.weights, self.covariance + cov, mean[:, None]))[0]

    def integrate_box_1d(self, low, high):
        """∫ p(x) dx from low to high, where d = 1 (else ValueError)."""
        if self.d != 1:
            raise ValueError(f"gaussian_kde: integrate_box_1d takes an estimate of one dimension, this one has {self.d}")
        deviation = jnp.sqrt(self.covariance[0, 0])
        return jnp.sum(self.weights * (normal_cdf((high - self.dataset[0]) / deviation) - normal_cdf((low - self.dataset[0]) / deviation)))

    def integrate_kde(self, other):
        """∫ p(x) q(x) dx, of another estimate q of as many dimensions (else ValueError)."""
        if other.d != self.d:
            raise ValueError(f"gaussian_kde: the estimates must have as many dimensions, they have {self.d} and {other.d}")
        both = self.covariance + other.covariance
        return jnp.sum(other.weights * jnp.exp(_log_density(self.dataset, self.weights, both, other.dataset)))

    def resample(self, key, shape=()):
        """Numbers drawn from the density: (d, *shape)."""
        for_sample, for_bump = random.split(key)
        chosen = random.choice(for_sample, self.n, shape=shape, p=self.weights)
        bump = random.multivariate_normal(for_bump, jnp.zeros(self.d, self.covariance.dtype), self.covariance, shape=shape, dtype=self.dataset.dtype)
        return self.dataset[:, chosen] + jnp.moveaxis(bump, -1, 0)

    def integrate_box(self, low_bounds, high_bounds, maxpts=None):
        """Not supported: raises NotImplementedError."""
        raise NotImplementedError("gaussian_kde.integrate_box: integrals over boxes are supported in one dimension only (integrate_box_1d)")

    def set_bandwidth(self, bw_method=None):
        """Not supported: raises NotImplementedError."""
        raise NotImplementedError("gaussian_kde.set_bandwidth: estimates don't change; make another with gaussian_kde(dataset, bw_method)")


@library
def _log_density(dataset, weights, covariance, points):
    """log Σ wᵢ N(x; xᵢ, covariance) at each column x of points, one x after the other (so that the memory is that of the samples)."""
    l = linalg.cholesky(covariance)
    white_samples = linalg.triangular_solve(l, dataset, left_side=True, lower=True)
    white_points = linalg.triangular_solve(l, points.astype(dataset.dtype), left_side=True, lower=True)
    log_norm = 0.5 * dataset.shape[0] * math.log(2 * math.pi) + jnp.sum(jnp.log(jnp.diagonal(l)))
    at = lambda x: logsumexp(-0.5 * jnp.sum((x[:, None] - white_samples) ** 2, 0), b=weights)
    return lax.map(at, white_points.T) - log_norm
