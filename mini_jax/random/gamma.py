"""Gamma numbers, and what is made of them: beta, Dirichlet, chi-square, F, Student's t, generalised normal, points of a ball."""
from __future__ import annotations

import math

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.lax.shapes import canonical_shape
from mini_jax.random.arguments import broadcast_shape, draw, filled, float_dtype, keys_of, parameter, placed, sampler
from mini_jax.random.continuous import standard_exponential, standard_normal
from mini_jax.random.keys import opened
from mini_jax.random.uniform import signs, unit
from mini_jax.runtime.dispatch import library
from mini_jax.transforms.custom_derivatives import custom_jvp
from mini_jax.transforms.vmap import vmap

__all__ = ["gamma", "loggamma", "beta", "dirichlet", "chisquare", "f", "t", "generalized_normal", "ball"]


# --- gamma -----------------------------------------------------------------------------------------------------------------------------

def gamma(key, a, shape=None, dtype=None, *, out_sharding=None):
    """Density x^(a-1) e⁻ˣ / Γ(a) for x ≥ 0; differentiable with respect to a.

    For small a the result may underflow to 0; its logarithm, `loggamma`, does not.
    (Marsaglia, Tsang 2000; derivative: Figurnov, Mohamed, Mnih 2018)
    """
    return draw(standard_gamma, "gamma", key, shape, float_dtype("gamma", dtype), a, out_sharding=out_sharding)


def loggamma(key, a, shape=None, dtype=None, *, out_sharding=None):
    """The logarithm of the numbers that `gamma` makes with this key."""
    return draw(log_gamma, "loggamma", key, shape, float_dtype("loggamma", dtype), a, out_sharding=out_sharding)


@sampler
def standard_gamma(data, generator, shape, dtype, a):
    return _gamma(data, generator, filled(parameter(a, dtype, shape), shape), False)


@sampler
def log_gamma(data, generator, shape, dtype, a):
    return _gamma(data, generator, filled(parameter(a, dtype, shape), shape), True)


def _gamma(data, generator, a, logarithm: bool):
    """One number for each entry of a, each from a key of its own."""
    shape = typeof(a).shape
    count = math.prod(shape)

    @custom_jvp
    def drawn(keys, a):
        return vmap(lambda key, a: _one_gamma(key, generator, a, logarithm))(keys, a)

    @drawn.defjvp
    def derivative(primals, tangents):
        sample, a = drawn(*primals), primals[1]
        if not logarithm:
            return sample, lax.random_gamma_grad(a, sample) * tangents[1]
        x = jnp.exp(sample)
        x = jnp.where(x == 0, typeof(x).dtype.type(dtypes.finfo(typeof(x).dtype).tiny), x)
        return sample, lax.random_gamma_grad(a, x) / x * tangents[1]

    if count == 0:
        return a
    return lax.reshape(drawn(generator.split(data, (count,)), lax.reshape(a, (count,))), shape)


def _one_gamma(key, generator, a, logarithm: bool):
    """d·(1 + cz)³ with d = a - 1/3, c = 1/√9d, z normal, accepted or not; for a < 1 it is Gamma(a + 1)·u^(1/a)."""
    dtype = typeof(a).dtype
    third, large = dtype.type(1 / 3), a >= 1
    d = jnp.where(large, a, a + 1) - third
    c = third / jnp.sqrt(d)
    key, for_boost = keys_of(key, generator, 2)

    def rejected(state):
        _, z2, v, u = state
        return (u >= 1 - dtype.type(0.0331) * (z2 * z2)) & (jnp.log(u) >= z2 * dtype.type(0.5) + d * ((1 - v) + jnp.log(v)))

    def again(state):
        key, for_normal, for_uniform = keys_of(state[0], generator, 3)

        def another(state):
            key, subkey = keys_of(state[0], generator, 2)
            z = standard_normal(subkey, generator, (), dtype)
            return key, z, 1 + z * c
        _, z, v = lax.while_loop(lambda state: state[2] <= 0, another, (for_normal, dtype.type(0), dtype.type(-1)))
        return key, z * z, v * v * v, unit(for_uniform, generator, (), dtype)

    _, _, v, _ = lax.while_loop(rejected, again, (key, dtype.type(0), dtype.type(1), dtype.type(2)))
    u = unit(for_boost, generator, (), dtype)
    if logarithm:
        log_u = jnp.log1p(-u)
        return jnp.log(d) + jnp.log(v) + jnp.where(large | (log_u == 0), dtype.type(0), log_u * (1 / a))
    return d * v * jnp.where(large, dtype.type(1), jnp.power(1 - u, 1 / a))


# --- ratios of gamma numbers ------------------------------------------------------------------------------------------------------------

def beta(key, a, b, shape=None, dtype=None, *, out_sharding=None):
    """g/(g + h) for gamma numbers g, h of shapes a, b: density x^(a-1) (1-x)^(b-1) / B(a, b) on [0, 1]."""
    return draw(_beta, "beta", key, shape, float_dtype("beta", dtype), a, b, out_sharding=out_sharding)


@sampler
def _beta(data, generator, shape, dtype, a, b):
    logs = [log_gamma(k, generator, shape, dtype, p) for k, p in zip(keys_of(data, generator, 2), (a, b))]
    largest = lax.max(*logs)
    g, h = [jnp.exp(x - largest) for x in logs]
    return g / (g + h)


def dirichlet(key, alpha, shape=None, dtype=None, *, out_sharding=None):
    """Points of a simplex: gamma numbers of shapes alpha[..., i], divided by their sum over i.

    alpha: [*B, n], positive. shape: what B broadcasts to, default B. Returns [*shape, n].
    """
    data, generator, _ = opened(key, "dirichlet")
    dtype, aval = float_dtype("dirichlet", dtype), typeof(alpha)
    if aval.ndim < 1:
        raise ValueError(f"random.dirichlet: alpha must have at least one dimension, got {aval}")
    batch = aval.shape[:-1]
    if shape is not None:
        shape = canonical_shape(shape)
        broadcast_shape("dirichlet", (*shape, aval.shape[-1]), (alpha,))
    out = _dirichlet(data, generator, (*(batch if shape is None else shape), aval.shape[-1]), dtype, alpha)
    return out if out_sharding is None else placed(out, out_sharding)


@sampler
def _dirichlet(data, generator, shape, dtype, alpha):
    logs = log_gamma(data, generator, shape, dtype, alpha)
    g = jnp.exp(logs - lax.stop_gradient(jnp.max(logs, -1, keepdims=True)))
    return g / jnp.sum(g, -1, keepdims=True)


def chisquare(key, df, shape=None, dtype=None, *, out_sharding=None):
    """The sum of the squares of df standard normal numbers (df need not be whole)."""
    return draw(_chisquare, "chisquare", key, shape, float_dtype("chisquare", dtype), df, out_sharding=out_sharding)


@sampler
def _chisquare(data, generator, shape, dtype, df):
    return jnp.exp(log_gamma(data, generator, shape, dtype, parameter(df, dtype) / dtype.type(2))) * dtype.type(2)


def f(key, dfnum, dfden, shape=None, dtype=None, *, out_sharding=None):
    """The ratio of two chi-square numbers, each divided by its degrees of freedom."""
    return draw(_f, "f", key, shape, float_dtype("f", dtype), dfnum, dfden, out_sharding=out_sharding)


@sampler
def _f(data, generator, shape, dtype, dfnum, dfden):
    for_den, for_num = keys_of(data, generator, 2)
    num, den = [_chisquare(k, generator, shape, dtype, df) / parameter(df, dtype, shape) for k, df in ((for_num, dfnum), (for_den, dfden))]
    return num / den


def t(key, df, shape=(), dtype=None, *, out_sharding=None):
    """Student's t: a standard normal number divided by √(c/df), c a chi-square number of df degrees of freedom."""
    return draw(_t, "t", key, shape, float_dtype("t", dtype), df, out_sharding=out_sharding)


@sampler
def _t(data, generator, shape, dtype, df):
    for_normal, for_gamma = keys_of(data, generator, 2)
    half = parameter(df, dtype, shape) / dtype.type(2)
    g = standard_gamma(for_gamma, generator, shape, dtype, half)
    return standard_normal(for_normal, generator, shape, dtype) * jnp.sqrt(half / g)


# --- from the unit ball of the p-norm -----------------------------------------------------------------------------------------------------

def generalized_normal(key, p, shape=(), dtype=None, *, out_sharding=None):
    """Density proportional to e^-|x|^p."""
    return draw(_generalized_normal, "generalized_normal", key, shape, float_dtype("generalized_normal", dtype), p, out_sharding=out_sharding)


@sampler
def _generalized_normal(data, generator, shape, dtype, p):
    for_size, for_sign = keys_of(data, generator, 2)
    inverse = dtype.type(1) / parameter(p, dtype)
    size = standard_gamma(for_size, generator, shape, dtype, inverse)
    return signs(for_sign, generator, shape, dtype) * jnp.power(size, inverse)


def ball(key, d, p=2, shape=(), dtype=None, *, out_sharding=None):
    """Points uniform in the unit ball of the p-norm in d dimensions: [*shape, d]. (Barthe et al. 2005)"""
    data, generator, _ = opened(key, "ball")
    out = _ball(data, generator, canonical_shape(shape), float_dtype("ball", dtype), int(d), p)
    return out if out_sharding is None else placed(out, out_sharding)


@library(static_argnames=("generator", "shape", "dtype", "d"))
def _ball(data, generator, shape, dtype, d, p):
    for_direction, for_size = keys_of(data, generator, 2)
    g = _generalized_normal(for_direction, generator, (*shape, d), dtype, p)
    e = standard_exponential(for_size, generator, shape, dtype)
    p = parameter(p, dtype)
    size = jnp.power(jnp.sum(jnp.power(jnp.abs(g), p), -1) + e, dtype.type(1) / p)
    return g / size[..., None]
