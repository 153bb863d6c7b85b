"""Functions of square matrices: exponential, square root, and others by their values at the eigenvalues."""
from __future__ import annotations

import math
from typing import Callable

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.lax import linalg
from mini_jax.lax.linalg.lu import solve as solve_by_lu
from mini_jax.lax.linalg.matrices import adjoint, identity, product
from mini_jax.numpy.linalg.decompositions import matrices
from mini_jax.numpy.promotion import arraylike, promote_dtypes_inexact
from mini_jax.runtime.dispatch import library
from mini_jax.scipy.linalg.equations import sylvester
from mini_jax.transforms.autodiff import jvp
from mini_jax.transforms.custom_derivatives import custom_jvp

__all__ = ["expm", "expm_frechet", "sqrtm", "funm"]


# --- the exponential ---------------------------------------------------------------------------------------------------------------------

# Degree of the Padé approximant, and up to which norm it has the dtype's accuracy. (Higham 2005, tables 2.3 and 2.1)
_PADE = {dtypes.float32: (7, 3.925724783138660), dtypes.float64: (13, 5.371920351148152)}


def _pade(a, degree: int):
    """q(a)⁻¹ p(a), p and q the numerator and denominator of the diagonal Padé approximant: with coefficients bₖ = m! (2m-k)!/(2m)! k! (m-k)!."""
    b = [math.factorial(degree) * math.factorial(2 * degree - k) / (math.factorial(2 * degree) * math.factorial(k) * math.factorial(degree - k))
         for k in range(degree + 1)]
    one = identity(a.shape, a.dtype)
    square = product(a, a)
    powers = [one, square]
    for _ in range(2, min(3, degree // 2) + 1):
        powers.append(product(powers[-1], square))
    low = lambda first, top: sum([b[2 * i + first] * powers[i] for i in range(min(top, len(powers)))])
    even, odd = low(0, degree // 2 + 1), low(1, degree // 2 + 1)
    if degree == 13:                                        # the powers from a⁸ on are those up to a⁶ times a⁶
        even = even + product(powers[3], sum([b[6 + 2 * i] * powers[i] for i in (1, 2, 3)]))
        odd = odd + product(powers[3], sum([b[7 + 2 * i] * powers[i] for i in (1, 2, 3)]))
    odd = product(a, odd)
    return even, odd


def expm(A, *, upper_triangular: bool = False, max_squarings: int = 16):
    """Σ Aᵏ/k! of square matrices (..., n, n): a Padé approximant of A/2ˢ, squared s times. Differentiable.

    upper_triangular: A is, so that equations are solved by substitution. Where s would exceed max_squarings the result is NaN.
    Raises ValueError for matrices that are not square. (Higham 2005)
    """
    return _expm(A, bool(upper_triangular), int(max_squarings))


@library(static_argnames=("upper_triangular", "max_squarings"))
def _expm(A, upper_triangular, max_squarings):
    A = matrices("expm", A, square=True)
    if A.size == 0:
        return A
    degree, limit = _PADE[dtypes.to_real(A.dtype)]
    norm = jnp.max(jnp.sum(jnp.abs(lax.stop_gradient(A)), -2), -1)
    count = jnp.maximum(0, jnp.ceil(jnp.log2(norm / limit)))
    scaled = A * jnp.exp2(-count).astype(A.dtype)[..., None, None]
    even, odd = _pade(scaled, degree)
    if upper_triangular:
        r = linalg.triangular_solve(even - odd, even + odd, left_side=True)
    else:
        r = solve_by_lu(even - odd, even + odd)
    most = jnp.max(count)

    def step(r, k):
        squared = lambda r: jnp.where((k < count)[..., None, None], product(r, r), r)
        return lax.cond(k < most, squared, lambda r: r, r), None
    r = lax.scan(step, r, jnp.arange(max_squarings, dtype=count.dtype))[0]
    return jnp.where((count > max_squarings)[..., None, None], jnp.nan, r)


def expm_frechet(A, E, *, method: str | None = None, compute_expm: bool = True):
    """(exp A, L): L the derivative of the exponential of matrices at A in the direction E; without compute_expm, L. Shapes (..., n, n).

    method: 'SPS', 'blockEnlarge' or None, which are one here. Raises ValueError for other methods, and for shapes that differ.
    """
    if method not in (None, "SPS", "blockEnlarge"):
        raise ValueError(f"expm_frechet: method is 'SPS' or 'blockEnlarge', got {method!r}")
    value, moved = _expm_frechet(A, E)
    return (value, moved) if compute_expm else moved


@library
def _expm_frechet(A, E):
    A, E = [matrices("expm_frechet", x, square=True) for x in promote_dtypes_inexact(*arraylike("expm_frechet", A, E))]
    if A.shape != E.shape:
        raise ValueError(f"expm_frechet: expected A and E to be the same shape, got A.shape={A.shape} E.shape={E.shape}")
    return jvp(lambda a: _expm(a, False, 16), (A,), (E,))


# --- by the Schur form -------------------------------------------------------------------------------------------------------------------

def _triangular_root(t):
    """r with r² = t, column by column: (r' + rⱼⱼ) rⱼ = tⱼ for r' the columns before. (Björck, Hammarling 1983)"""
    n = t.shape[-1]
    row = jnp.arange(n)
    roots = jnp.sqrt(jnp.diagonal(t))

    def step(r, j):
        before = row < j
        system = r + jnp.diag(jnp.where(before, roots[j], 1))
        new = linalg.triangular_solve(system, jnp.where(before, t[:, j], 0)[:, None], left_side=True)[:, 0]
        new = jnp.where(before, new, jnp.where(row == j, roots[j], 0))
        return jnp.where(row[None] == j, new[:, None], r), None
    return lax.scan(step, jnp.zeros_like(t), jnp.arange(n))[0]


@custom_jvp
def _root(a):
    t, z = linalg.schur(a)
    return product(product(z, _triangular_root(t)), adjoint(z))


@_root.defjvp
def _root_jvp(primals, tangents):
    """x dx + dx x = da."""
    x = _root(*primals)
    return x, sylvester(x, x, tangents[0], 0.0)


def _matrix_function(name: str, fun: Callable, a):
    """fun of each matrix, as complex ones."""
    a = matrices(name, a, square=True)
    a = a.astype(jnp.promote_types(a.dtype, dtypes.complex64))
    return fun(a) if a.ndim == 2 else jnp.vectorize(fun, signature="(n,n)->(n,n)")(a)


@library
def _sqrtm(A):
    return _matrix_function("sqrtm", _root, A)


def sqrtm(A, blocksize: int = 1):
    """The principal square root of square matrices (..., n, n), complex: X X = A, the eigenvalues of X in the right half-plane. Differentiable.

    NaN or infinities where there is none. Raises NotImplementedError for a blocksize other than 1.
    """
    if blocksize > 1:
        raise NotImplementedError(f"sqrtm: blocksize must be 1, got {blocksize}")
    return _sqrtm(A)


def funm(A, func: Callable, disp: bool = True):
    """func(A), complex, for a function of numbers: by its values at the eigenvalues of A (n, n), which must be distinct. (Parlett 1976)

    disp=False: (func(A), an estimate of its relative error). Raises ValueError for what is no square matrix.
    """
    a = matrices("funm", A, square=True)
    if a.ndim != 2:
        raise ValueError(f"expected square array_like input, got {a.aval}")
    t, z = linalg.schur(a.astype(jnp.promote_types(a.dtype, dtypes.complex64)))
    n, eigenvalues = a.shape[0], jnp.diagonal(t)
    row, column = jnp.arange(n)[:, None], jnp.arange(n)[None]
    gaps = eigenvalues[:, None] - eigenvalues[None]
    least = jnp.min(jnp.where(column > row, jnp.abs(gaps), jnp.inf), initial=jnp.inf)
    safe = jnp.where(gaps == 0, dtypes.finfo(t.dtype).eps, gaps)

    def step(f, d):
        """f t = t f on superdiagonal d gives its entries by those before."""
        rest = product(f, t) - product(t, f)
        return jnp.where(column - row == d, rest / safe, f), None
    values = jnp.asarray(func(eigenvalues)).astype(t.dtype)
    f = lax.scan(step, jnp.diag(values), jnp.arange(1, n))[0]
    out = product(product(z, f), adjoint(z))
    if disp:
        return out
    eps = float(dtypes.finfo(t.dtype).eps)
    error = jnp.minimum(1, jnp.maximum(eps, eps / least * jnp.linalg.norm(jnp.triu(t, 1), 1)))
    return out, jnp.where(jnp.all(jnp.isfinite(f)), jnp.where(least == 0, jnp.inf, error), jnp.inf)
