"""Counting distributions: how many tries until one succeeds, how many events there are when λ are expected."""
from __future__ import annotations

import numpy as np

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.random.arguments import draw, filled, integer_dtype, keys_of, parameter, sampler
from mini_jax.random.uniform import unit

__all__ = ["geometric", "poisson"]


def geometric(key, p, shape=None, dtype=None, *, out_sharding=None):
    """How many tries it takes until one succeeds, each with probability p: ⌊log u / log(1 - p)⌋ + 1."""
    return draw(_geometric, "geometric", key, shape, integer_dtype("geometric", dtype), p, out_sharding=out_sharding)


@sampler
def _geometric(data, generator, shape, dtype, p):
    wide = dtypes.to_inexact(typeof(p).dtype)
    u = unit(data, generator, shape, wide)
    u = lax.select(lax.eq(u, wide.type(0)), lax.full_like(u, 1), u)
    tries = lax.floor(lax.div(lax.log(u), lax.log1p(lax.neg(parameter(p, wide, shape)))))
    return lax.convert_element_type(lax.add(tries, wide.type(1)), dtype)


# --- poisson ----------------------------------------------------------------------------------------------------------------------------

_WIDE = np.dtype("float32")
_SMALL = 10.0                       # where multiplying uniform numbers gives way to rejection


def poisson(key, lam, shape=None, dtype=None, *, out_sharding=None):
    """How many events there are when lam ≥ 0 are expected: probability λᵏ e^-λ / k!. An integer; -1 where lam is NaN.

    (Knuth for λ < 10; above that the transformed rejection of Hörmann 1993)
    """
    return draw(_poisson, "poisson", key, shape, integer_dtype("poisson", dtype), lam, out_sharding=out_sharding)


@sampler
def _poisson(data, generator, shape, dtype, lam):
    lam = filled(parameter(lam, _WIDE, shape), shape)
    small = jnp.isnan(lam) | (lam < _SMALL)
    few = _by_products(data, generator, shape, dtype, jnp.where(small, lam, _WIDE.type(0)))
    many = _by_rejection(data, generator, shape, dtype, jnp.where(small, _WIDE.type(1e5), lam))
    return jnp.where(lam == 0, dtype.type(0), jnp.where(small, few, many))


def _by_products(data, generator, shape, dtype, lam):
    """How many uniform numbers can be multiplied until the product is below e^-λ, less one."""
    def unfinished(state):
        return jnp.any(state[2] > -lam)

    def another(state):
        key, count, log_product = state
        key, subkey = keys_of(key, generator, 2)
        count = jnp.where(log_product > -lam, count + dtype.type(1), count)
        return key, count, log_product + jnp.log(unit(subkey, generator, shape, _WIDE))

    _, count, _ = lax.while_loop(unfinished, another, (data, lax.full(shape, 0, dtype), lax.full(shape, 0, _WIDE)))
    return count - dtype.type(1)


def _by_rejection(data, generator, shape, dtype, lam):
    """k from a hat function around λ, accepted in proportion to the probability of k (algorithm PTRS)."""
    number = _WIDE.type
    b = number(0.931) + number(2.53) * jnp.sqrt(lam)
    a = number(-0.059) + number(0.02483) * b
    inverse_alpha = number(1.1239) + number(1.1328) / (b - number(3.4))
    bound = number(0.9277) - number(3.6224) / (b - number(2))
    log_lam = jnp.log(lam)

    def unfinished(state):
        return jnp.any(~state[2])

    def another(state):
        key, found, accepted = state
        key, for_u, for_v = keys_of(key, generator, 3)
        u, v = unit(for_u, generator, shape, _WIDE) - number(0.5), unit(for_v, generator, shape, _WIDE)
        edge = number(0.5) - jnp.abs(u)
        k = jnp.floor((number(2) * a / edge + b) * u + lam + number(0.43))
        log_hat = jnp.log(v * inverse_alpha / (a / (edge * edge) + b))
        log_probability = -lam + k * log_lam - lax.lgamma(k + number(1))
        at_once = (edge >= number(0.07)) & (v <= bound)
        impossible = (k < 0) | ((edge < number(0.013)) & (v > edge))
        accept = at_once | (~impossible & (log_hat <= log_probability))
        return key, jnp.where(accept, k, found), accepted | accept

    start = (data, lax.full(shape, -1, _WIDE), lax.full(shape, False, dtypes.bool_))
    return lax.convert_element_type(lax.while_loop(unfinished, another, start)[1], dtype)
