"""Products of vectors, matrices and arrays: dot, matmul, tensordot and their like; all of them dot_generals."""
from __future__ import annotations

import functools
import operator

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.lax.dot import canonical_precision
from mini_jax.lax.shapes import canonical_axes
from mini_jax.numpy.manipulation import moveaxis, ravel
from mini_jax.numpy.promotion import arraylike, as_array, broadcast_to_shape, promote_dtypes
from mini_jax.numpy.ufuncs import conjugate, multiply, unsupported_out
from mini_jax.runtime.dispatch import library

__all__ = ["dot", "matmul", "vdot", "vecdot", "matvec", "vecmat", "inner", "outer", "tensordot", "kron", "cross"]

_STATIC = ("precision", "preferred_element_type")


def operands(name: str, a, b, preferred_element_type=None):
    """Two operands of one dtype, and the dtype of their product (None: the same)."""
    a, b = map(as_array, promote_dtypes(*arraylike(name, a, b)))
    preferred = None if preferred_element_type is None else dtypes.requested(preferred_element_type, name)
    if preferred is not None and dtypes.is_inexact(preferred) and not dtypes.is_inexact(a.dtype):
        a, b = lax.convert_element_type(a, preferred), lax.convert_element_type(b, preferred)
    return a, b, preferred


def contract(name, a, b, dims, batch=((), ()), precision=None, preferred=None):
    """dot_general, with an error in terms of the operands where contracted sizes differ."""
    for i, j in zip(*dims):
        if a.shape[i] != b.shape[j]:
            raise TypeError(f"{name}: the contracted sizes differ: axis {i} of {a.aval} and axis {j} of {b.aval}")
    return lax.dot_general(a, b, (dims, batch), precision, preferred)


@library(static_argnames=_STATIC)
def dot(a, b, *, precision=None, preferred_element_type=None, out_sharding=None):
    """The sum of products over the last axis of a and the second to last of b (its only one if it is a vector); of a number, the product.

    precision: see lax.Precision. preferred_element_type: in which products are added. Raises TypeError where the sizes differ.
    """
    a, b, preferred = operands("dot", a, b, preferred_element_type)
    if not a.ndim or not b.ndim:
        out = multiply(a, b)
        return out if preferred is None else lax.convert_element_type(out, preferred)
    return contract("dot", a, b, ((a.ndim - 1,), (max(0, b.ndim - 2),)), precision=precision, preferred=preferred)


@library(static_argnames=_STATIC)
def matmul(a, b, *, precision=None, preferred_element_type=None, out_sharding=None):
    """The matrix product, for each index of the leading axes, which broadcast: (…, n, k), (…, k, m) → (…, n, m).

    A vector counts as a row on the left and as a column on the right, and its axis is missing in the result.
    Raises ValueError for operands without dimensions or leading axes that do not broadcast, TypeError where the sizes differ.
    """
    a, b, preferred = operands("matmul", a, b, preferred_element_type)
    shape_a, shape_b, dims, order = _matmul_plan(a.aval.shape, b.aval.shape)
    a, b = a if shape_a is None else lax.reshape(a, shape_a), b if shape_b is None else lax.reshape(b, shape_b)
    out = lax.dot_general_p.bind(a, b, dimension_numbers=dims, precision=canonical_precision(precision), preferred_element_type=preferred)
    return out if order is None else lax.transpose(out, order)


@functools.lru_cache(1024)
def _matmul_plan(a: tuple[int, ...], b: tuple[int, ...]):
    """(shape to bring the left operand to, or None; the right one's; dimension numbers; order of the result's axes, or None).

    Leading axes are counted from the last; one of size 1 is dropped where the other operand's is longer, which then is a free axis.
    """
    for position, shape in enumerate((a, b)):
        if not shape:
            raise ValueError(f"matmul input operand {position} must have ndim at least 1, but it has ndim 0")
    inner = b[max(0, len(b) - 2)]
    if a[-1] != inner:
        raise TypeError(f"matmul: the sizes that are contracted differ: {a[-1]}, the last of {a}, and {inner} of {b}")
    sizes_a, sizes_b = dict(enumerate(a[-3::-1])), dict(enumerate(b[-3::-1]))
    if any([sizes_b.get(i, n) != n and 1 not in (n, sizes_b[i]) for i, n in sizes_a.items()]):
        raise ValueError(f"matmul: the leading axes of shapes {a} and {b} do not broadcast")
    kept_a = [i for i in reversed(sizes_a) if sizes_a[i] != 1 or sizes_b.get(i, 1) == 1]
    kept_b = [i for i in reversed(sizes_b) if sizes_b[i] != 1 or sizes_a.get(i, 1) == 1]
    shape_a, shape_b = (*[sizes_a[i] for i in kept_a], *a[-2:]), (*[sizes_b[i] for i in kept_b], *b[-2:])
    shared = [i for i in kept_a if i in kept_b]
    batch = tuple([kept_a.index(i) for i in shared]), tuple([kept_b.index(i) for i in shared])
    dims = ((len(shape_a) - 1,), (max(len(kept_b), len(shape_b) - 2),)), batch
    rows, columns = ["row"] * (len(a) > 1), ["column"] * (len(b) > 1)
    have = [*shared, *[i for i in kept_a if i not in shared], *rows, *[i for i in kept_b if i not in shared], *columns]
    want = [*sorted([i for i in have if isinstance(i, int)], reverse=True), *rows, *columns]
    return None if shape_a == a else shape_a, None if shape_b == b else shape_b, dims, None if have == want else tuple([have.index(i) for i in want])


@library(static_argnames=_STATIC)
def vdot(a, b, *, precision=None, preferred_element_type=None):
    """The sum of the products of all elements of conj(a) and b, both flattened."""
    a, b, preferred = operands("vdot", a, b, preferred_element_type)
    return contract("vdot", ravel(conjugate(a)), ravel(b), ((0,), (0,)), precision=precision, preferred=preferred)


@library(static_argnames=("axis", *_STATIC))
def vecdot(x1, x2, /, *, axis: int = -1, precision=None, preferred_element_type=None):
    """The sum of conj(x1) x2 along `axis`, the other axes broadcasting."""
    a, b, preferred = operands("vecdot", x1, x2, preferred_element_type)
    if not a.ndim or not b.ndim:
        raise ValueError(f"vecdot takes arrays of at least one dimension, got {a.aval} and {b.aval}")
    a, b = moveaxis(conjugate(a), axis, -1), moveaxis(b, axis, -1)
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"vecdot: sizes along the axis differ: {a.shape[-1]} and {b.shape[-1]}")
    shape = np.broadcast_shapes(a.shape, b.shape)
    a, b = broadcast_to_shape(a, shape), broadcast_to_shape(b, shape)
    last, rest = len(shape) - 1, tuple(range(len(shape) - 1))
    return contract("vecdot", a, b, ((last,), (last,)), (rest, rest), precision, preferred)


@library
def matvec(x1, x2, /):
    """The products of matrices (…, n, k) and vectors (…, k): (…, n)."""
    a, b, _ = operands("matvec", x1, x2)
    if a.ndim < 2 or not b.ndim:
        raise ValueError(f"matvec takes matrices and vectors, got {a.aval} and {b.aval}")
    return matmul(a, b) if b.ndim == 1 else lax.squeeze(matmul(a, lax.expand_dims(b, (b.ndim,))), (-1,))


@library
def vecmat(x1, x2, /):
    """The products of conjugated vectors (…, n) and matrices (…, n, k): (…, k)."""
    a, b, _ = operands("vecmat", x1, x2)
    if b.ndim < 2 or not a.ndim:
        raise ValueError(f"vecmat takes vectors and matrices, got {a.aval} and {b.aval}")
    a = conjugate(a)
    return matmul(a, b) if a.ndim == 1 else lax.squeeze(matmul(lax.expand_dims(a, (a.ndim - 1,)), b), (-2,))


@library(static_argnames=_STATIC)
def inner(a, b, *, precision=None, preferred_element_type=None):
    """The sum of products over the last axes of a and b; of a number, the product."""
    a, b, preferred = operands("inner", a, b, preferred_element_type)
    if not a.ndim or not b.ndim:
        return multiply(a, b)
    return contract("inner", a, b, ((a.ndim - 1,), (b.ndim - 1,)), precision=precision, preferred=preferred)


def outer(a, b, out=None):
    """a_i b_j of the elements of a and b, both flattened."""
    unsupported_out("outer", out)
    return _outer(a, b)


@library
def _outer(a, b):
    a, b, _ = operands("outer", a, b)
    return multiply(lax.reshape(a, (a.size, 1)), lax.reshape(b, (1, b.size)))


def tensordot(a, b, axes=2, *, precision=None, preferred_element_type=None, out_sharding=None):
    """The sum of products over several axes: the last `axes` (an int) of a with the first of b, or axes[0] of a with axes[1] of b.

    Raises TypeError or ValueError where axes do not fit.
    """
    if not isinstance(axes, (tuple, list)) and np.ndim(axes) == 0:
        axes = operator.index(axes)
    else:
        axes = tuple([(operator.index(side),) if np.ndim(side) == 0 else tuple([operator.index(i) for i in side]) for side in axes])
        if len(axes) != 2:
            raise TypeError(f"tensordot: axes are an int or a pair, one for each operand; got {axes}")
        if len(axes[0]) != len(axes[1]):
            raise TypeError(f"tensordot requires axes lists to have equal length, got {axes[0]} and {axes[1]}.")
    return _tensordot(a, b, axes, precision, preferred_element_type)


@library(static_argnames=("axes", *_STATIC))
def _tensordot(a, b, axes, precision, preferred_element_type):
    a, b, preferred = operands("tensordot", a, b, preferred_element_type)
    if isinstance(axes, int):
        if axes > min(a.ndim, b.ndim) or axes < 0:
            raise TypeError(f"tensordot: number of axes to contract ({axes}) exceeds the number of dimensions of {a.aval} or {b.aval}")
        axes = tuple(range(a.ndim - axes, a.ndim)), tuple(range(axes))
    dims = canonical_axes(axes[0], a.ndim), canonical_axes(axes[1], b.ndim)
    return contract("tensordot", a, b, dims, precision=precision, preferred=preferred)


@library
def kron(a, b):
    """The Kronecker product: each element of a times the whole of b, in one array of sizes a.shape[i] b.shape[i]."""
    a, b, _ = operands("kron", a, b)
    rank = max(a.ndim, b.ndim)
    a, b = lax.reshape(a, (1,) * (rank - a.ndim) + a.shape), lax.reshape(b, (1,) * (rank - b.ndim) + b.shape)
    wide = [n for pair in zip(a.shape, (1,) * rank) for n in pair], [n for pair in zip((1,) * rank, b.shape) for n in pair]
    return lax.reshape(multiply(lax.reshape(a, wide[0]), lax.reshape(b, wide[1])), [n * m for n, m in zip(a.shape, b.shape)])


def cross(a, b, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None):
    """The cross product of vectors of size 3 (or 2: the component missing in them is zero, and of two such only it is returned).

    axisa, axisb, axisc: where the vectors stand in a, b and the result; axis: all three. Raises ValueError for other sizes.
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    return _cross(a, b, operator.index(axisa), operator.index(axisb), operator.index(axisc))


@library(static_argnames=("axisa", "axisb", "axisc"))
def _cross(a, b, axisa, axisb, axisc):
    a, b, _ = operands("cross", a, b)
    a, b = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)
    if a.shape[-1] not in (2, 3) or b.shape[-1] not in (2, 3):
        raise ValueError(f"cross takes vectors of size 2 or 3, got {a.shape[-1]} and {b.shape[-1]}")
    shape = np.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    u = [broadcast_to_shape(lax.index_in_dim(a, i, axis=-1, keepdims=False), shape) for i in range(a.shape[-1])]
    v = [broadcast_to_shape(lax.index_in_dim(b, i, axis=-1, keepdims=False), shape) for i in range(b.shape[-1])]
    last = u[0] * v[1] - u[1] * v[0]
    if len(u) == len(v) == 2:
        return last
    zero = lax.full(shape, 0, a.dtype)
    u, v = u + [zero] * (3 - len(u)), v + [zero] * (3 - len(v))
    parts = [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], last]
    return moveaxis(lax.concatenate([lax.expand_dims(p, (p.ndim,)) for p in parts], len(shape)), -1, axisc)
