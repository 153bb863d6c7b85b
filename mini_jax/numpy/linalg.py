"""mini_jax.numpy.linalg: norms, powers and products of vectors and matrices."""
from __future__ import annotations

import itertools
import operator
from typing import Sequence

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.lax.shapes import canonical_axis
from mini_jax.numpy import diagonals, products
from mini_jax.numpy.creation import eye
from mini_jax.numpy.manipulation import matrix_transpose
from mini_jax.numpy.promotion import array_argument, arraylike, as_array, promote_dtypes, promote_dtypes_inexact
from mini_jax.numpy.reductions import static_axis
from mini_jax.runtime.dispatch import library

__all__ = ["norm", "vector_norm", "matrix_norm", "matrix_power", "multi_dot", "matmul", "matrix_transpose", "vecdot", "tensordot", "outer", "cross",
           "diagonal", "trace"]

matmul, vecdot, tensordot = products.matmul, products.vecdot, products.tensordot


# --- norms ----------------------------------------------------------------------------------------------------------------------------

def _p_norm(x, order, axes, keepdims):
    """(Σ |x|^p)^(1/p) over `axes`, and its limits."""
    kept = lambda out: lax.expand_dims(out, axes) if keepdims and axes else out
    if order is None or order == 2:
        squares = lax.real(x * lax.conj(x)) if dtypes.is_complex(x.dtype) else x * x
        return kept(lax.sqrt(lax.reduce_sum(squares, axes)))
    if order == np.inf:
        return kept(lax.reduce_max(lax.abs(x), axes))
    if order == -np.inf:
        return kept(lax.reduce_min(lax.abs(x), axes))
    if order == 0:
        return kept(lax.reduce_sum(lax.convert_element_type(lax.ne(x, x.dtype.type(0)), dtypes.to_real(x.dtype)), axes))
    if order == 1:
        return kept(lax.reduce_sum(lax.abs(x), axes))
    if isinstance(order, str):
        raise ValueError(f"Invalid order '{order}' for vector norm.")
    total = lax.reduce_sum(lax.pow(lax.abs(x), np.asarray(order).astype(dtypes.to_real(x.dtype))[()]), axes)
    return kept(lax.pow(total, np.asarray(1 / order).astype(dtypes.to_real(x.dtype))[()]))


def _matrix_norm(x, order, axes, keepdims):
    rows, columns = axes
    kept = lambda out: lax.expand_dims(out, axes) if keepdims else out
    if order is None or order in ("f", "fro"):
        return _p_norm(x, 2, tuple(sorted(axes)), keepdims)
    if order in (1, -1, np.inf, -np.inf):
        summed, other = (rows, columns) if abs(order) == 1 else (columns, rows)
        sums = lax.reduce_sum(lax.abs(x), (summed,))
        return kept((lax.reduce_max if order > 0 else lax.reduce_min)(sums, (other - (other > summed),)))
    if order in (2, -2, "nuc"):
        raise NotImplementedError(f"norm: ord={order!r} needs singular values, which are not there yet")
    raise ValueError(f"Invalid order '{order}' for matrix norm.")


@library(static_argnames=("ord", "axis", "keepdims"))
def _norm(x, ord, axis, keepdims):
    x = as_array(promote_dtypes_inexact(*arraylike("norm", x))[0])
    if axis is None and ord is None:
        out = _p_norm(lax.reshape(x, (x.size,)), 2, (0,), False)
        return lax.reshape(out, (1,) * x.ndim) if keepdims else out
    axes = tuple(range(x.ndim)) if axis is None else tuple([canonical_axis(i, x.ndim) for i in ((axis,) if isinstance(axis, int) else axis)])
    if len(axes) == 1:
        return _p_norm(x, ord, axes, keepdims)
    if len(axes) == 2:
        if axes[0] == axes[1]:
            raise ValueError(f"norm: axes must differ, got {axis}")
        return _matrix_norm(x, ord, axes, keepdims)
    raise ValueError(f"Improper number of axes for norm: axis={axis} of {x.aval}")


def norm(x, ord=None, axis=None, keepdims: bool = False):
    """The norm of a vector (axis an int) or of a matrix (axis a pair), or of all elements (axis and ord None: the square root of Σ |x|²).

    ord for vectors: a number p, (Σ |x|^p)^(1/p); inf and -inf, the greatest and the least |x|; 0, how many are not zero; None: 2.
    For matrices: 'fro' or None, the square root of Σ |x|²; 1, -1, inf, -inf, the greatest or least sum of a column or of a row.
    Raises ValueError for another ord, or more than two axes; NotImplementedError for 2, -2 and 'nuc', which need singular values.
    """
    return _norm(x, ord, static_axis(axis), bool(keepdims))


def vector_norm(x, /, *, axis=None, keepdims: bool = False, ord=2):
    """The p-norm of vectors along `axis` (several: of the elements along all of them; None: of all). (Python array API)"""
    return _vector_norm(x, static_axis(axis), bool(keepdims), ord)


@library(static_argnames=("axis", "keepdims", "ord"))
def _vector_norm(x, axis, keepdims, ord):
    x = as_array(promote_dtypes_inexact(*arraylike("vector_norm", x))[0])
    axes = tuple(range(x.ndim)) if axis is None else tuple(sorted([canonical_axis(i, x.ndim) for i in ((axis,) if isinstance(axis, int) else axis)]))
    return _p_norm(x, ord, axes, keepdims)


def matrix_norm(x, /, *, keepdims: bool = False, ord="fro"):
    """The norm of matrices, the last two axes; see `norm`. (Python array API)"""
    return norm(x, ord, (-2, -1), keepdims)


# --- powers and products --------------------------------------------------------------------------------------------------------------

@library(static_argnames=("n",))
def matrix_power(a, n: int):
    """The n-th power of a square matrix, by repeated squaring.

    Raises TypeError for a matrix that is not square or an n that is no int, NotImplementedError for negative n, which need inverses.
    """
    a = array_argument("matrix_power", a)
    if a.ndim < 2 or a.shape[-2] != a.shape[-1]:
        raise TypeError(f"Last 2 dimensions of the array must be square, got {a.aval}")
    n = operator.index(n)
    if n < 0:
        raise NotImplementedError("matrix_power: negative powers need inverses, which are not there yet")
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
