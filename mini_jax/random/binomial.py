"""How many of n tries succeed: the binomial distribution, and the multinomial one for several outcomes."""
from __future__ import annotations

import math

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.lax.shapes import canonical_shape
from mini_jax.numpy.promotion import arraylike, as_array, promote_dtypes_inexact
from mini_jax.random.arguments import draw, filled, float_dtype, keys_of, parameter, sampler
from mini_jax.random.keys import opened
from mini_jax.random.uniform import unit
from mini_jax.runtime.dispatch import library

__all__ = ["binomial", "multinomial"]


def binomial(key, n, p, shape=None, dtype=None):
    """How many of n tries succeed, each with probability p: k with probability n!/k!(n-k)! pᵏ (1-p)ⁿ⁻ᵏ. Floating numbers.

    NaN where n is negative or p NaN or negative, ∞ where n is. (waiting times for min(p, 1 - p) n ≤ 10, above that the transformed
    rejection of Hörmann 1993)
    """
    return draw(_binomial, "binomial", key, shape, float_dtype("binomial", dtype), *arraylike("random.binomial", n, p))


@sampler
def _binomial(data, generator, shape, dtype, n, p):
    wide = dtypes.to_inexact(typeof(p).dtype)
    n, p = filled(parameter(n, wide, shape), shape), filled(parameter(p, wide, shape), shape)
    few = p < 0.5
    q = jnp.where(few, p, 1 - p)
    no_count, no_probability = jnp.isnan(n) | (n < 0), jnp.isnan(q) | (q < 0)
    q = jnp.where(no_probability, 0.01, q)
    by_waiting = no_count | (n * q <= 10)
    whole = jnp.floor(n)
    limit = int(dtypes.finfo(dtype).max) if dtypes.finfo(dtype).max < 2 ** 31 else 2 ** 31 - 1
    found = jnp.where(by_waiting,
                      _by_waiting_times(data, generator, shape, jnp.where(by_waiting, whole, 0), q, limit),
                      _by_rejection(data, generator, shape, jnp.where(by_waiting, 1e4, whole), jnp.where(by_waiting, 0.5, q), limit)).astype(dtype)
    found = jnp.where(no_probability | no_count, math.nan, jnp.where(jnp.isinf(n), math.inf, found))
    return jnp.where(few | no_count | jnp.isnan(p) | jnp.isinf(n), found, whole.astype(dtype) - found)


def _by_waiting_times(data, generator, shape, n, p, limit):
    """How many geometric waiting times fit into n."""
    log_failure = jnp.log1p(-p)

    def unfinished(state):
        step, _, total, _ = state
        return jnp.any(total <= n) & (step < limit)

    def another(state):
        step, count, total, key = state
        subkey, key = keys_of(key, generator, 2)
        count = jnp.where(total <= n, count + 1, count)
        return step + 1, count, total + jnp.ceil(jnp.log(unit(subkey, generator, shape, n.dtype)) / log_failure), key

    zero = lax.full(shape, 0, n.dtype)
    return lax.while_loop(unfinished, another, (0, zero, zero, data))[1] - 1


# log k! - (log √2π + (k + ½) log(k + 1) - (k + 1)) for k = 0 … 9; above that its asymptotic series.
_STIRLING_TAIL = tuple([math.lgamma(k + 1) - (0.5 * math.log(2 * math.pi) + (k + 0.5) * math.log(k + 1) - (k + 1)) for k in range(10)])


def _stirling_tail(k):
    k1 = jnp.clip(k, 0, 9) + 1
    square = k1 * k1
    series = (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / k1
    table = jnp.asarray(_STIRLING_TAIL, k.dtype)
    return jnp.where(k <= 9, table[jnp.floor(k1 - 1).astype(dtypes.int32)], series)


def _by_rejection(data, generator, shape, n, p, limit):
    """k from a hat function around n p, accepted in proportion to the probability of k (algorithm BTRS)."""
    deviation = jnp.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    centre, bound = n * p + 0.5, 0.92 - 4.2 / b
    odds, alpha = p / (1 - p), (2.83 + 5.1 / b) * deviation
    mode = jnp.floor((n + 1) * p)

    def unfinished(state):
        return jnp.any(~state[2]) & (state[0] < limit)

    def another(state):
        step, found, accepted, key = state
        key, for_u, for_v = keys_of(key, generator, 3)
        u, v = unit(for_u, generator, shape, n.dtype) - 0.5, unit(for_v, generator, shape, n.dtype)
        edge = 0.5 - jnp.abs(u)
        k = jnp.floor((2 * a / edge + b) * u + centre)
        log_hat = jnp.log(v * alpha / (a / (edge * edge) + b))
        log_probability = ((mode + 0.5) * jnp.log((mode + 1) / (odds * (n - mode + 1))) + (n + 1) * jnp.log((n - mode + 1) / (n - k + 1))
                           + (k + 0.5) * jnp.log(odds * (n - k + 1) / (k + 1))
                           + _stirling_tail(mode) + _stirling_tail(n - mode) - _stirling_tail(k) - _stirling_tail(n - k))
        at_once, impossible = (edge >= 0.07) & (v <= bound), (k < 0) | (k > n)
        accept = at_once | (~impossible & (log_hat <= log_probability))
        return step + 1, jnp.where(accept, k, found), accepted | accept, key

    return lax.while_loop(unfinished, another, (0, lax.full(shape, -1, n.dtype), lax.full(shape, False, dtypes.bool_), data))[1]


def multinomial(key, n, p, *, shape=None, dtype=None, unroll=1):
    """How often each of k outcomes occurs in n tries: binomial counts, one outcome after the other, of the tries that remain.

    n: (*B), how many tries. p: (*B, k), the outcomes' probabilities, in proportion. shape: what p broadcasts to, by default p's own. Returns
    [*B, k], floating. unroll: how many outcomes a step of the loop over them handles.
    """
    data, generator, _ = opened(key, "multinomial")
    n, p = promote_dtypes_inexact(*arraylike("random.multinomial", n, p))
    shape = typeof(p).shape if shape is None else canonical_shape(shape)
    return _multinomial(data, generator, shape, None if dtype is None else dtypes.requested(dtype, "random.multinomial"), n, p, unroll)


@library(static_argnames=("generator", "shape", "dtype", "unroll"))
def _multinomial(data, generator, shape, dtype, n, p, unroll):
    n, p = jnp.broadcast_to(as_array(n), shape[:-1]), jnp.moveaxis(jnp.broadcast_to(as_array(p), shape), -1, 0)
    remaining = lax.cumsum(p, 0, reverse=True)
    shares = jnp.clip(p / jnp.where(remaining == 0, 1, remaining), 0, 1)

    def step(left, outcome):
        share, key = outcome
        count = _binomial(key, generator, shape[:-1], n.dtype, left, share)
        return left - count, count

    counts = lax.scan(step, n, (shares, generator.split(data, (p.shape[0],))), unroll=unroll)[1]
    return jnp.moveaxis(counts, 0, -1).astype(dtypes.default_float() if dtype is None else dtype)
