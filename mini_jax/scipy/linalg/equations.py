"""Systems of linear equations: by elimination, by given factors, triangular ones, and Sylvester's."""
from __future__ import annotations

import operator

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.lax import linalg
from mini_jax.lax.linalg.lu import apply_factors
from mini_jax.lax.linalg.matrices import adjoint, conjugate, product, transposed
from mini_jax.numpy.linalg.decompositions import matrices
from mini_jax.numpy.promotion import arraylike, as_array, broadcast_shapes, promote_dtypes_inexact
from mini_jax.runtime.dispatch import library

__all__ = ["solve", "solve_triangular", "cho_factor", "cho_solve", "lu_factor", "lu_solve", "solve_sylvester", "inv", "det"]


def _system(name: str, a, b):
    """Square matrices, and right sides as matrices of as many leading dimensions; whether they were vectors, and the batch shape."""
    a, b = [as_array(x) for x in promote_dtypes_inexact(*arraylike(name, a, b))]
    a = matrices(name, a, square=True)
    vector = b.ndim == 1 or b.ndim == a.ndim - 1 and b.shape[-2:] != (*a.shape[-1:], b.shape[-1]) and b.shape[-1] == a.shape[-1]
    if b.ndim == 0 or b.shape[-1 if vector else -2] != a.shape[-1]:
        raise ValueError(f"{name}: {b.aval} can't be the right side of a system with {a.aval}; it must have shape (..., n) or (..., n, m)")
    b = b[..., None] if vector else b
    leading = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return jnp.broadcast_to(a, (*leading, *a.shape[-2:])), jnp.broadcast_to(b, (*leading, *b.shape[-2:])), vector


def solve(a, b, lower: bool = False, overwrite_a: bool = False, overwrite_b: bool = False, debug: bool = False, check_finite: bool = True,
          assume_a: str = "gen"):
    """The x with a x = b, for a (..., n, n) and b (..., n, m) or a vector (n); x has the shape of b.

    assume_a: what a is known to be: 'gen'eral, 'sym'metric or 'her'mitian (by LU decomposition, all three), or 'pos'itive definite, by Cholesky
    decomposition of the triangle that `lower` names. overwrite_a, overwrite_b, check_finite: of no effect. Raises ValueError for another
    assume_a and for shapes that don't fit.
    """
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise ValueError(f"Expected assume_a to be one of ['gen', 'sym', 'her', 'pos']; got {assume_a!r}")
    return _solve_positive(a, b, bool(lower)) if assume_a == "pos" else jnp.linalg.solve(a, b)


@library(static_argnames=("lower",))
def _solve_positive(a, b, lower):
    a, b, vector = _system("solve", a, b)
    x = _by_cholesky(linalg.cholesky(a if lower else adjoint(a), symmetrize_input=False), b)
    return x[..., 0] if vector else x


def _by_cholesky(l, b):
    y = linalg.triangular_solve(l, b, left_side=True, lower=True)
    return linalg.triangular_solve(l, y, left_side=True, lower=True, transpose_a=True, conjugate_a=True)


def solve_triangular(a, b, trans: int | str = 0, lower: bool = False, unit_diagonal: bool = False, overwrite_b: bool = False, debug=None,
                     check_finite: bool = True):
    """The x with op(a) x = b, for triangular a (..., n, n), of which only the triangle that `lower` names is read, and b (..., n, m) or (..., n).

    trans: op(a) is a (0 or 'N'), its transpose (1 or 'T') or its adjoint (2 or 'C'). unit_diagonal: a has ones on the diagonal, whatever stands
    there. overwrite_b, check_finite: of no effect. Raises ValueError for another trans and shapes that don't fit.
    """
    known = {0: 0, 1: 1, 2: 2, "N": 0, "T": 1, "C": 2}
    if trans not in known:
        raise ValueError(f"Invalid 'trans' value {trans!r}: it is 0, 1, 2, 'N', 'T' or 'C'")
    return _solve_triangular(a, b, known[trans], bool(lower), bool(unit_diagonal))


@library(static_argnames=("trans", "lower", "unit_diagonal"))
def _solve_triangular(a, b, trans, lower, unit_diagonal):
    a, b, vector = _system("solve_triangular", a, b)
    x = linalg.triangular_solve(a, b, left_side=True, lower=lower, transpose_a=trans > 0, conjugate_a=trans == 2, unit_diagonal=unit_diagonal)
    return x[..., 0] if vector else x


# --- by given factors ------------------------------------------------------------------------------------------------------------------

def cho_factor(a, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True):
    """(c, lower), for `cho_solve`: the Cholesky factor of a positive definite a, lᴴ of a = l lᴴ or, with `lower`, l itself."""
    from mini_jax.scipy.linalg.decompositions import cholesky           # both files' functions are SciPy's, each of which uses the other
    return cholesky(a, lower), lower


def cho_solve(c_and_lower, b, overwrite_b: bool = False, check_finite: bool = True):
    """The x with a x = b, for what cho_factor(a) returned and b (..., n, m) or (..., n)."""
    c, lower = c_and_lower
    return _cho_solve(c, b, bool(lower))


@library(static_argnames=("lower",))
def _cho_solve(c, b, lower):
    c, b, vector = _system("cho_solve", c, b)
    x = _by_cholesky(c if lower else adjoint(c), b)
    return x[..., 0] if vector else x


@library
def _lu_factor(a):
    return tuple(linalg.lu(matrices("lu_factor", a))[:2])


def lu_factor(a, overwrite_a: bool = False, check_finite: bool = True):
    """(lu, pivots), for `lu_solve`: l (below the diagonal, which is one) and u of a = p l u, and the row exchanges p, int32.

    a: (..., m, n). Row i was exchanged with row pivots[i], one after the other.
    """
    return _lu_factor(a)


def lu_solve(lu_and_piv, b, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True):
    """The x with a x = b (trans 1: aᵀ x = b, 2: aᴴ x = b), for what lu_factor(a) returned and b (..., n, m) or (..., n)."""
    if trans not in (0, 1, 2):
        raise ValueError(f"'trans' value must be 0, 1, or 2, got {trans!r}")
    return _lu_solve(*lu_and_piv, b, operator.index(trans))


@library(static_argnames=("trans",))
def _lu_solve(lu, piv, b, trans):
    lu, b, vector = _system("lu_solve", lu, b)
    piv = jnp.broadcast_to(as_array(piv).astype(dtypes.int32), lu.shape[:-1])
    permutation = linalg.lu_pivots_to_permutation(piv, lu.shape[-1])
    if trans == 2:
        x = conjugate(apply_factors(lu, lu, permutation, conjugate(b), transpose_a=True))
    else:
        x = apply_factors(lu, lu, permutation, b, transpose_a=trans == 1)
    return x[..., 0] if vector else x


# --- Sylvester's equation ----------------------------------------------------------------------------------------------------------------

def solve_sylvester(A, B, C, *, method: str = "schur", tol: float = 1e-8):
    """The X with A X + X B = C, by Schur decompositions of A (m, m) and B (n, n); C and X (m, n). Differentiable.

    NaN where an eigenvalue of A and one of B add up to less than tol, so that there is no one solution. method: 'schur' or 'eigen', which are
    one here. Raises ValueError for another method and shapes that don't fit. (Bartels, Stewart 1972)
    """
    if method not in ("schur", "eigen"):
        raise ValueError(f"solve_sylvester: method is 'schur' or 'eigen', got {method!r}")
    return _solve_sylvester(A, B, C, float(tol))


@library(static_argnames=("tol",))
def _solve_sylvester(A, B, C, tol):
    A, B, C = [as_array(x) for x in promote_dtypes_inexact(*arraylike("solve_sylvester", A, B, C))]
    if A.ndim != 2 or B.ndim != 2 or A.shape[0] != A.shape[1] or B.shape[0] != B.shape[1] or C.shape != (A.shape[0], B.shape[0]):
        raise ValueError(f"solve_sylvester: A must be (m, m), B (n, n) and C (m, n), got {A.aval}, {B.aval} and {C.aval}")
    return sylvester(A, B, C, tol)


def sylvester(A, B, C, tol: float):
    """X of A X + X B = C, with the derivatives of a solution of linear equations."""
    complex_dtype = jnp.promote_types(A.dtype, dtypes.complex64)
    r, u = linalg.schur(lax.stop_gradient(A).astype(complex_dtype))
    s, v = linalg.schur(lax.stop_gradient(B).astype(complex_dtype))

    def by_columns(r, s, f):
        """R Y + Y S = F, R and S triangular: (R + sⱼⱼ) yⱼ = fⱼ - Σ yₖ sₖⱼ over k < j."""
        one, column = jnp.eye(f.shape[0], dtype=complex_dtype), jnp.arange(f.shape[1])

        def step(y, j):
            right = f[:, j] - y @ jnp.where(column < j, s[:, j], 0)
            new = linalg.triangular_solve(r + s[j, j] * one, right[:, None], left_side=True)
            return jnp.where(column == j, new, y), None
        y = lax.scan(step, jnp.zeros_like(f), column)[0]
        gaps = jnp.abs(jnp.diagonal(r)[:, None] + jnp.diagonal(s)[None])
        return jnp.where(jnp.any(gaps <= tol), jnp.nan, y)

    def solution(_, c):
        x = product(product(u, by_columns(r, s, product(product(adjoint(u), c.astype(complex_dtype)), v))), adjoint(v))
        return x if dtypes.is_complex(c.dtype) else lax.real(x)

    def transposed_solution(_, c):
        """Of Aᵀ X + X Bᵀ = C: with rows and columns in reverse order Rᵀ and Sᵀ are upper triangular again."""
        back = lambda t: lax.rev(transposed(t), (0, 1))
        f = lax.rev(product(product(transposed(u), c.astype(complex_dtype)), conjugate(v)), (0, 1))
        y = lax.rev(by_columns(back(r), back(s), f), (0, 1))
        x = product(product(conjugate(u), y), transposed(v))
        return x if dtypes.is_complex(c.dtype) else lax.real(x)
    return lax.custom_linear_solve(lambda x: product(A, x) + product(x, B), C, solution, transposed_solution)


def inv(a, overwrite_a: bool = False, check_finite: bool = True):
    """The inverse of square matrices (..., n, n); NaN or infinities where they are singular."""
    return jnp.linalg.inv(a)


def det(a, overwrite_a: bool = False, check_finite: bool = True):
    """The determinants of square matrices (..., n, n)."""
    return jnp.linalg.det(a)
