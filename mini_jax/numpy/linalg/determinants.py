"""Determinants."""
from __future__ import annotations

from typing import NamedTuple

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.core.types import AbstractValue
from mini_jax.lax import linalg
from mini_jax.lax.linalg.lu import solve as solve_by_lu
from mini_jax.lax.linalg.matrices import conjugate, diagonal, identity, product, rows_of, transposed
from mini_jax.numpy.linalg.decompositions import matrices
from mini_jax.runtime.dispatch import library
from mini_jax.transforms.custom_derivatives import custom_jvp

__all__ = ["det", "slogdet"]


class SlogdetResult(NamedTuple):
    """What `slogdet` returns."""
    sign: AbstractValue
    logabsdet: AbstractValue


def _factors(a):
    """(d, parity): the diagonals of u, and ±1 for an even or odd number of row exchanges; their product is the determinant."""
    factors, pivots, _ = linalg.lu(a)
    exchanged = lax.ne(pivots, lax.broadcasted_iota(dtypes.int32, pivots.shape, pivots.ndim - 1))
    count = lax.reduce_sum(lax.convert_element_type(exchanged, dtypes.int32), (pivots.ndim - 1,))
    return diagonal(factors), lax.convert_element_type(1 - 2 * lax.rem(count, 2), a.dtype)


# --- sign and logarithm ------------------------------------------------------------------------------------------------------------------

@custom_jvp
def _slogdet(a):
    d, parity = _factors(a)
    last = (d.ndim - 1,)
    return SlogdetResult(parity * lax.reduce_prod(lax.sign(d), last), lax.reduce_sum(lax.log(lax.abs(d)), last))


@_slogdet.defjvp
def _(primals, tangents):
    """d log det a = tr(a⁻¹ da): its real part moves the logarithm, its imaginary part the sign."""
    (a,), (da,) = primals, tangents
    sign, logarithm = _slogdet(a)
    change = lax.reduce_sum(diagonal(solve_by_lu(a, da)), (a.ndim - 2,))
    if not dtypes.is_complex(a.dtype):
        return SlogdetResult(sign, logarithm), SlogdetResult(lax.full_like(sign, 0), change)
    turn = lax.imag(change)
    return SlogdetResult(sign, logarithm), SlogdetResult(sign * lax.complex(lax.full_like(turn, 0), turn), lax.real(change))


@library(static_argnames=("method",))
def slogdet(a, *, method: str | None = None):
    """(sign, logabsdet) of the determinant of square matrices a (..., n, n): it is sign exp(logabsdet), which may exceed the range of floats.

    sign: ±1, 0 for singular a, of complex a a number of absolute value 1. method: "lu" or "qr", both of which mean LU here. Raises ValueError for
    matrices that are not square and another method, TypeError for dtypes of half precision.
    """
    if method not in (None, "lu", "qr"):
        raise ValueError(f"Unknown slogdet method '{method}'. Supported methods are 'lu' (`None`), and 'qr'.")
    return _slogdet(matrices("slogdet", a, square=True))


# --- determinants ------------------------------------------------------------------------------------------------------------------------

@custom_jvp
def _det(a):
    d, parity = _factors(a)
    return parity * lax.reduce_prod(d, (d.ndim - 1,))


def _cofactors(a):
    """The derivatives of det a by the entries of a: det(a) a⁻ᵀ, or where a is singular, by its singular values."""
    def regular(a):
        d = _det(a)
        scale = lax.broadcast_in_dim(d, a.shape, tuple(range(d.ndim)))
        return scale * transposed(solve_by_lu(a, identity(a.shape, a.dtype)))

    def singular(a):
        """a = u diag(s) vᴴ has the cofactors det(u) det(vᴴ) conj(u diag(p) vᴴ), where pᵢ is the product of all s but the i-th."""
        u, s, vh = linalg.svd(a)
        shape = (*s.shape, s.shape[-1])
        one = identity(shape, s.dtype)
        others = lax.reduce_prod(rows_of(s, shape) * (1 - one) + one, (s.ndim,))
        d = lax.broadcast_in_dim(_det(u) * _det(vh), a.shape, tuple(range(s.ndim - 1)))
        return d * conjugate(product(u * rows_of(lax.convert_element_type(others, a.dtype), u.shape), vh))
    found = _det(a)
    any_singular = lax.reduce_or(lax.eq(found, found.dtype.type(0)), tuple(range(found.ndim)))
    return lax.cond(any_singular, singular, regular, a)


@_det.defjvp
def _(primals, tangents):
    """d det a = Σ cofactor · da. (Jacobi)"""
    (a,), (da,) = primals, tangents
    return _det(a), lax.reduce_sum(_cofactors(a) * da, (a.ndim - 2, a.ndim - 1))


@library
def det(a):
    """The determinant of square matrices a (..., n, n), by LU decomposition, up to size 3 by its formula; differentiable also where a is singular.

    Raises ValueError for matrices that are not square, TypeError for dtypes of half precision.
    """
    a = matrices("det", a, square=True)
    n = a.shape[-1]
    if not 1 <= n <= 3:
        return _det(a)
    entry = lambda i, j: a[..., i, j]
    minor = lambda i, j: entry(1, i) * entry(2, j) - entry(1, j) * entry(2, i)
    if n == 1:
        return entry(0, 0)
    if n == 2:
        return entry(0, 0) * entry(1, 1) - entry(0, 1) * entry(1, 0)
    return entry(0, 0) * minor(1, 2) - entry(0, 1) * minor(0, 2) + entry(0, 2) * minor(0, 1)
