"""Diagonals and triangles of matrices, and the indices of their elements."""
from __future__ import annotations

import operator

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.core.staging import without_staging
from mini_jax.core.trace import typeof
from mini_jax.lax.shapes import canonical_axis
from mini_jax.numpy.creation import asarray, ones
from mini_jax.numpy.promotion import array_argument, arraylike, as_array
from mini_jax.numpy.ufuncs import unsupported_out
from mini_jax.runtime.dispatch import library

__all__ = ["tril", "triu", "diag", "diagflat", "diagonal", "trace", "diag_indices", "diag_indices_from", "tril_indices", "tril_indices_from",
           "triu_indices", "triu_indices_from", "mask_indices", "fill_diagonal", "vander"]


# --- triangles -----------------------------------------------------------------------------------------------------------------

def _triangle(name: str, m, k, keep):
    (m,) = arraylike(name, m)
    shape = typeof(m).shape
    if len(shape) < 2:
        raise ValueError(f"Argument to {name} must be at least 2D, got {typeof(m)}")
    i, j = [lax.broadcasted_iota(np.int32, shape, len(shape) - 2 + d) for d in (0, 1)]
    return lax.select(keep(j - i, k), as_array(m), lax.full_like(m, 0))


@library(static_argnames=("k",))
def tril(m, k: int = 0):
    """The lower triangle of a matrix (or of each of the last two dimensions): zeros where column - row > k.

    Raises ValueError for fewer than two dimensions.
    """
    return _triangle("tril", m, k, lax.le)


@library(static_argnames=("k",))
def triu(m, k: int = 0):
    """The upper triangle of a matrix (or of each of the last two dimensions): zeros where column - row < k."""
    return _triangle("triu", m, k, lax.ge)


# --- diagonals -----------------------------------------------------------------------------------------------------------------

@library(static_argnames=("k",))
def diag(v, k: int = 0):
    """Of a vector: the square matrix with it as k-th diagonal, zeros elsewhere. Of a matrix: its k-th diagonal.

    Raises ValueError for other numbers of dimensions.
    """
    (v,) = arraylike("diag", v)
    shape = typeof(v).shape
    if len(shape) == 2:
        return diagonal(v, offset=k)
    if len(shape) != 1:
        raise ValueError(f"diag input must be 1d or 2d, got {typeof(v)}")
    n = shape[0] + abs(k)
    padded = lax.pad(v, lax.full_like(v, 0, shape=()), [(max(0, k), max(0, -k), 0)])
    i, j = [lax.broadcasted_iota(np.int32, (n, n), d) for d in (0, 1)]
    return lax.select(lax.eq(j - i, k), lax.broadcast_in_dim(padded, (n, n), (1,)), lax.full_like(v, 0, shape=(n, n)))


def diagflat(v, k: int = 0):
    """The square matrix with the elements of `v`, of any shape, as k-th diagonal."""
    return diag(lax.reshape(as_array(v), (np.size(v),)), k)


@library(static_argnames=("offset", "axis1", "axis2"))
def diagonal(a, offset: int = 0, axis1: int = 0, axis2: int = 1):
    """The elements a[…, i, …, i + offset, …], i being the index along axis1; the diagonal is the last dimension of the result.

    Raises ValueError for fewer than two dimensions, or equal axes.
    """
    (a,) = arraylike("diagonal", a)
    a = as_array(a)
    if a.ndim < 2:
        raise ValueError(f"diagonal requires an array of at least two dimensions, got {a.aval}")
    axis1, axis2 = canonical_axis(axis1, a.ndim), canonical_axis(axis2, a.ndim)
    if axis1 == axis2:
        raise ValueError(f"diagonal: axis1 and axis2 cannot be the same, got {axis1} twice")
    order = [i for i in range(a.ndim) if i not in (axis1, axis2)] + [axis1, axis2]
    a = lax.transpose(a, order)
    rows, columns = a.shape[-2:]
    size = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    first = max(0, -offset) * columns + max(0, offset)
    flat = lax.reshape(a, (*a.shape[:-2], rows * columns))
    end = (*a.shape[:-2], first + (size - 1) * (columns + 1) + 1 if size else first)
    start = (*(0,) * (a.ndim - 2), min(first, end[-1]))
    if not size:
        return lax.slice(flat, (0,) * (a.ndim - 1), (*a.shape[:-2], 0))
    return lax.slice(flat, start, end, (*(1,) * (a.ndim - 2), columns + 1))


def trace(a, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype=None, out=None):
    """The sum of a diagonal: see `diagonal`. dtype: of the sum; None: that of `a`, at least the default integer."""
    unsupported_out("trace", out)
    from mini_jax.numpy.reductions import sum
    return sum(diagonal(a, operator.index(offset), operator.index(axis1), operator.index(axis2)), axis=-1, dtype=dtype)


def fill_diagonal(a, val, wrap: bool = False, *, inplace: bool = True):
    """`a` with `val`, a number or an array whose elements are repeated in turn, on its main diagonal a[i, i, …].

    Arrays are immutable: pass inplace=False (else NotImplementedError). wrap: of a tall matrix start anew after a row left out.
    """
    if inplace:
        raise NotImplementedError("fill_diagonal: arrays are immutable, so it cannot work in place; pass inplace=False and use the result")
    a, val = array_argument("fill_diagonal", a), asarray(val)
    if a.ndim < 2 or a.ndim > 2 and len(set(a.shape)) > 1:
        raise ValueError(f"fill_diagonal takes a matrix, or more dimensions of one size, got {a.aval}")
    step = sum(int(np.prod(a.shape[i + 1:])) for i in range(a.ndim)) if a.ndim > 2 else a.shape[1] + 1
    end = a.size if wrap or a.ndim > 2 or a.shape[0] <= a.shape[1] else a.shape[1] * a.shape[1]
    positions = np.arange(0, end, step)
    flat = lax.reshape(a, (a.size,))
    values = lax.convert_element_type(val, a.dtype)
    if values.ndim:
        values = lax.reshape(values, (values.size,))[np.arange(len(positions)) % values.size]
    return lax.reshape(flat.at[positions].set(values), a.shape)


# --- their indices ----------------------------------------------------------------------------------------------------------------

def _as_indices(arrays) -> tuple:
    return tuple([asarray(np.asarray(x, dtypes.default_int())) for x in arrays])


def diag_indices(n: int, ndim: int = 2) -> tuple:
    """The indices of the main diagonal of an array of `ndim` dimensions of size n: `ndim` times 0, …, n - 1."""
    n, ndim = operator.index(n), operator.index(ndim)
    if n < 0 or ndim < 0:
        raise ValueError(f"diag_indices takes a size and a number of dimensions that are not negative, got {n} and {ndim}")
    return (asarray(np.arange(n, dtype=dtypes.default_int())),) * ndim


def diag_indices_from(arr) -> tuple:
    """diag_indices for an array; ValueError unless it has at least two dimensions, all of one size."""
    shape = np.shape(arr)
    if len(shape) < 2 or len(set(shape)) != 1:
        raise ValueError(f"diag_indices_from takes an array of at least two dimensions, all of one size, got shape {shape}")
    return diag_indices(shape[0], len(shape))


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple:
    """The row and column indices of the lower triangle (column - row <= k) of an n × m matrix."""
    return _as_indices(np.tril_indices(n, k, m))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple:
    """The row and column indices of the upper triangle (column - row >= k) of an n × m matrix."""
    return _as_indices(np.triu_indices(n, k, m))


def _matrix_shape(name: str, arr) -> tuple[int, ...]:
    shape = np.shape(arr)
    if len(shape) != 2:
        raise ValueError(f"{name}: only 2-D inputs are accepted, got shape {shape}")
    return shape


def tril_indices_from(arr, k: int = 0) -> tuple:
    """tril_indices for a matrix of the shape of `arr`."""
    n, m = _matrix_shape("tril_indices_from", arr)
    return tril_indices(n, k, m)


def triu_indices_from(arr, k: int = 0) -> tuple:
    """triu_indices for a matrix of the shape of `arr`."""
    n, m = _matrix_shape("triu_indices_from", arr)
    return triu_indices(n, k, m)


def mask_indices(n: int, mask_func, k: int = 0, *, size: int | None = None) -> tuple:
    """The indices of the elements of an n × n matrix of ones that mask_func(matrix, k) leaves non-zero, e.g. mask_func=triu."""
    from mini_jax.numpy.sorting import nonzero
    with without_staging():                                # it depends on nothing that is traced
        return nonzero(mask_func(ones((n, n)), k), size=size)


@library(static_argnames=("N", "increasing"))
def vander(x, N: int | None = None, increasing: bool = False):
    """The matrix whose columns are the powers 0, …, N - 1 of the vector x (N: its size by default), highest first unless increasing."""
    (x,) = arraylike("vander", x)
    x = as_array(x)
    if x.ndim != 1:
        raise ValueError(f"vander takes a vector, got {x.aval}")
    from mini_jax.numpy.ufuncs import power
    n = x.shape[0] if N is None else operator.index(N)
    if n < 0:
        raise ValueError(f"vander: N must be nonnegative, got {n}")
    if x.dtype == dtypes.bool_:
        x = lax.convert_element_type(x, dtypes.default_int())
    columns = [power(x, i) for i in (range(n) if increasing else reversed(range(n)))]
    if not columns:
        return lax.full((x.shape[0], 0), 0, x.dtype)
    return lax.concatenate([lax.expand_dims(c, (1,)) for c in columns], 1)
