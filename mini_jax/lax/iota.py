"""iota: the integers 0, 1, 2, … along a dimension, the one array that comes from nothing but its shape."""
from __future__ import annotations

from mini_jax.core import dtypes
from mini_jax.core.linear import zero_like
from mini_jax.core.primitive import Primitive
from mini_jax.core.types import array_type
from mini_jax.lax.shapes import canonical_shape

__all__ = ["iota", "broadcasted_iota", "iota_p"]

_NUMBERS = dtypes.integers | dtypes.floats | dtypes.complexes

iota_p = Primitive("iota", facts={"family": "indexing", "dtypes": _NUMBERS})


def iota(dtype, size):
    """The array [0, 1, …, size - 1]. TypeError for booleans and for a negative size."""
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(dtype, shape, dimension, *, out_sharding=None):
    """The array of `shape` whose entries are their own index along `dimension`. (StableHLO: iota)

    out_sharding: of no effect, as in broadcast_in_dim.
    Raises ValueError unless 0 <= dimension < len(shape), TypeError for a dtype without numbers.
    """
    return iota_p.bind(dtype=dtypes.canonicalize(dtype), shape=canonical_shape(shape), dimension=int(dimension))


def _iota_type(*, dtype, shape, dimension):
    if dtype not in _NUMBERS:
        raise TypeError(f"lax.iota: dtype {dtype} is not accepted; it takes integer, floating and complex dtypes")
    if not 0 <= dimension < len(shape):
        raise ValueError(f"lax.broadcasted_iota: dimension {dimension} is not one of the {len(shape)} dimensions of shape {shape}")
    return array_type(shape, dtype)


def _iota_jvp(primals, tangents, **params):
    y = iota_p.bind(**params)
    return y, zero_like(y)


iota_p.type_rule, iota_p.jvp = _iota_type, _iota_jvp
iota_p.batch = lambda axis, args, dims, **params: (iota_p.bind(**params), None)
