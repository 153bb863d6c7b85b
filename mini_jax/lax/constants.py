"""Arrays of one value: full, full_like."""
from __future__ import annotations

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.lax.functions import python_scalars
from mini_jax.lax.shapes import broadcast_in_dim, canonical_shape, convert_element_type

__all__ = ["full", "full_like"]


def full(shape, fill_value, dtype=None):
    """The array of `shape` all of whose entries are fill_value, a scalar.

    dtype: None is that of fill_value, which stays weak if it is a Python scalar. Raises TypeError when fill_value is no scalar.
    """
    shape, weak = canonical_shape(shape), False
    aval = typeof(fill_value)
    if aval.shape:
        raise TypeError(f"full takes a scalar to fill the array with, got fill_value of type {aval}; broadcast_in_dim repeats arrays")
    if dtype is None:
        dtype, weak = aval.dtype, aval.weak_type
    return broadcast_in_dim(_scalar(fill_value, dtypes.requested(dtype, "full"), weak), shape, ())


def full_like(x, fill_value, dtype=None, shape=None):
    """`full` with the shape, the dtype and, unless a dtype is given, the weakness of x, where they are not given."""
    aval = typeof(x) if not hasattr(x, "shape") or not hasattr(x, "dtype") else x
    weak = dtype is None and bool(getattr(aval, "weak_type", False))
    shape = aval.shape if shape is None else canonical_shape(shape)
    if typeof(fill_value).shape:
        raise TypeError(f"full_like takes a scalar to fill the array with, got fill_value of type {typeof(fill_value)}")
    return broadcast_in_dim(_scalar(fill_value, dtypes.requested(aval.dtype if dtype is None else dtype, "full_like"), weak), tuple(shape), ())


def _scalar(value, dtype, weak: bool):
    """`value`, a scalar, as one of dtype `dtype`; numbers at once, others by an operation."""
    if type(value) in python_scalars or isinstance(value, (np.generic, np.ndarray)):
        if weak and dtypes.canonicalize(dtypes.scalar_type_of(dtype)) == dtype:
            return dtypes.scalar_type_of(dtype)(value)
        if not dtypes.is_extended(dtype):
            return np.asarray(value).astype(dtype)[()]
    return convert_element_type(value, dtype, weak)
