"""bitcast_convert_type: the bits of an array, read as another dtype."""
from __future__ import annotations

from mini_jax.core import dtypes
from mini_jax.core.linear import zero_like
from mini_jax.core.primitive import Primitive
from mini_jax.lax.shapes import moveaxis

__all__ = ["bitcast_convert_type", "bitcast_convert_type_p"]

_WORDS = dtypes.integers | dtypes.floats
bitcast_convert_type_p = Primitive("bitcast_convert_type", facts={"family": "elementwise", "dtypes": _WORDS})


def bitcast_convert_type(operand, new_dtype):
    """The bits of the operand, read as elements of new_dtype; the first part of an element is its lowest bits.

    operand: an array or number, integer or floating, of shape s. Returns an array of shape s where the dtypes have equally many
    bits, (*s, n) where an element becomes n narrower ones, s without its last dimension, of size n, where n elements become one.
    Raises ValueError when the last dimension has another size, TypeError for booleans and complex numbers, unless new_dtype is
    the operand's. (StableHLO: bitcast_convert)
    """
    return bitcast_convert_type_p.bind(operand, new_dtype=dtypes.requested(new_dtype, "bitcast_convert_type"))


def _bitcast_type(x, *, new_dtype):
    if x.dtype == new_dtype:
        return x.strong
    if x.dtype not in _WORDS or new_dtype not in _WORDS:
        raise TypeError(f"lax.bitcast_convert_type({x}, {new_dtype}): bits of booleans and complex numbers are not read as other "
                        "dtypes; convert with convert_element_type, lax.real and lax.imag")
    old, new = dtypes.itemsize_bits(x.dtype), dtypes.itemsize_bits(new_dtype)
    if old < new and x.shape[-1:] != (new // old,):
        raise ValueError(f"lax.bitcast_convert_type({x}, {new_dtype}): to make an element of {new} bits of {new // old} of {old} "
                         f"bits, the last dimension must have size {new // old}")
    shape = x.shape if old == new else (*x.shape, old // new) if old > new else x.shape[:-1]
    return x.update(shape=shape, dtype=new_dtype, weak_type=False)


def _bitcast_jvp(primals, tangents, *, new_dtype):
    y = bitcast_convert_type_p.bind(*primals, new_dtype=new_dtype)
    return y, zero_like(y)


def _bitcast_batch(axis, args, dims, *, new_dtype):
    (x,), (dim,) = args, dims
    return bitcast_convert_type_p.bind(moveaxis(x, dim, 0), new_dtype=new_dtype), 0


bitcast_convert_type_p.type_rule, bitcast_convert_type_p.jvp = _bitcast_type, _bitcast_jvp
bitcast_convert_type_p.batch = _bitcast_batch
