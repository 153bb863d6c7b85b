"""What samplers do with their arguments: the key, the shape, the dtype, parameters that broadcast; and where samples go."""
from __future__ import annotations

from typing import Callable

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.core.types import ShapedArray
from mini_jax.lax.shapes import canonical_shape
from mini_jax.random.keys import opened
from mini_jax.runtime.dispatch import library

sampler = library(static_argnames=("generator", "shape", "dtype"))
"""Decorator of what draws: fun(data, generator, shape, dtype, *parameters), for the data of one key."""


def draw(fun: Callable, name: str, key, shape, dtype, *parameters, out_sharding=None):
    """Call a `sampler`. `shape` None: that of the parameters together. They must broadcast to it (ValueError)."""
    data, generator, _ = opened(key, name)
    if parameters:
        shape = broadcast_shape(name, shape, parameters)
    else:
        shape = canonical_shape(shape)
    out = fun(data, generator, shape, dtype, *parameters)
    return out if out_sharding is None else placed(out, out_sharding)


def broadcast_shape(name: str, shape, parameters) -> tuple[int, ...]:
    """`shape`, or the common shape of the parameters where it is None."""
    shapes = [np.shape(p) if isinstance(p, (int, float, complex, np.generic, np.ndarray)) else typeof(p).shape for p in parameters]
    if shape is None:
        try:
            return np.broadcast_shapes(*shapes)
        except ValueError:
            raise ValueError(f"random.{name}: the parameters' shapes {_listed(shapes)} do not broadcast to one") from None
    shape = canonical_shape(shape)
    try:
        fits = np.broadcast_shapes(shape, *shapes) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"random.{name}: parameters of shapes {_listed(shapes)} do not broadcast to the requested shape {shape}")
    return shape


def _listed(shapes) -> str:
    return " and ".join(map(str, shapes))


def float_dtype(name: str, dtype, *, complex_too: bool = False):
    """The floating dtype meant, None being the default one; ValueError for another kind."""
    if dtype is None:
        return dtypes.default_float()
    wanted = dtypes.requested(dtype, f"random.{name}")
    if not (dtypes.is_floating(wanted) or complex_too and dtypes.is_complex(wanted)):
        raise ValueError(f"random.{name}: dtype must be floating{' or complex' if complex_too else ''}, got {wanted}")
    return wanted


def integer_dtype(name: str, dtype):
    """The integer dtype meant, None being the default one; TypeError for another kind."""
    if dtype is None:
        return dtypes.default_int()
    wanted = dtypes.requested(dtype, f"random.{name}")
    if not dtypes.is_integer(wanted):
        raise TypeError(f"random.{name}: dtype must be an integer dtype, got {wanted}")
    return wanted


def parameter(x, dtype, shape: tuple[int, ...] | None = None):
    """A parameter in `dtype`, broadcast to `shape` unless it is a scalar (which stands for all entries)."""
    if not (isinstance(x, np.generic) and x.dtype == dtype):
        x = lax.convert_element_type(x, dtype)
    aval: ShapedArray = typeof(x)
    if shape is None or aval.shape in ((), shape):
        return x
    return lax.broadcast_in_dim(x, shape, tuple(range(len(shape) - aval.ndim, len(shape))))


def filled(x, shape: tuple[int, ...]):
    """A scalar or an array of this shape, as an array of this shape."""
    return x if typeof(x).shape == shape else lax.broadcast(x, shape)


def keys_of(data, generator, number: int) -> list:
    """The data of `number` new keys."""
    new = generator.split(data, (number,))
    return [lax.index_in_dim(new, i, 0, keepdims=False) for i in range(number)]


def placed(x, sharding):
    """The samples, laid out over devices as `sharding` says."""
    from mini_jax import device_put                 # the package's own front, complete by the time anything is drawn
    return device_put(x, sharding)
