"""Krylov methods: systems A x = b solved by products with A alone. Derivatives are those of the solution, not of the steps to it."""
from __future__ import annotations

import operator
from typing import Callable

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.core.pytree import flatten, tree_map
from mini_jax.core.trace import typeof
from mini_jax.flatten_util import ravel_pytree
from mini_jax.numpy.promotion import as_array

__all__ = ["cg", "gmres", "bicgstab"]


def _dot(x, y):
    """Σ x̄ᵢ yᵢ in full precision."""
    return jnp.vdot(x, y, precision=lax.Precision.HIGHEST)


def _square(x):
    """|x|², real."""
    return jnp.real(_dot(x, x))


def _applied(A, name: str) -> Callable:
    """A linear function, or the matrix of one, as a function."""
    if callable(A):
        return A
    shape = getattr(A, "shape", None)
    if shape is None or len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"linear operator must be either a function or ndarray that is a square matrix: {name} is {A!r:.80}"
                         if shape is None else f"linear operator must be a square matrix, but {name} has shape {shape}")
    return lambda x: jnp.matmul(A, x, precision=lax.Precision.HIGHEST)


def _solve(method: Callable, symmetric: bool, A, b, x0, tol, atol, maxiter, M, **options):
    """Solve with vectors in place of pytrees, as a solution of linear equations."""
    A, M = _applied(A, "A"), (lambda x: x) if M is None else _applied(M, "M")
    b = tree_map(as_array, b)
    x0 = tree_map(jnp.zeros_like, b) if x0 is None else tree_map(as_array, x0)
    if flatten(b)[1] != flatten(x0)[1]:
        raise ValueError(f"x0 and b must have matching tree structure: {flatten(x0)[1]} vs {flatten(b)[1]}")
    for x, y in zip(flatten(x0)[0], flatten(b)[0]):
        if typeof(x).shape != typeof(y).shape:
            raise ValueError(f"arrays in x0 and b must have matching shapes: {typeof(x)} vs {typeof(y)}")
    inexact = lambda t: tree_map(lambda x: x.astype(dtypes.to_inexact(x.dtype)), t)
    flat_b, unravel = ravel_pytree(inexact(b))
    flat_x0 = ravel_pytree(inexact(x0))[0].astype(flat_b.dtype)
    flat = lambda f: lambda v: ravel_pytree(f(unravel(v)))[0].astype(flat_b.dtype)
    maxiter = 10 * flat_b.size if maxiter is None else maxiter
    precondition = flat(M)

    def solver(start):
        return lambda matvec, v: method(matvec, v, start, tol=tol, atol=atol, maxiter=maxiter, M=precondition, **options)
    x = lax.custom_linear_solve(flat(A), flat_b, solver(flat_x0), solver(jnp.zeros_like(flat_b)),
                                symmetric=symmetric and not dtypes.is_complex(flat_b.dtype))
    return unravel(x), None


def _stop_below(b, tol, atol):
    """The square of max(tol |b|, atol)."""
    return jnp.maximum(tol * tol * _square(b), jnp.asarray(atol, dtypes.to_real(b.dtype)) ** 2)


def cg(A, b, x0=None, *, tol=1e-5, atol=0.0, maxiter=None, M=None):
    """(x, None): the x with A x = b, for Hermitian positive definite A, by conjugate gradients. (Hestenes, Stiefel 1952)

    A: a linear function from pytrees like b to such, or a square matrix. M: an approximate inverse of A. x0: where to start, default 0. Stops
    at a residual of norm tol |b| or atol, or after maxiter steps (default ten times the size). Differentiable by b and by what A captures.
    Raises ValueError where structures or shapes don't fit.
    """
    return _solve(_cg, True, A, b, x0, tol, atol, maxiter, M)


def _cg(A, b, x0, *, tol, atol, maxiter, M):
    limit = _stop_below(b, tol, atol)
    r = b - A(x0)
    z = M(r)

    def unfinished(state):
        _, r, _, _, k = state
        return (_square(r) > limit) & (k < maxiter)

    def step(state):
        x, r, gamma, p, k = state
        ap = A(p)
        alpha = gamma / jnp.real(_dot(p, ap)).astype(b.dtype)
        x, r = x + alpha * p, r - alpha * ap
        z = M(r)
        after = _dot(r, z).astype(b.dtype)
        return x, r, after, z + after / gamma * p, k + 1
    return lax.while_loop(unfinished, step, (x0, r, _dot(r, z).astype(b.dtype), z, 0))[0]


def bicgstab(A, b, x0=None, *, tol=1e-5, atol=0.0, maxiter=None, M=None):
    """(x, None): the x with A x = b for any regular A, by stabilised biconjugate gradients; arguments as of `cg`. (van der Vorst 1992)"""
    return _solve(_bicgstab, False, A, b, x0, tol, atol, maxiter, M)


def _bicgstab(A, b, x0, *, tol, atol, maxiter, M):
    limit = _stop_below(b, tol, atol)
    r0 = b - A(x0)
    one = jnp.ones((), b.dtype)

    def unfinished(state):
        _, r, _, _, _, _, _, k = state
        return (_square(r) > limit) & (k < maxiter) & (k >= 0)

    def step(state):
        x, r, alpha, omega, rho, p, q, k = state
        rho_after = _dot(r0, r)
        p = r + rho_after / rho * alpha / omega * (p - omega * q)
        p_hat = M(p)
        q = A(p_hat)
        alpha = rho_after / _dot(r0, q)
        s = r - alpha * q
        early = _square(s) < limit
        s_hat = M(s)
        t = A(s_hat)
        omega = jnp.where(early, 0, _dot(t, s) / jnp.where(early, 1, _dot(t, t)))
        x = x + alpha * p_hat + omega * s_hat
        r = jnp.where(early, s, s - omega * t)
        broken = ((omega == 0) & ~early) | (alpha == 0)
        return x, r, alpha, jnp.where(early, one, omega), rho_after, p, q, jnp.where(broken, -1, k + 1)
    zero = jnp.zeros_like(b)
    return lax.while_loop(unfinished, step, (x0, r0, one, one, one, zero, zero, 0))[0]


def gmres(A, b, x0=None, *, tol=1e-5, atol=0.0, restart=20, maxiter=None, M=None, solve_method="batched"):
    """(x, None): the x with A x = b for any regular A: that of the least residual in Krylov spaces of dimension `restart`, one after the other.

    Other arguments as of `cg`; maxiter counts the spaces. solve_method: 'batched' or 'incremental', which are one here: the least squares problem
    of a space is solved when that is complete. Raises ValueError for another one. (Saad, Schultz 1986)
    """
    if solve_method not in ("batched", "incremental"):
        raise ValueError(f"invalid solve_method {solve_method}, must be either 'incremental' or 'batched'")
    return _solve(_gmres, False, A, b, x0, tol, atol, maxiter, M, restart=operator.index(restart))


def _gmres(A, b, x0, *, tol, atol, maxiter, M, restart):
    size = b.size
    restart = min(restart, size)
    norm = lambda x: jnp.sqrt(_square(x))
    b_norm = norm(b)
    wanted = jnp.maximum(tol * b_norm, atol)
    limit = norm(M(b)) * jnp.where(b_norm > 0, jnp.minimum(1, wanted / jnp.where(b_norm > 0, b_norm, 1)), 1)
    eps = float(dtypes.finfo(b.dtype).eps)

    def residual(x):
        r = M(b - A(x))
        return r, norm(r)

    def expand(carry, k):
        """Arnoldi's step: another vector of the orthonormal basis (rows), orthogonalised twice; zero where the space is exhausted."""
        basis, h = carry
        w = M(A(basis[k]))
        before = norm(w)
        overlap = jnp.zeros(restart + 1, b.dtype)
        for _ in range(2):
            along = jnp.matmul(jnp.conj(basis), w, precision=lax.Precision.HIGHEST)
            w = w - jnp.matmul(along, basis, precision=lax.Precision.HIGHEST)
            overlap = overlap + along
        length = norm(w)
        new = length > eps * before
        w = jnp.where(new, w / jnp.where(new, length, 1).astype(b.dtype), 0)
        column = overlap.at[k + 1].set(jnp.where(new, length, 0).astype(b.dtype))
        return (basis.at[k + 1].set(w), h.at[:, k].set(column)), None

    def unfinished(state):
        _, _, beta, k = state
        return (beta > limit) & (k < maxiter)

    def space(state):
        x, r, beta, k = state
        basis = jnp.zeros((restart + 1, size), b.dtype).at[0].set(r / beta.astype(b.dtype))
        (basis, h), _ = lax.scan(expand, (basis, jnp.zeros((restart + 1, restart), b.dtype)), jnp.arange(restart))
        y = jnp.linalg.lstsq(h, jnp.zeros(restart + 1, b.dtype).at[0].set(beta.astype(b.dtype)))[0]
        x = x + jnp.matmul(y, basis[:-1], precision=lax.Precision.HIGHEST)
        return x, *residual(x), k + 1
    return lax.while_loop(unfinished, space, (x0, *residual(x0), 0))[0]
