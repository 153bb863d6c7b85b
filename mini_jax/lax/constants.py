"""Arrays of one value: full, full_like, empty."""
from __future__ import annotations

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.lax.functions import python_scalars
from mini_jax.lax.shapes import broadcast_in_dim, canonical_shape, convert_element_type

__all__ = ["full", "full_like", "empty"]


def full(shape, fill_value, dtype=None):
    """The array of `shape` all of whose entries are fill_value, a scalar.

    dtype: None is that of fill_value, which stays weak if it is a Python scalar. Raises TypeError when fill_value is no scalar.
    """
    aval = typeof(fill_value)
    if dtype is None:
        return _filled(shape, fill_value, aval.dtype, aval.weak_type)
    return _filled(shape, fill_value, dtypes.requested(dtype, "full"), False)


def full_like(x, fill_value, dtype=None, shape=None):
    """`full` with the shape, the dtype and, unless a dtype is given, the weakness of x, where they are not given.

    x: an array or number, or anything that has a shape and a dtype.
    """
    like = x if hasattr(x, "shape") and hasattr(x, "dtype") else typeof(x)
    weak = dtype is None and getattr(like, "weak_type", False)
    return _filled(like.shape if shape is None else shape, fill_value,
                   dtypes.requested(like.dtype if dtype is None else dtype, "full_like"), weak)


def empty(shape, dtype):
    """An array of `shape` and dtype whose entries nobody should rely on; here they are zero."""
    return full(shape, 0, dtype)


def _filled(shape, value, dtype, weak: bool):
    """The array of `shape` of the scalar `value` in dtype `dtype`. Numbers are converted at once, others by an operation."""
    shape, aval = canonical_shape(shape), typeof(value)
    if aval.shape:
        raise TypeError(f"arrays are filled with a scalar, got fill_value of type {aval}; broadcast_in_dim repeats arrays")
    if dtypes.is_extended(dtype) or not (type(value) in python_scalars or isinstance(value, (np.generic, np.ndarray))):
        value = convert_element_type(value, dtype, weak)
    elif weak and dtypes.canonicalize(dtypes.scalar_type_of(dtype)) == dtype:
        value = dtypes.scalar_type_of(dtype)(value)
    else:
        value = np.asarray(value).astype(dtype)[()]
    return broadcast_in_dim(value, shape, ())
