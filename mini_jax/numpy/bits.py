"""Bits of bytes: packbits and unpackbits."""
from __future__ import annotations

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.lax.shapes import canonical_axis
from mini_jax.numpy.manipulation import moveaxis
from mini_jax.numpy.promotion import array_argument
from mini_jax.numpy.ufuncs import as_bool
from mini_jax.runtime.dispatch import library

__all__ = ["packbits", "unpackbits"]


def _weights(bitorder: str) -> np.ndarray:
    if bitorder not in ("big", "little"):
        raise ValueError("'order' must be either 'little' or 'big'")
    places = np.arange(8, dtype=np.uint8)
    return places[::-1] if bitorder == "big" else places


@library(static_argnames=("axis", "bitorder"))
def packbits(a, axis: int | None = None, bitorder: str = "big"):
    """Each eight booleans along `axis` (None: of the flattened array) as one uint8, the first as the highest bit ('big') or the lowest.

    The last ones are filled up with zeros. Raises TypeError for other dtypes than integers and booleans.
    """
    a = array_argument("packbits", a)
    if not (dtypes.is_integer(a.dtype) or dtypes.is_bool(a.dtype)):
        raise TypeError("Expected an input array of integer or boolean data type")
    places = _weights(bitorder)
    a = lax.convert_element_type(as_bool(a), np.uint8)
    if axis is None:
        a, axis = lax.reshape(a, (a.size,)), 0
    axis = canonical_axis(axis, a.ndim)
    a = moveaxis(a, axis, -1)
    n = a.shape[-1]
    a = lax.pad(a, np.uint8(0), [*[(0, 0, 0)] * (a.ndim - 1), (0, -n % 8, 0)])
    a = lax.reshape(a, (*a.shape[:-1], a.shape[-1] // 8, 8))
    shifted = lax.shift_left(a, lax.broadcast_in_dim(places, a.shape, (a.ndim - 1,)))
    return moveaxis(lax.reduce_sum(shifted, (a.ndim - 1,)), -1, axis)


@library(static_argnames=("axis", "count", "bitorder"))
def unpackbits(a, axis: int | None = None, count: int | None = None, bitorder: str = "big"):
    """The bits of uint8s along `axis` (None: of the flattened array), each as a uint8 0 or 1.

    count: how many of them to return; negative: how many to leave out at the end. Raises TypeError for another dtype.
    """
    a = array_argument("unpackbits", a)
    if a.dtype != np.uint8:
        raise TypeError(f"Expected an input array of unsigned byte data type, got {a.aval}")
    places = _weights(bitorder)
    if axis is None:
        a, axis = lax.reshape(a, (a.size,)), 0
    axis = canonical_axis(axis, a.ndim)
    a = moveaxis(a, axis, -1)
    shape = (*a.shape, 8)
    bits = lax.bitwise_and(lax.shift_right_logical(lax.broadcast_in_dim(a, shape, tuple(range(a.ndim))),
                                                   lax.broadcast_in_dim(places, shape, (a.ndim,))), np.uint8(1))
    bits = lax.reshape(bits, (*a.shape[:-1], a.shape[-1] * 8))
    if count is not None:
        n = bits.shape[-1]
        kept = count if count >= 0 else n + count
        if kept > n:
            bits = lax.pad(bits, np.uint8(0), [*[(0, 0, 0)] * (bits.ndim - 1), (0, kept - n, 0)])
        else:
            bits = lax.slice_in_dim(bits, 0, max(0, kept), axis=-1)
    return moveaxis(bits, -1, axis)
