"""The polar decomposition, by Halley's iteration with dynamic weights in its form with QR decompositions."""
from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.lax import elementwise, reductions
from mini_jax.lax.linalg.matrices import adjoint, check_matrix, hermitian_part, identity, product
from mini_jax.lax.linalg.qr import qr
from mini_jax.lax.selection import select
from mini_jax.lax.shapes import broadcast_in_dim, convert_element_type, reduce_sum
from mini_jax.lax.slicing import concatenate, slice_in_dim

__all__ = ["qdwh"]


def qdwh(x, *, is_hermitian: bool = False, max_iterations: int | None = None, eps: float | None = None, dynamic_shape: tuple[int, int] | None = None):
    """(u, h, iterations, converged) with x = u h, u of orthonormal columns and h Hermitian and positive semidefinite.

    x: (m, n), m ≥ n, of full rank. max_iterations: 10 by default. eps: the precision, by default the dtype's. iterations: int32; converged:
    whether the last one changed u by less than (4 eps)^(1/3) of its size. is_hermitian is of no consequence; dynamic_shape must be None. Raises
    TypeError for other dtypes than float32, float64, complex64 and complex128 and other than two dimensions, ValueError for m < n.
    (Nakatsukasa, Bai & Gygi 2010, doi:10.1137/090774999)
    """
    aval = typeof(x)
    check_matrix("qdwh", aval)
    if aval.ndim != 2 or aval.shape[0] < aval.shape[1]:
        raise (TypeError if aval.ndim != 2 else ValueError)(f"lax.linalg.qdwh({aval}): the operand must be one matrix, with no fewer rows than columns")
    if dynamic_shape is not None:
        raise NotImplementedError("lax.linalg.qdwh: dynamic_shape must be None; cut the matrix to its size")
    found = polar_factor(x, eps, 10 if max_iterations is None else max_iterations)
    return found.factor, hermitian_part(product(adjoint(found.factor), x)), np.int32(found.iterations), found.converged


class Polar(NamedTuple):
    """What `polar_factor` returns: u, how many iterations that took, and whether the last one changed little."""
    factor: Any
    iterations: int
    converged: Any


def polar_factor(x, eps: float | None = None, limit: int = 10) -> Polar:
    """The u of qdwh of each matrix of x, (..., m, n) with m ≥ n. Where x has not full rank, u is zero on what x makes zero."""
    shape, dtype, rank = typeof(x).shape, typeof(x).dtype, typeof(x).ndim
    (m, n), leading = shape[-2:], shape[:-2]
    real = dtypes.to_real(dtype)
    eps = float(dtypes.finfo(real).eps) if eps is None else float(eps)
    number = lambda value: convert_element_type(real.type(value), dtype)
    wide = lambda s: broadcast_in_dim(s, shape, tuple(range(rank - 2)))
    size = elementwise.sqrt(elementwise.mul(_largest_sum(x, 0), _largest_sum(x, 1)))                    # at least the largest singular value
    size = select(elementwise.eq(size, real.type(0)), broadcast_in_dim(real.type(1), leading, ()), size)
    u = elementwise.div(x, wide(convert_element_type(size, dtype)))
    count, lower, change = 0, eps, _norm(u)
    while count < limit and (count == 0 or abs(1 - lower) > 5 * eps):                                  # the bounds, so the weights, don't depend on x
        d = (4 * (1 / lower**2 - 1) / lower**2) ** (1 / 3)
        root = math.sqrt(1 + d)
        a = root + math.sqrt(8 - 4 * d + 8 * (2 - lower**2) / (lower**2 * root)) / 2
        b = (a - 1)**2 / 4
        c = a + b - 1
        q, _ = qr(concatenate([elementwise.mul(u, number(math.sqrt(c))), identity((*leading, n, n), dtype)], rank - 2), full_matrices=False)
        turned = product(slice_in_dim(q, 0, m, axis=rank - 2), adjoint(slice_in_dim(q, m, m + n, axis=rank - 2)))
        new = elementwise.add(elementwise.mul(u, number(b / c)), elementwise.mul(turned, number((a - b / c) / math.sqrt(c))))
        change, u, count = _norm(elementwise.sub(new, u)), new, count + 1
        lower = min(lower * (a + b * lower**2) / (1 + c * lower**2), 1.0)
    settled = np.bool_(abs(1 - lower) <= 5 * eps)
    converged = elementwise.bitwise_and(settled, elementwise.le(change, elementwise.mul(_norm(u), real.type((4 * eps) ** (1 / 3)))))
    u = elementwise.sub(elementwise.mul(u, number(1.5)), elementwise.mul(product(u, product(adjoint(u), u)), number(0.5)))     # one step of Newton & Schulz
    return Polar(u, count, converged)


def _largest_sum(x, axis: int):
    """The largest sum of absolute values along rows (1) or columns (0) of each matrix."""
    rank = typeof(x).ndim
    return reductions.reduce_max(reduce_sum(elementwise.abs(x), (rank - 2 + axis,)), (rank - 2,))


def _norm(x):
    size, rank = elementwise.abs(x), typeof(x).ndim
    return elementwise.sqrt(reduce_sum(elementwise.mul(size, size), (rank - 2, rank - 1)))
