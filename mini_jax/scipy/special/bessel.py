"""Bessel functions: modified ones of orders 0 and 1, and J₀, …, Jᵥ of the first kind."""
from __future__ import annotations

import operator

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.numpy.promotion import as_array, promote_args_inexact
from mini_jax.runtime.dispatch import library
from mini_jax.scipy.elementwise import derivatives, elementwise

__all__ = ["i0", "i0e", "i1", "i1e", "bessel_jn"]


@derivatives(lambda y, x: _i1(x))
def _i0(x):
    return jnp.exp(jnp.abs(x)) * lax.bessel_i0e(x)


@derivatives(lambda y, x: _i0(x) - jnp.where(x == 0, 0.5, y / jnp.where(x == 0, 1, x)))
def _i1(x):
    return jnp.exp(jnp.abs(x)) * lax.bessel_i1e(x)


@elementwise
def i0(x):
    """I₀(x) = Σ (x/2)²ᵏ / k!², the modified Bessel function of order 0."""
    return _i0(x)


@elementwise
def i0e(x):
    """e^-|x| I₀(x), elementwise, without overflow for large x."""
    return lax.bessel_i0e(x)


@elementwise
def i1(x):
    """I₁(x) = I₀'(x), the modified Bessel function of order 1."""
    return _i1(x)


@elementwise
def i1e(x):
    """e^-|x| I₁(x), elementwise, without overflow for large x."""
    return lax.bessel_i1e(x)


def bessel_jn(z, *, v: int, n_iter: int = 50):
    """J₀(z), …, Jᵥ(z) for real z, an array of shape (v + 1, *z.shape).

    n_iter: from which order on Miller's backward recurrence starts; it must exceed v (ValueError) and |z| by about ten or more.
    """
    v, n_iter = operator.index(v), operator.index(n_iter)
    if v < 0 or n_iter <= v:
        raise ValueError(f"bessel_jn: it takes 0 ≤ v < n_iter, got v={v}, n_iter={n_iter}")
    return _bessel_jn(z, v, n_iter)


@library(static_argnames=("v", "n_iter"))
def _bessel_jn(z, v, n_iter):
    z = as_array(promote_args_inexact("bessel_jn", z)[0])

    @derivatives(lambda y, z: _slopes(y, z))
    def orders(z):
        """J_{k-1} = 2k/z J_k - J_{k+1} downwards from 0 and 1, scaled so that J₀ + 2 (J₂ + J₄ + …) = 1."""
        safe = jnp.where(z == 0, 1, z)

        def step(carry, k):
            upper, here, total = carry
            lower = 2 * k / safe * here - upper
            factor = jnp.where(jnp.abs(lower) > 1e10, 1e-10, 1)
            even = jnp.where(k % 2 == 1, jnp.where(k == 1, 1, 2), 0)
            total = (total + even * lower) * factor
            return (here * factor, lower * factor, total), (lower * factor, factor)

        zero = jnp.zeros_like(z)
        ks = jnp.arange(n_iter, 0, -1).astype(z.dtype)
        (_, _, total), (found, factors) = lax.scan(step, (zero, zero + 1e-10, zero), ks)
        later = lax.cumprod(factors, 0, reverse=True) / factors            # the scale changes after each order was found
        values = (found * later)[::-1][:v + 2] / total
        return jnp.where(z == 0, (jnp.arange(v + 2) == 0).astype(z.dtype).reshape(-1, *(1,) * z.ndim), values)

    def _slopes(y, z):
        """J₀' = -J₁, Jₖ' = (Jₖ₋₁ - Jₖ₊₁)/2; beyond the last order Jₖ' = Jₖ₋₁ - k/z Jₖ."""
        last = v + 1
        end = y[last - 1] - last / jnp.where(z == 0, 1, z) * y[last]
        end = jnp.where(z == 0, 0.5 if last == 1 else 0, end)
        return jnp.concatenate([-y[1:2], (y[:-2] - y[2:]) / 2, end[None]])
    return orders(z)[:v + 1]
