"""Images at places between their pixels."""
from __future__ import annotations

import itertools
import operator
from typing import Sequence

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.numpy.promotion import array_argument
from mini_jax.runtime.dispatch import library

__all__ = ["map_coordinates"]


def _mirror(i, size: int):
    """… 2 1 | 0 1 2 … n-1 | n-2 …"""
    last = size - 1
    return jnp.abs((i + last) % (2 * last) - last) if last else jnp.zeros_like(i)


# Which pixel stands for one outside of the image.
_MODES = {"constant": lambda i, size: i, "nearest": lambda i, size: jnp.clip(i, 0, size - 1), "wrap": lambda i, size: i % size, "mirror": _mirror,
          "reflect": lambda i, size: _mirror(2 * i + 1, 2 * size + 1) // 2}


def _half_away(x):
    """x rounded to whole numbers, halves away from 0."""
    return jnp.sign(x) * jnp.floor(jnp.abs(x) + 0.5) if dtypes.is_floating(x.dtype) else x


def map_coordinates(input, coordinates: Sequence, order: int, mode: str = "constant", cval=0.0):
    """The values of an image at `coordinates`, one array for each of its dimensions, which broadcast to the shape of the result.

    order: 0, the nearest pixel, or 1, linear between the pixels (NotImplementedError for others). mode: what lies outside: 'constant', cval;
    'nearest', the pixel at the edge; 'wrap', the image again; 'mirror' and 'reflect', its mirror image, about the outermost pixels or their edges.
    Differentiable by the image and, for order 1, the coordinates. Integers are interpolated as floats and rounded. Raises ValueError for as
    many coordinates as there are not dimensions.
    """
    coordinates = list(coordinates)
    if len(coordinates) != jnp.ndim(input):
        raise ValueError(f"coordinates must be a sequence of length input.ndim, but {len(coordinates)} != {jnp.ndim(input)}")
    order = operator.index(order)
    if order not in (0, 1):
        raise NotImplementedError("jax.scipy.ndimage.map_coordinates currently requires order<=1")
    if mode not in _MODES:
        raise NotImplementedError(f"jax.scipy.ndimage.map_coordinates does not yet support mode {mode}. Currently supported modes are {set(_MODES)}.")
    return _map_coordinates(input, coordinates, cval, order, mode)


@library(static_argnames=("order", "mode"))
def _map_coordinates(input, coordinates, cval, order, mode):
    image = array_argument("map_coordinates", input)
    places = [array_argument("map_coordinates", c) for c in coordinates]
    places = [c if dtypes.is_inexact(c.dtype) else c.astype(dtypes.to_inexact(c.dtype)) for c in places]
    cval = jnp.asarray(cval, image.dtype)
    choices = []                                           # for each dimension the pixels that count, and with what weight
    for place, size in zip(places, image.shape):
        if order == 0:
            near = [(_half_away(place), jnp.ones_like(place))]
        else:
            below = jnp.floor(place)
            upper = place - below
            near = [(below, 1 - upper), (below + 1, upper)]
        pixels = []
        for i, weight in near:
            i = i.astype(dtypes.int32)
            pixels.append((_MODES[mode](i, size), weight, (i >= 0) & (i < size) if mode == "constant" else None))
        choices.append(pixels)
    total = None
    for corner in itertools.product(*choices):
        value = image[tuple([i for i, _, _ in corner])] if corner else image
        inside = [valid for _, _, valid in corner if valid is not None]
        for valid in inside:
            value = jnp.where(valid, value, cval)
        if order == 1:
            for _, weight, _ in corner:
                value = value * weight
        total = value if total is None else total + value
    if dtypes.is_integer(image.dtype):
        total = _half_away(total)
    return lax.convert_element_type(total, image.dtype)
