"""Uniform numbers, the ground of all others: bits, floats in an interval, integers in a range, coins."""
from __future__ import annotations

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.random.arguments import draw, float_dtype, integer_dtype, keys_of, parameter, sampler

__all__ = ["bits", "uniform", "randint", "bernoulli", "rademacher"]


def bits(key, shape=(), dtype=None, *, out_sharding=None):
    """Uniform random bits, as unsigned integers of `shape` and `dtype` (default: the default uint). ValueError for other dtypes."""
    dtype = dtypes.default_uint() if dtype is None else dtypes.requested(dtype, "random.bits")
    if not dtypes.is_unsigned(dtype):
        raise ValueError(f"random.bits: dtype must be an unsigned integer dtype, got {dtype}")
    return draw(bits_of, "bits", key, shape, dtype, out_sharding=out_sharding)


@sampler
def bits_of(data, generator, shape, dtype):
    return generator.bits(data, 8 * dtype.itemsize, shape)


# --- floats ----------------------------------------------------------------------------------------------------------------------

def uniform(key, shape=(), dtype=None, minval=0.0, maxval=1.0, *, out_sharding=None):
    """Floats, uniform in [minval, maxval), which broadcast to `shape`.

    With m bits of mantissa in the dtype, values are multiples of (maxval - minval) / 2**m above minval.
    Raises ValueError for a dtype that is not floating.
    """
    dtype = float_dtype("uniform", dtype)
    if type(minval) is float and type(maxval) is float and minval == 0.0 and maxval == 1.0:
        return draw(unit, "uniform", key, shape, dtype, out_sharding=out_sharding)
    return draw(between, "uniform", key, shape, dtype, minval, maxval, out_sharding=out_sharding)


@sampler
def unit(data, generator, shape, dtype):
    """[0, 1): random bits as the mantissa of a number in [1, 2), minus 1."""
    info = dtypes.finfo(dtype)
    width = max(info.bits, 8)
    drawn = info.bits if info.nmant >= 8 else 8         # bfloat16 needs 7 random bits
    word = np.dtype(f"uint{width}")
    mantissa = lax.convert_element_type(generator.bits(data, drawn, shape), word)
    mantissa = lax.shift_right_logical(mantissa, word.type(drawn - info.nmant))
    one = np.ones((), dtype).view(word)[()]
    return lax.sub(lax.bitcast_convert_type(lax.bitwise_or(mantissa, one), dtype), dtype.type(1))


@sampler
def between(data, generator, shape, dtype, minval, maxval):
    return scaled(unit(data, generator, shape, dtype), parameter(minval, dtype, shape), parameter(maxval, dtype, shape))


def scaled(x, low, high):
    """[0, 1) → [low, high)."""
    return lax.max(low, lax.add(lax.mul(x, lax.sub(high, low)), low))


# --- integers ----------------------------------------------------------------------------------------------------------------------

def randint(key, shape, minval, maxval, dtype=None, *, out_sharding=None):
    """Integers, uniform in [minval, maxval), which broadcast to `shape`; minval where the range is empty.

    A maxval above what `dtype` holds stands for one more than its largest value.
    Raises TypeError for a dtype that is not integer, OverflowError for Python ints beyond the default int.
    """
    dtype = integer_dtype("randint", dtype)
    return draw(integers, "randint", key, shape, dtype, minval, maxval, out_sharding=out_sharding)


@sampler
def integers(data, generator, shape, dtype, minval, maxval):
    """A double-width number modulo the span, from two words: (high·2ⁿ + low) mod span."""
    info = dtypes.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    minval, maxval = _whole(minval), _whole(maxval)
    if info.bits < 32:                                   # the same numbers whatever the narrow dtype
        inside = [parameter(_clipped(x, low, high + extra), dtypes.int32, shape) for x, extra in ((minval, 0), (maxval, 1))]
        return lax.convert_element_type(_in_span(data, generator, shape, dtypes.int32, *inside, None), dtype)
    bounds = typeof(maxval)
    limits = dtypes.iinfo(bounds.dtype)
    beyond = lax.gt(maxval, bounds.dtype.type(min(max(high, int(limits.min)), int(limits.max))))
    inside = [parameter(_clipped(x, low, high), dtype, shape) for x in (minval, maxval)]
    return _in_span(data, generator, shape, dtype, *inside, parameter(beyond, dtypes.bool_, shape))


def _whole(x):
    """A bound as an integer."""
    dtype = typeof(x).dtype
    return lax.convert_element_type(x, dtype if dtypes.is_integer(dtype) else dtypes.default_int())


def _clipped(x, low: int, high: int):
    """x between low and high, as far as its own dtype holds them."""
    dtype = typeof(x).dtype
    limits = dtypes.iinfo(dtype)
    return lax.clamp(dtype.type(max(low, int(limits.min))), x, dtype.type(min(high, int(limits.max))))


def _in_span(data, generator, shape, dtype, minval, maxval, beyond):
    width = 8 * dtype.itemsize
    word = np.dtype(f"uint{width}")
    high, low = [generator.bits(k, width, shape) for k in keys_of(data, generator, 2)]
    above = lax.gt(maxval, minval)
    span = lax.convert_element_type(lax.sub(maxval, minval), word)
    span = lax.select(above, span, lax.full_like(span, 1))
    if beyond is not None:
        span = lax.add(span, lax.convert_element_type(lax.bitwise_and(beyond, above), word))
    half = lax.rem(word.type(1 << width // 2), span)
    power = lax.rem(lax.mul(half, half), span)                             # 2**width mod span
    offset = lax.rem(lax.add(lax.mul(lax.rem(high, span), power), lax.rem(low, span)), span)
    return lax.add(minval, lax.convert_element_type(offset, dtype))


# --- coins ------------------------------------------------------------------------------------------------------------------------------

def bernoulli(key, p=0.5, shape=None, mode="low", *, out_sharding=None):
    """True with probability p. `shape` (default: that of p) is what p broadcasts to.

    mode: 'low' compares one uniform number with p, and so has the resolution of its dtype; 'high' uses two, and resolves
    small p better. Raises TypeError where p is not floating, ValueError for another mode.
    """
    if mode not in ("low", "high"):
        raise ValueError(f"random.bernoulli: mode is 'low' or 'high', got {mode!r}")
    aval = typeof(p)
    if not dtypes.is_floating(aval.dtype):
        raise TypeError(f"random.bernoulli: the probability p must be floating, got {aval}")
    return draw(coins if mode == "low" else _fine_coins, "bernoulli", key, shape, aval.dtype, p, out_sharding=out_sharding)


@sampler
def coins(data, generator, shape, dtype, p):
    return lax.lt(unit(data, generator, shape, dtype), parameter(p, dtype, shape))


@sampler
def _fine_coins(data, generator, shape, dtype, p):
    pair = unit(data, generator, (2, *shape), dtype)
    coarse, fine = [lax.index_in_dim(pair, i, 0, keepdims=False) for i in (0, 1)]
    return lax.lt(lax.mul(fine, dtype.type(dtypes.finfo(dtype).eps)), lax.sub(parameter(p, dtype, shape), coarse))


def rademacher(key, shape=(), dtype=None, *, out_sharding=None):
    """-1 or 1 with equal probability, of any numeric dtype (default: the default int)."""
    dtype = dtypes.default_int() if dtype is None else dtypes.requested(dtype, "random.rademacher")
    return draw(signs, "rademacher", key, shape, dtype, out_sharding=out_sharding)


@sampler
def signs(data, generator, shape, dtype):
    heads = lax.convert_element_type(coins(data, generator, shape, dtypes.default_float(), 0.5), dtype)
    return lax.sub(lax.mul(heads, dtype.type(2)), dtype.type(1))
