"""Powers and products of matrices and vectors."""
from __future__ import annotations

import itertools
import operator
from typing import Sequence

from mini_jax import lax
from mini_jax.core.trace import typeof
from mini_jax.numpy import diagonals, products
from mini_jax.numpy.creation import eye
from mini_jax.numpy.linalg.equations import inv
from mini_jax.numpy.manipulation import matrix_transpose
from mini_jax.numpy.promotion import array_argument, arraylike, as_array, promote_dtypes
from mini_jax.runtime.dispatch import library

__all__ = ["matrix_power", "multi_dot", "matmul", "matrix_transpose", "vecdot", "tensordot", "outer", "cross", "diagonal", "trace"]

matmul, vecdot, tensordot = products.matmul, products.vecdot, products.tensordot


@library(static_argnames=("n",))
def matrix_power(a, n: int):
    """The n-th power of a square matrix, by repeated squaring.

    A negative n takes powers of the inverse. Raises TypeError for a matrix that is not square or an n that is no int.
    """
    a = array_argument("matrix_power", a)
    if a.ndim < 2 or a.shape[-2] != a.shape[-1]:
        raise TypeError(f"Last 2 dimensions of the array must be square, got {a.aval}")
    n = operator.index(n)
    if n < 0:
        a, n = inv(a), -n
    if not n:
        return lax.broadcast_in_dim(eye(a.shape[-1], dtype=a.dtype), a.shape, (a.ndim - 2, a.ndim - 1))
    power = None
    while n:
        if n % 2:
            power = a if power is None else matmul(power, a)
        n //= 2
        a = matmul(a, a) if n else a
    return power


def multi_dot(arrays: Sequence, *, precision=None):
    """The product of several matrices (the first and the last may be vectors), in the order that takes the fewest multiplications.

    Raises ValueError for fewer than two, or sizes that don't fit.
    """
    arrays = [as_array(x) for x in promote_dtypes(*arraylike("multi_dot", *arrays))]
    if len(arrays) < 2:
        raise ValueError(f"multi_dot requires at least two arrays; got len(arrays)={len(arrays)}")
    if not (arrays[0].ndim in (1, 2) and arrays[-1].ndim in (1, 2) and all([x.ndim == 2 for x in arrays[1:-1]])):
        raise ValueError(f"multi_dot: input arrays must all be two-dimensional, except for the first and last, got {', '.join([str(x.aval) for x in arrays])}")
    if any([x.shape[-1] != y.shape[0] for x, y in itertools.pairwise(arrays)]):
        raise ValueError(f"multi_dot: input arrays have incompatible shapes: {', '.join([str(x.shape) for x in arrays])}")
    return _multi_dot(arrays, precision)


@library(static_argnames=("precision",))
def _multi_dot(arrays, precision):
    """Dynamic programming over the last multiplication of each stretch."""
    sizes = [1 if arrays[0].ndim == 1 else arrays[0].shape[0], *[x.shape[0] for x in arrays[1:]], 1 if arrays[-1].ndim == 1 else arrays[-1].shape[-1]]
    n = len(arrays)
    cost, cut = {(i, i): 0 for i in range(n)}, {}
    for span in range(1, n):
        for i in range(n - span):
            j = i + span
            cost[i, j], cut[i, j] = min([(cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)])

    def product(i, j):
        return arrays[i] if i == j else matmul(product(i, cut[i, j]), product(cut[i, j] + 1, j), precision=precision)
    return product(0, n - 1)


def outer(x1, x2, /):
    """The products of all pairs of elements of two vectors. (Python array API)"""
    x1, x2 = arraylike("outer", x1, x2)
    if typeof(x1).ndim != 1 or typeof(x2).ndim != 1:
        raise ValueError(f"Input arrays must be one-dimensional, but they are {typeof(x1)} and {typeof(x2)}")
    return products.outer(x1, x2)


def cross(x1, x2, /, *, axis: int = -1):
    """The cross product of vectors of size 3 along `axis`. (Python array API)"""
    x1, x2 = arraylike("cross", x1, x2)
    if typeof(x1).shape[axis] != 3 or typeof(x2).shape[axis] != 3:
        raise ValueError(f"Both input arrays must be (arrays of) 3-dimensional vectors, but they are {typeof(x1)} and {typeof(x2)}")
    return products.cross(x1, x2, axis=axis)


def diagonal(x, /, *, offset: int = 0):
    """The diagonals of matrices, the last two axes. (Python array API)"""
    return diagonals.diagonal(x, offset, -2, -1)


def trace(x, /, *, offset: int = 0, dtype=None):
    """The sums of the diagonals of matrices, the last two axes. (Python array API)"""
    return diagonals.trace(x, offset, -2, -1, dtype)
