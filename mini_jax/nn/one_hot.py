"""one_hot: numbers of classes as rows of a unit matrix."""
from __future__ import annotations

import operator

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.core.errors import ConcretizationTypeError
from mini_jax.core.trace import known_int, typeof
from mini_jax.lax.shapes import canonical_axis
from mini_jax.runtime.dispatch import library

__all__ = ["one_hot"]


def one_hot(x, num_classes, *, dtype=None, axis=-1):
    """An array with a new axis of size num_classes, 1 at the position that x says and 0 elsewhere.

    Numbers outside [0, num_classes) give zeros. dtype: of the result, default float.
    axis: where the new axis stands in the result (ValueError where that is nowhere).
    """
    try:
        num_classes = known_int(num_classes, "nn.one_hot", "num_classes")
    except ConcretizationTypeError:
        raise
    except TypeError as error:
        raise TypeError(f"nn.one_hot: num_classes shapes the result and must be an int, got {num_classes!r:.100}") from error
    if num_classes < 0:
        raise ValueError(f"nn.one_hot: num_classes must not be negative, got {num_classes}")
    dtype = dtypes.default_float() if dtype is None else dtypes.requested(dtype, "nn.one_hot")
    return _one_hot(x if hasattr(x, "aval") else jnp.asarray(x), num_classes, dtype, operator.index(axis))


@library(static_argnames=("num_classes", "dtype", "axis"))
def _one_hot(x, num_classes, dtype, axis):
    if typeof(x).dtype == dtypes.bool_:
        x = lax.convert_element_type(x, dtypes.default_int())
    aval = typeof(x)
    axis = canonical_axis(axis, aval.ndim + 1)
    shape = (*aval.shape[:axis], num_classes, *aval.shape[axis:])
    x = lax.broadcast_in_dim(x, shape, tuple([d + (d >= axis) for d in range(aval.ndim)]))
    return lax.convert_element_type(lax.eq(x, lax.broadcasted_iota(aval.dtype, shape, axis)), dtype)
