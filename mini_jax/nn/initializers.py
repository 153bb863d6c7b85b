"""Initial weights: functions init(key, shape, dtype) -> array."""
from __future__ import annotations

import math
from typing import Any, Protocol, Sequence, runtime_checkable

import numpy as np

from mini_jax import numpy as jnp
from mini_jax import random
from mini_jax.core import dtypes
from mini_jax.lax.shapes import canonical_axes, canonical_shape

__all__ = ["Initializer", "zeros", "ones", "constant", "uniform", "normal", "truncated_normal", "variance_scaling",
           "glorot_uniform", "glorot_normal", "xavier_uniform", "xavier_normal", "he_uniform", "he_normal",
           "kaiming_uniform", "kaiming_normal", "lecun_uniform", "lecun_normal", "orthogonal", "delta_orthogonal"]


@runtime_checkable
class Initializer(Protocol):
    """What an initializer is: init(key, shape, dtype=None, out_sharding=None) -> array."""

    def __call__(self, key: Any, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> Any:
        ...


def _dtype(dtype, default):
    """The dtype to make: as called, as the initializer was made, or the default float."""
    wanted = default if dtype is None else dtype
    return dtypes.default_float() if wanted is None else dtypes.requested(wanted, "an initializer")


# --- constants ----------------------------------------------------------------------------------------------------------------------

def zeros(key, shape, dtype=None, out_sharding=None):
    """All zero; the key is not used."""
    return _placed(jnp.zeros(shape, _dtype(dtype, None)), out_sharding)


def ones(key, shape, dtype=None, out_sharding=None):
    """All one; the key is not used."""
    return _placed(jnp.ones(shape, _dtype(dtype, None)), out_sharding)


def constant(value, dtype=None) -> Initializer:
    """An initializer that gives `value`, broadcast to the shape."""
    default = dtype

    def init(key, shape, dtype=None, out_sharding=None):
        return _placed(jnp.full(shape, value, _dtype(dtype, default)), out_sharding)
    return init


def _placed(x, sharding):
    return x if sharding is None else random.arguments.placed(x, sharding)


# --- independent numbers -----------------------------------------------------------------------------------------------------------

def uniform(scale=1e-2, dtype=None) -> Initializer:
    """An initializer of numbers uniform in [0, scale)."""
    default = dtype

    def init(key, shape, dtype=None, out_sharding=None):
        dtype = _dtype(dtype, default)
        return random.uniform(key, shape, dtype, out_sharding=out_sharding) * jnp.asarray(scale, dtype)
    return init


def normal(stddev=1e-2, dtype=None) -> Initializer:
    """An initializer of normal numbers with mean 0."""
    default = dtype

    def init(key, shape, dtype=None, out_sharding=None):
        dtype = _dtype(dtype, default)
        return random.normal(key, shape, dtype, out_sharding=out_sharding) * jnp.asarray(stddev, dtype)
    return init


def truncated_normal(stddev=1e-2, dtype=None, lower=-2.0, upper=2.0) -> Initializer:
    """An initializer of stddev times normal numbers that lie between lower and upper."""
    default = dtype

    def init(key, shape, dtype=None, out_sharding=None):
        dtype = _dtype(dtype, default)
        return random.truncated_normal(key, lower, upper, shape, dtype, out_sharding=out_sharding) * jnp.asarray(stddev, dtype)
    return init


# --- variance scaling --------------------------------------------------------------------------------------------------------------

_STANDARD_DEVIATION = 0.87962566103423978          # of a normal number given that it lies in (-2, 2)


def _fans(shape, in_axis, out_axis, batch_axis) -> tuple[float, float]:
    """How many inputs feed an output, and how many outputs an input feeds, for weights of this shape."""
    if len(shape) <= 1 and (in_axis, out_axis) == (-2, -1):
        raise ValueError(f"weights of shape {shape} have no two axes to count inputs and outputs by: give at least two "
                         "dimensions, or say in_axis and out_axis")
    count = lambda axes, name: math.prod([shape[a] for a in canonical_axes(axes, len(shape), name)])
    inputs, outputs, batch = count(in_axis, "in_axis"), count(out_axis, "out_axis"), count(batch_axis, "batch_axis")
    if not inputs * outputs * batch:
        raise ValueError(f"weights of shape {shape} have no entries: their variance can't be scaled")
    receptive_field = math.prod(shape) / inputs / outputs / batch
    return inputs * receptive_field, outputs * receptive_field


def variance_scaling(scale, mode, distribution, in_axis=-2, out_axis=-1, batch_axis=(), dtype=None) -> Initializer:
    """An initializer of numbers with mean 0 and variance scale/n.

    mode: what n is: 'fan_in', 'fan_out', their mean 'fan_avg' or geometric mean 'fan_geo_avg'. Sizes of other axes than
    in_axis, out_axis and batch_axis multiply both fans. distribution: 'truncated_normal', 'normal' or 'uniform'.
    The initializer raises ValueError for other words and for shapes without those axes.
    """
    default = dtype

    def init(key, shape, dtype=None, out_sharding=None):
        dtype, shape = _dtype(dtype, default), canonical_shape(shape)
        fan_in, fan_out = _fans(shape, in_axis, out_axis, batch_axis)
        fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2, "fan_geo_avg": (fan_in * fan_out) ** 0.5}
        if mode not in fans:
            raise ValueError(f"variance_scaling: mode is one of {', '.join(map(repr, fans))}, got {mode!r}")
        variance = dtype.type(scale / fans[mode])
        if distribution == "normal":
            return random.normal(key, shape, dtype, out_sharding=out_sharding) * np.sqrt(variance)
        if distribution == "uniform":
            if dtypes.is_complex(dtype):
                return _in_disk(key, shape, dtype) * np.sqrt(variance)
            return random.uniform(key, shape, dtype, -1, out_sharding=out_sharding) * np.sqrt(dtype.type(3) * variance)
        if distribution == "truncated_normal":
            if dtypes.is_complex(dtype):
                return _normal_in_disk(key, 2, shape, dtype) * (np.sqrt(variance) / dtype.type(0.95311164380491208))
            scaled = np.sqrt(variance) / dtype.type(_STANDARD_DEVIATION)
            return random.truncated_normal(key, -2, 2, shape, dtype, out_sharding=out_sharding) * scaled
        raise ValueError(f"variance_scaling: distribution is 'truncated_normal', 'normal' or 'uniform', got {distribution!r}")
    return init


def _radius_and_phase(key, shape, dtype):
    """Two arrays of uniform numbers, the second turned into points of the unit circle."""
    for_radius, for_phase = random.split(key)
    real = dtypes.to_real(dtype)
    phase = dtype.type(2 * math.pi) * random.uniform(for_phase, shape, real).astype(dtype)
    return random.uniform(for_radius, shape, real), jnp.exp(phase * dtype.type(1j))


def _in_disk(key, shape, dtype):
    """Uniform in the disk around 0 in which the variance is 1, radius √2."""
    u, direction = _radius_and_phase(key, shape, dtype)
    return jnp.sqrt(2 * u).astype(dtype) * direction


def _normal_in_disk(key, upper, shape, dtype):
    """Complex normal numbers given that their modulus is below `upper`."""
    u, direction = _radius_and_phase(key, shape, dtype)
    inside = (1 - jnp.exp(jnp.asarray(-upper ** 2, dtype))) * u.astype(dtype)
    return jnp.sqrt(-jnp.log(1 - inside)) * direction


def _scaled(name: str, scale: float, mode: str, distribution: str, source: str):
    def make(in_axis=-2, out_axis=-1, batch_axis=(), dtype=None) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)
    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"variance_scaling({scale}, {mode!r}, {distribution!r}, …). ({source})"
    return make


_GLOROT, _HE, _LECUN = "Glorot, Bengio 2010", "He et al. 2015", "LeCun et al. 1998"
glorot_uniform = xavier_uniform = _scaled("glorot_uniform", 1.0, "fan_avg", "uniform", _GLOROT)
glorot_normal = xavier_normal = _scaled("glorot_normal", 1.0, "fan_avg", "truncated_normal", _GLOROT)
he_uniform = kaiming_uniform = _scaled("he_uniform", 2.0, "fan_in", "uniform", _HE)
he_normal = kaiming_normal = _scaled("he_normal", 2.0, "fan_in", "truncated_normal", _HE)
lecun_uniform = _scaled("lecun_uniform", 1.0, "fan_in", "uniform", _LECUN)
lecun_normal = _scaled("lecun_normal", 1.0, "fan_in", "truncated_normal", _LECUN)


# --- orthogonal matrices -------------------------------------------------------------------------------------------------------------

def orthogonal(scale=1.0, column_axis=-1, dtype=None) -> Initializer:
    """An initializer of `scale` times uniformly distributed matrices of orthonormal columns or rows, whichever are fewer.

    column_axis: the axis that numbers the columns; the others, together, number the rows. Raises ValueError for shapes of fewer than two
    dimensions. (Saxe, McClelland, Ganguli 2014)
    """
    default = dtype

    def init(key, shape, dtype=None, out_sharding=None):
        dtype, shape = _dtype(dtype, default), canonical_shape(shape)
        if len(shape) < 2:
            raise ValueError(f"orthogonal: weights must have at least two dimensions, got shape {shape}")
        if 0 in shape:
            return _placed(jnp.zeros(shape, dtype), out_sharding)
        columns = shape[column_axis]
        rest = tuple(np.delete(shape, column_axis).tolist())
        q = random.orthogonal(key, math.prod(rest), (), dtype, columns)
        return _placed(jnp.asarray(scale, dtype) * jnp.moveaxis(jnp.reshape(q, (*rest, columns)), -1, column_axis), out_sharding)
    return init


def delta_orthogonal(scale=1.0, column_axis=-1, dtype=None) -> Initializer:
    """An initializer of convolution kernels (*K, i, o), 1 to 3 dimensions K, that are an orthogonal matrix at the centre and else zero.

    Raises ValueError for other shapes, and for more inputs i than outputs o. (Xiao et al. 2018)
    """
    default = dtype

    def init(key, shape, dtype=None, out_sharding=None):
        dtype, shape = _dtype(dtype, default), canonical_shape(shape)
        if len(shape) not in (3, 4, 5):
            raise ValueError(f"delta_orthogonal: kernels have three to five dimensions, got shape {shape}")
        if shape[-1] < shape[-2]:
            raise ValueError(f"delta_orthogonal: a kernel of shape {shape} has more inputs ({shape[-2]}) than outputs ({shape[-1]})")
        centre = tuple([(k - 1) // 2 for k in shape[:-2]])
        matrix = orthogonal(scale, column_axis, dtype)(key, shape[-2:])
        return _placed(jnp.zeros(shape, dtype).at[centre].set(matrix), out_sharding)
    return init
