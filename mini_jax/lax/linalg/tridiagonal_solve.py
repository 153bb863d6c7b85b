"""Tridiagonal systems of linear equations."""
from __future__ import annotations

from mini_jax.core.linear import Accumulator, Zero, zero_like
from mini_jax.core.primitive import Primitive
from mini_jax.core.trace import typeof
from mini_jax.core.types import array_type
from mini_jax.lax.linalg.matrices import LAPACK, leading_batch
from mini_jax.lax.shapes import broadcast_in_dim
from mini_jax.lax.slicing import pad, slice_in_dim

__all__ = ["tridiagonal_solve", "tridiagonal_solve_p"]

tridiagonal_solve_p = Primitive("tridiagonal_solve", facts={"family": "linalg", "dtypes": LAPACK})


def tridiagonal_solve(dl, d, du, b, *, perturb_singular: bool = False):
    """The x with dl[i] x[i - 1] + d[i] x[i] + du[i] x[i + 1] = b[i]; dl[0] and du[n - 1] are not read.

    dl, d, du: (..., n), the diagonals below, on and above the main one. b: (..., n, m). perturb_singular: where the matrix is singular,
    the solution of one close by, which is large, instead of NaN (real dtypes only). Raises TypeError for dtypes that differ or are not
    float32, float64, complex64 or complex128, ValueError for shapes that don't fit. (LAPACK: gtsv)
    """
    return tridiagonal_solve_p.bind(dl, d, du, b, perturb_singular=bool(perturb_singular))


def _type(dl, d, du, b, *, perturb_singular):
    where = f"lax.linalg.tridiagonal_solve({dl}, {d}, {du}, {b})"
    if b.dtype not in LAPACK or any([t.dtype != b.dtype for t in (dl, d, du)]):
        raise TypeError(f"{where}: the operands must have one dtype, float32, float64, complex64 or complex128")
    if perturb_singular and b.dtype.kind == "c":
        raise TypeError(f"{where}: perturb_singular is there for real matrices only")
    if b.ndim < 2:
        raise TypeError(f"{where}: b must have at least two dimensions, (..., n, m); make one right side a column, b[:, None]")
    if not dl.shape == d.shape == du.shape == b.shape[:-1]:
        raise ValueError(f"{where}: the diagonals must have shape (..., n), and b (..., n, m)")
    return array_type(b.shape, b.dtype)


def _after(x, axis: int):
    """x[i + 1] along an axis, zero at the end."""
    still = [(0, 0, 0)] * typeof(x).ndim
    return slice_in_dim(pad(x, typeof(x).dtype.type(0), (*still[:axis], (0, 1, 0), *still[axis + 1:])), 1, None, axis=axis)


def _before(x, axis: int):
    """x[i - 1] along an axis, zero at the start."""
    still = [(0, 0, 0)] * typeof(x).ndim
    return slice_in_dim(pad(x, typeof(x).dtype.type(0), (*still[:axis], (1, 0, 0), *still[axis + 1:])), 0, typeof(x).shape[axis], axis=axis)


def _jvp(primals, tangents, **params):
    """A dx = db − dA x."""
    *diagonals, b = primals
    x = tridiagonal_solve_p.bind(*primals, **params)
    if all([type(t) is Zero for t in tangents]):
        return x, zero_like(x)
    shape, axis = typeof(x).shape, typeof(x).ndim - 2
    right = None if type(tangents[3]) is Zero else tangents[3]
    for t, part in zip(tangents, (lambda: _before(x, axis), lambda: x, lambda: _after(x, axis))):
        if type(t) is not Zero:
            moved = broadcast_in_dim(t, shape, tuple(range(axis + 1))) * part()
            right = -moved if right is None else right - moved
    return x, tridiagonal_solve_p.bind(*diagonals, right, **params)


def _transpose(ct, dl, d, du, b, **params):
    """Linear in b, by the transposed matrix, whose diagonals below and above have changed places."""
    if isinstance(b, Accumulator) and b.wanted:
        last = typeof(d).ndim - 1
        b.add(tridiagonal_solve_p.bind(_before(du, last), d, _after(dl, last), ct, **params))


tridiagonal_solve_p.type_rule, tridiagonal_solve_p.jvp, tridiagonal_solve_p.transpose = _type, _jvp, _transpose
tridiagonal_solve_p.batch = leading_batch(tridiagonal_solve_p)
