"""Triangular systems of linear equations."""
from __future__ import annotations

from mini_jax.core.linear import Accumulator, Zero, zero_like
from mini_jax.core.primitive import Primitive
from mini_jax.core.trace import typeof
from mini_jax.core.types import array_type
from mini_jax.lax.gather import batched_at
from mini_jax.lax.linalg.matrices import LAPACK, check_matrix, conjugate, lower_triangle, product, transposed, upper_triangle
from mini_jax.lax.shapes import moveaxis, reshape

__all__ = ["triangular_solve", "triangular_solve_p"]

triangular_solve_p = Primitive("triangular_solve", facts={"family": "linalg", "dtypes": LAPACK})


def triangular_solve(a, b, *, left_side: bool = False, lower: bool = False, transpose_a: bool = False, conjugate_a: bool = False,
                     unit_diagonal: bool = False):
    """The x with op(a) x = b (left_side) or x op(a) = b, where a is triangular.

    a: (..., n, n), of which only the lower or the upper triangle is read, and with unit_diagonal taken to have ones on the diagonal.
    op(a): a, its transpose (transpose_a), its conjugate (conjugate_a) or both. b: (..., n, m), or (..., m, n) without left_side, or a
    vector (n) for a matrix a. A zero on the diagonal gives infinities or NaN. Raises ValueError for shapes that don't fit, TypeError for
    dtypes that differ or are not float32, float64, complex64 or complex128. (BLAS: trsm)
    """
    if typeof(b).ndim == 1 and typeof(a).ndim == 2:
        x = reshape(b, (typeof(b).size, 1) if left_side else (1, typeof(b).size))
        return reshape(_solve(a, x, left_side, lower, transpose_a, conjugate_a, unit_diagonal), typeof(b).shape)
    return _solve(a, b, left_side, lower, transpose_a, conjugate_a, unit_diagonal)


def _solve(a, b, left_side, lower, transpose_a, conjugate_a, unit_diagonal):
    return triangular_solve_p.bind(a, b, left_side=bool(left_side), lower=bool(lower), transpose_a=bool(transpose_a),
                                   conjugate_a=bool(conjugate_a), unit_diagonal=bool(unit_diagonal))


def _type(a, b, *, left_side, **_):
    check_matrix("triangular_solve", a, square=True)
    if a.dtype != b.dtype:
        raise TypeError(f"lax.linalg.triangular_solve({a}, {b}): the operands must have one dtype")
    if a.ndim != b.ndim or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2 if left_side else -1]:
        raise ValueError(f"Incompatible shapes for arguments to triangular_solve: {a.shape} and {b.shape}; b must be (..., "
                         f"{'n, m' if left_side else 'm, n'}) for a of shape (..., n, n), with equal leading dimensions")
    return array_type(b.shape, b.dtype)


def _jvp(primals, tangents, **params):
    """op(a) dx = db − op(da) x, where of da only the triangle counts."""
    (a, b), (da, db) = primals, tangents
    x = triangular_solve_p.bind(a, b, **params)
    if type(da) is Zero:
        return x, zero_like(x) if type(db) is Zero else triangular_solve_p.bind(a, db, **params)
    k = 1 if params["unit_diagonal"] else 0
    da = lower_triangle(da, -k) if params["lower"] else upper_triangle(da, k)
    da = transposed(da) if params["transpose_a"] else da
    da = conjugate(da) if params["conjugate_a"] else da
    moved = product(da, x) if params["left_side"] else product(x, da)
    return x, triangular_solve_p.bind(a, -moved if type(db) is Zero else db - moved, **params)


def _transpose(ct, a, b, *, transpose_a, **params):
    """Linear in b, by the transposed system."""
    if isinstance(b, Accumulator) and b.wanted:
        b.add(triangular_solve_p.bind(a, ct, transpose_a=not transpose_a, **params))


def _batch(axis, args, dims, **params):
    """Many b for one a are one b with more columns (rows, without left_side)."""
    (a, b), (i, j) = args, dims
    if i is not None:
        return triangular_solve_p.bind(batched_at(axis, a, i, 0), batched_at(axis, b, j, 0), **params), 0
    shape = typeof(a).shape
    place = len(shape) if params["left_side"] else len(shape) - 2
    b = moveaxis(b, j, place)
    wide = typeof(b).shape
    merged = (*wide[:-2], wide[-2] * wide[-1]) if params["left_side"] else (*wide[:-3], wide[-3] * wide[-2], wide[-1])
    return reshape(triangular_solve_p.bind(a, reshape(b, merged), **params), wide), place


triangular_solve_p.type_rule, triangular_solve_p.jvp, triangular_solve_p.transpose, triangular_solve_p.batch = _type, _jvp, _transpose, _batch
