"""ravel_pytree: a pytree of arrays as one vector, and the way back."""
from __future__ import annotations

import math

import mini_jax.numpy as jnp
from mini_jax.core import dtypes
from mini_jax.core.pytree import Partial, flatten
from mini_jax.core.trace import typeof
from mini_jax.lax import shapes, slicing


def ravel_pytree(pytree):
    """(flat, unravel): all elements of the arrays in one vector, and the function that makes such a pytree of such a vector.

    The vector has the dtype that the arrays' dtypes promote to; unravel gives each array its own shape and dtype again. Where all arrays
    have one dtype, unravel takes vectors of any dtype and keeps it. It raises ValueError for a vector of another size, else TypeError for
    one of another dtype. An empty pytree gives a vector of size 0.
    """
    leaves, tree = flatten(pytree)
    types = tuple([(typeof(leaf).shape, typeof(leaf).dtype) for leaf in leaves])
    if not leaves:
        return jnp.zeros(0, dtypes.default_float()), Partial(_unravel, tree, types, dtypes.default_float())
    dtype = dtypes.result_type(*[d for _, d in types])
    flat = slicing.concatenate([shapes.reshape(shapes.convert_element_type(jnp.asarray(leaf), dtype), (typeof(leaf).size,))
                                for leaf in leaves], 0)
    return flat, Partial(_unravel, tree, types, dtype)


def _unravel(tree, types, dtype, flat):
    total = sum([math.prod(shape) for shape, _ in types])
    aval = typeof(flat)
    if aval.shape != (total,):
        raise ValueError(f"unravel takes a vector of {total} elements, got {aval}")
    one = all([leaf_dtype == dtype for _, leaf_dtype in types])
    if aval.dtype != dtype and not one:
        raise TypeError(f"unravel takes a vector of dtype {dtype}, got {aval}")
    start, leaves = 0, []
    for shape, leaf_dtype in types:
        part = shapes.reshape(slicing.slice_in_dim(flat, start, start + math.prod(shape)), shape)
        leaves.append(part if one else shapes.convert_element_type(part, leaf_dtype))
        start += math.prod(shape)
    return tree.unflatten(leaves)
