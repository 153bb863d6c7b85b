"""Continuous distributions that are functions of one or a few uniform numbers: normal, exponential, Gumbel and their kin."""
from __future__ import annotations

import math

import numpy as np

from mini_jax import lax
from mini_jax.core import config, dtypes
from mini_jax.random.arguments import draw, filled, float_dtype, keys_of, parameter, sampler
from mini_jax.random.uniform import between, scaled, signs, unit

__all__ = ["normal", "truncated_normal", "lognormal", "maxwell", "double_sided_maxwell", "exponential", "laplace", "logistic",
           "cauchy", "gumbel", "rayleigh", "pareto", "weibull_min", "wald", "triangular"]

_SQRT2 = math.sqrt(2)


# --- normal ------------------------------------------------------------------------------------------------------------------------

def normal(key, shape=(), dtype=None, *, out_sharding=None):
    """Standard normal numbers, √2·erf⁻¹(u) for u uniform in (-1, 1); complex ones have variance 1 in all."""
    return draw(standard_normal, "normal", key, shape, float_dtype("normal", dtype, complex_too=True), out_sharding=out_sharding)


@sampler
def standard_normal(data, generator, shape, dtype):
    if dtypes.is_complex(dtype):
        part = dtypes.to_real(dtype)
        real, imaginary = [lax.convert_element_type(standard_normal(k, generator, shape, part), dtype) for k in keys_of(data, generator, 2)]
        return lax.div(lax.add(real, lax.mul(imaginary, dtype.type(1j))), dtype.type(_SQRT2))
    low = np.nextafter(dtype.type(-1), dtype.type(0))
    return lax.mul(lax.erf_inv(scaled(unit(data, generator, shape, dtype), low, dtype.type(1))), dtype.type(_SQRT2))


def truncated_normal(key, lower, upper, shape=None, dtype=None, *, out_sharding=None):
    """Standard normal numbers given that they lie in (lower, upper), which broadcast to `shape`."""
    return draw(_truncated_normal, "truncated_normal", key, shape, float_dtype("truncated_normal", dtype), lower, upper,
                out_sharding=out_sharding)


@sampler
def _truncated_normal(data, generator, shape, dtype, lower, upper):
    lower, upper, sqrt2 = parameter(lower, dtype, shape), parameter(upper, dtype, shape), dtype.type(_SQRT2)
    u = between(data, generator, shape, dtype, lax.erf(lax.div(lower, sqrt2)), lax.erf(lax.div(upper, sqrt2)))
    inside = [lax.nextafter(lax.stop_gradient(bound), dtype.type(towards)) for bound, towards in ((lower, math.inf), (upper, -math.inf))]
    return lax.min(inside[1], lax.max(inside[0], lax.mul(lax.erf_inv(u), sqrt2)))


def lognormal(key, sigma=np.float32(1.0), shape=None, dtype=None, *, out_sharding=None):
    """exp(sigma·z) for z standard normal."""
    return draw(_lognormal, "lognormal", key, shape, float_dtype("lognormal", dtype), sigma, out_sharding=out_sharding)


@sampler
def _lognormal(data, generator, shape, dtype, sigma):
    return lax.exp(lax.mul(standard_normal(data, generator, shape, dtype), parameter(sigma, dtype, shape)))


def maxwell(key, shape=(), dtype=None, *, out_sharding=None):
    """The length of a vector of three standard normal numbers."""
    return draw(_maxwell, "maxwell", key, shape, float_dtype("maxwell", dtype), out_sharding=out_sharding)


@sampler
def _maxwell(data, generator, shape, dtype):
    z = standard_normal(data, generator, (*shape, 3), dtype)
    return lax.sqrt(lax.reduce_sum(lax.mul(z, z), (len(shape),)))


def double_sided_maxwell(key, loc, scale, shape=(), dtype=None):
    """loc + scale·s·m for s = ±1 and m of the Maxwell distribution."""
    return draw(_double_sided_maxwell, "double_sided_maxwell", key, shape, float_dtype("double_sided_maxwell", dtype), loc, scale)


@sampler
def _double_sided_maxwell(data, generator, shape, dtype, loc, scale):
    for_length, for_sign = keys_of(data, generator, 2)
    z = lax.mul(signs(for_sign, generator, shape, dtype), _maxwell(for_length, generator, shape, dtype))
    return lax.add(lax.mul(z, parameter(scale, dtype, shape)), parameter(loc, dtype, shape))


# --- by inverting the distribution function ---------------------------------------------------------------------------------------------

def exponential(key, shape=(), dtype=None, *, out_sharding=None):
    """-log(1 - u): density e⁻ˣ for x ≥ 0."""
    return draw(standard_exponential, "exponential", key, shape, float_dtype("exponential", dtype), out_sharding=out_sharding)


@sampler
def standard_exponential(data, generator, shape, dtype):
    return lax.neg(lax.log1p(lax.neg(unit(data, generator, shape, dtype))))


def laplace(key, shape=(), dtype=None, *, out_sharding=None):
    """Laplace variables: density e^-|x| / 2."""
    return draw(_laplace, "laplace", key, shape, float_dtype("laplace", dtype), out_sharding=out_sharding)


@sampler
def _laplace(data, generator, shape, dtype):
    u = between(data, generator, shape, dtype, dtype.type(-1 + dtypes.finfo(dtype).epsneg), dtype.type(1))
    return lax.mul(lax.sign(u), lax.log1p(lax.neg(lax.abs(u))))


def logistic(key, shape=(), dtype=None, *, out_sharding=None):
    """log(u / (1 - u)): density e⁻ˣ/(1 + e⁻ˣ)²."""
    return draw(_logistic, "logistic", key, shape, float_dtype("logistic", dtype), out_sharding=out_sharding)


@sampler
def _logistic(data, generator, shape, dtype):
    u = between(data, generator, shape, dtype, _tiny(dtype), dtype.type(1))
    return lax.sub(lax.log(u), lax.log1p(lax.neg(u)))


def cauchy(key, shape=(), dtype=None, *, out_sharding=None):
    """tan(π(u - 1/2)): density 1/π(1 + x²)."""
    return draw(_cauchy, "cauchy", key, shape, float_dtype("cauchy", dtype), out_sharding=out_sharding)


@sampler
def _cauchy(data, generator, shape, dtype):
    u = between(data, generator, shape, dtype, dtype.type(dtypes.finfo(dtype).eps), dtype.type(1))
    return lax.tan(lax.mul(lax.sub(u, dtype.type(0.5)), dtype.type(math.pi)))


def gumbel(key, shape=(), dtype=None, mode=None, *, out_sharding=None):
    """-log(-log u): density e^-(x + e⁻ˣ), the largest of many exponential numbers.

    mode: 'high' draws twice as many bits and reaches further into the upper tail than 'low' (the default, unless
    config.high_dynamic_range_gumbel says otherwise). ValueError for another mode.
    """
    dtype = float_dtype("gumbel", dtype)
    return draw(GUMBEL[gumbel_mode("gumbel", mode)], "gumbel", key, shape, dtype, out_sharding=out_sharding)


def gumbel_mode(name: str, mode) -> str:
    """'low' or 'high', for the `mode` that the function `name` was given."""
    if mode is None:
        return "high" if config.options["high_dynamic_range_gumbel"].value else "low"
    if mode not in ("low", "high"):
        raise ValueError(f"random.{name}: mode is 'low' or 'high', got {mode!r}")
    return mode


@sampler
def _coarse_gumbel(data, generator, shape, dtype):
    u = between(data, generator, shape, dtype, _tiny(dtype), dtype.type(1))
    return lax.neg(lax.log(lax.neg(lax.log(u))))


@sampler
def _fine_gumbel(data, generator, shape, dtype):
    """Below 1/2, a second number fills in the bits that the first is too coarse for."""
    pair = unit(data, generator, (2, *shape), dtype)
    coarse, fine = [lax.index_in_dim(pair, i, 0, keepdims=False) for i in (0, 1)]
    low = lax.add(lax.add(coarse, lax.mul(fine, dtype.type(dtypes.finfo(dtype).eps))), _tiny(dtype))
    u = lax.select(lax.ge(coarse, dtype.type(0.5)), coarse, low)
    return lax.neg(lax.log(lax.neg(lax.log1p(lax.neg(u)))))


GUMBEL = {"low": _coarse_gumbel, "high": _fine_gumbel}


def rayleigh(key, scale, shape=None, dtype=None, *, out_sharding=None):
    """scale·√(-2 log u): density x/σ² e^(-x²/2σ²)."""
    return draw(_rayleigh, "rayleigh", key, shape, float_dtype("rayleigh", dtype), scale, out_sharding=out_sharding)


@sampler
def _rayleigh(data, generator, shape, dtype, scale):
    log_u = lax.log(unit(data, generator, shape, dtype))
    return lax.mul(lax.sqrt(lax.mul(log_u, dtype.type(-2))), parameter(scale, dtype, shape))


def pareto(key, b, shape=None, dtype=None, *, out_sharding=None):
    """exp(e/b) for e exponential: density b/x^(b+1) for x ≥ 1."""
    return draw(_pareto, "pareto", key, shape, float_dtype("pareto", dtype), b, out_sharding=out_sharding)


@sampler
def _pareto(data, generator, shape, dtype, b):
    return lax.exp(lax.div(standard_exponential(data, generator, shape, dtype), parameter(b, dtype, shape)))


def weibull_min(key, scale, concentration, shape=(), dtype=None):
    """scale·e^(1/c) for e exponential and c the concentration: density c/σ (x/σ)^(c-1) e^-(x/σ)^c."""
    return draw(_weibull_min, "weibull_min", key, shape, float_dtype("weibull_min", dtype), scale, concentration)


@sampler
def _weibull_min(data, generator, shape, dtype, scale, concentration):
    exponent = parameter(lax.div(dtype.type(1), parameter(concentration, dtype)), dtype, shape)
    return lax.mul(lax.pow(standard_exponential(data, generator, shape, dtype), exponent), parameter(scale, dtype, shape))


def wald(key, mean, shape=None, dtype=None, *, out_sharding=None):
    """The inverse Gaussian distribution of scale 1. (Michael, Schucany, Haas 1976)"""
    return draw(_wald, "wald", key, shape, float_dtype("wald", dtype), mean, out_sharding=out_sharding)


@sampler
def _wald(data, generator, shape, dtype, mean):
    for_normal, for_uniform = keys_of(data, generator, 2)
    mean = filled(parameter(mean, dtype, shape), shape)
    z, u = standard_normal(for_normal, generator, shape, dtype), unit(for_uniform, generator, shape, dtype)
    z2, mean2 = lax.mul(z, z), lax.mul(mean, mean)
    root = lax.sqrt(lax.add(lax.mul(lax.mul(mean, dtype.type(4)), z2), lax.mul(mean2, lax.mul(z2, z2))))
    x = lax.sub(lax.add(mean, lax.div(lax.mul(mean2, z2), dtype.type(2))), lax.mul(lax.div(mean, dtype.type(2)), root))
    return lax.select(lax.le(u, lax.div(mean, lax.add(mean, x))), x, lax.div(mean2, x))


def triangular(key, left, mode, right, shape=None, dtype=None, *, out_sharding=None):
    """The density that rises linearly from `left` to `mode` and falls to `right`."""
    return draw(_triangular, "triangular", key, shape, float_dtype("triangular", dtype), left, mode, right, out_sharding=out_sharding)


@sampler
def _triangular(data, generator, shape, dtype, left, mode, right):
    left, mode, right = [filled(parameter(p, dtype, shape), shape) for p in (left, mode, right)]
    u, width = unit(data, generator, shape, dtype), lax.sub(right, left)
    rising = lax.add(left, lax.sqrt(lax.mul(lax.mul(u, width), lax.sub(mode, left))))
    falling = lax.sub(right, lax.sqrt(lax.mul(lax.mul(lax.sub(dtype.type(1), u), width), lax.sub(right, mode))))
    return lax.select(lax.lt(u, lax.div(lax.sub(mode, left), width)), rising, falling)


def _tiny(dtype):
    return dtype.type(dtypes.finfo(dtype).tiny)
