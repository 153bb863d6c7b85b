"""Cumulative operations: every entry is combined with all before it along a dimension.

The derivative of each is a linear recurrence oᵢ = aᵢ oᵢ₋₁ + bᵢ, a primitive of its own whose derivative and transpose are
linear recurrences again.
"""
from __future__ import annotations

import operator
from typing import Callable

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.linear import Accumulator, Zero, zero_like
from mini_jax.core.primitive import Primitive
from mini_jax.core.trace import typeof
from mini_jax.lax import elementwise as ew
from mini_jax.lax.gather import batched_at
from mini_jax.lax.rows import COMPLEX, FLOATS, NUMBERS, dtype_list
from mini_jax.lax.selection import select
from mini_jax.lax.shapes import add_any, linear_in_first
from mini_jax.lax.slicing import pad

__all__ = ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "cumsum_p", "cumprod_p", "cummax_p", "cummin_p",
           "cumlogsumexp_p"]


def _cumulative(name: str, accepts: frozenset) -> Primitive:
    primitive = Primitive(name, facts={"family": "reductions", "dtypes": accepts})

    def type_rule(x, *, axis, reverse):
        if x.dtype not in accepts:
            raise TypeError(f"lax.{name}({x}): dtype {x.dtype} is not accepted; it takes {dtype_list(accepts)}")
        if axis < 0:
            raise ValueError(f"lax.{name}({x}): axis {axis} is negative; lax takes 0 to {x.ndim - 1} (mini_jax.numpy counts from the end)")
        if axis >= x.ndim:
            raise ValueError(f"lax.{name}({x}): axis {axis} is out of bounds for an array of shape {x.shape}")
        return x

    def batch(_, args, dims, *, axis, reverse):
        return primitive.bind(*args, axis=axis + (dims[0] <= axis), reverse=reverse), dims[0]

    primitive.type_rule, primitive.batch = type_rule, batch
    return primitive


cumsum_p = _cumulative("cumsum", NUMBERS)
cumprod_p = _cumulative("cumprod", NUMBERS)
cummax_p = _cumulative("cummax", NUMBERS)
cummin_p = _cumulative("cummin", NUMBERS)
cumlogsumexp_p = _cumulative("cumlogsumexp", FLOATS | COMPLEX)


def cumsum(operand, axis: int = 0, reverse: bool = False):
    """yᵢ = x₀ + … + xᵢ along `axis`; with `reverse`, yᵢ = xᵢ + … + xₙ₋₁.

    operand: numbers; floats are added in higher precision and rounded at each entry, integers wrap. Returns an array of its
    type. Raises TypeError for booleans, ValueError for an axis not in [0, ndim).
    """
    return cumsum_p.bind(operand, axis=operator.index(axis), reverse=bool(reverse))


def cumprod(operand, axis: int = 0, reverse: bool = False):
    """yᵢ = x₀ · … · xᵢ along `axis`; with `reverse`, yᵢ = xᵢ · … · xₙ₋₁.

    operand: numbers; integers wrap. Returns an array of its type. Raises TypeError for booleans, ValueError for an axis not
    in [0, ndim).
    """
    return cumprod_p.bind(operand, axis=operator.index(axis), reverse=bool(reverse))


def cummax(operand, axis: int = 0, reverse: bool = False):
    """yᵢ = max(x₀, …, xᵢ) along `axis`, NaN from the first NaN on; with `reverse`, max(xᵢ, …, xₙ₋₁).

    operand: numbers, complex ones in lexicographic order. Returns an array of its type. Raises TypeError for booleans,
    ValueError for an axis not in [0, ndim).
    """
    return cummax_p.bind(operand, axis=operator.index(axis), reverse=bool(reverse))


def cummin(operand, axis: int = 0, reverse: bool = False):
    """yᵢ = min(x₀, …, xᵢ) along `axis`, NaN from the first NaN on; with `reverse`, min(xᵢ, …, xₙ₋₁).

    operand: numbers, complex ones in lexicographic order. Returns an array of its type. Raises TypeError for booleans,
    ValueError for an axis not in [0, ndim).
    """
    return cummin_p.bind(operand, axis=operator.index(axis), reverse=bool(reverse))


def cumlogsumexp(operand, axis: int = 0, reverse: bool = False):
    """yᵢ = log(exp x₀ + … + exp xᵢ) along `axis`, without overflow; with `reverse`, the same from the end.

    operand: floating or complex numbers. Returns an array of its type. Raises TypeError for other dtypes, ValueError for an
    axis not in [0, ndim).
    """
    return cumlogsumexp_p.bind(operand, axis=operator.index(axis), reverse=bool(reverse))


def shifted(x, axis: int, reverse: bool, fill):
    """The entries that stand before (with `reverse`, after) each one along `axis`; `fill` where there is none."""
    t = typeof(x)
    config = [(0, 0, 0)] * t.ndim
    config[axis] = (-1, 1, 0) if reverse else (1, -1, 0)
    return pad(x, np.asarray(fill, t.dtype), config) if t.shape[axis] else x


def shifted_products(x, axis: int, reverse: bool):
    """The product of all entries before (with `reverse`, after) each one along `axis`."""
    return cumprod(shifted(x, axis, reverse, 1), axis, reverse)


# --- the linear recurrence -------------------------------------------------------------------------------------------------

recurrence_p = Primitive("linear_recurrence", facts={"family": "reductions", "dtypes": FLOATS | COMPLEX})


def recurrence(a, b, axis: int, reverse: bool):
    """The solution of oᵢ = aᵢ oᵢ₋₁ + bᵢ along `axis`, with o₋₁ = 0; with `reverse`, of oᵢ = aᵢ oᵢ₊₁ + bᵢ."""
    return recurrence_p.bind(a, b, axis=axis, reverse=reverse)


def _recurrence_type(a, b, *, axis, reverse):
    if a.shape != b.shape or a.dtype != b.dtype or a.dtype not in FLOATS | COMPLEX or not 0 <= axis < a.ndim:
        raise TypeError(f"linear_recurrence({a}, {b}, axis={axis}) takes two arrays of one floating or complex type and a dimension of them")
    return b


def _recurrence_jvp(primals, tangents, *, axis, reverse):
    """doᵢ = aᵢ doᵢ₋₁ + (daᵢ oᵢ₋₁ + dbᵢ)."""
    (a, b), (da, db) = primals, tangents
    o = recurrence(a, b, axis, reverse)
    drive = None if type(da) is Zero else ew.mul(da, shifted(o, axis, reverse, 0))
    if type(db) is not Zero:
        drive = db if drive is None else add_any(drive, db)
    return o, zero_like(o) if drive is None else recurrence(a, drive, axis, reverse)


def _recurrence_transpose(ct, a, b, *, axis, reverse):
    """The cotangent of b solves the recurrence from the other end: cᵢ = aᵢ₊₁ cᵢ₊₁ + ctᵢ."""
    if isinstance(b, Accumulator) and b.wanted:
        b.add(recurrence(shifted(a, axis, not reverse, 0), ct, axis, not reverse))


def _recurrence_batch(batch_axis, args, dims, *, axis, reverse):
    d = next(d for d in dims if d is not None)
    a, b = [batched_at(batch_axis, x, have, d) for x, have in zip(args, dims)]
    return recurrence(a, b, axis + (d <= axis), reverse), d


recurrence_p.type_rule, recurrence_p.jvp, recurrence_p.transpose, recurrence_p.batch = (
    _recurrence_type, _recurrence_jvp, _recurrence_transpose, _recurrence_batch)


# --- derivatives ------------------------------------------------------------------------------------------------------------
# Each from yᵢ = yᵢ₋₁ ∘ xᵢ by the derivative of ∘: the coefficients of dyᵢ₋₁ and of dxᵢ, given x, y and yᵢ₋₁.

def _derivative(primitive: Primitive, first, coefficients: Callable) -> None:
    """first: what yᵢ₋₁ is at the first entry, where the coefficient of dxᵢ must come out as 1 and the other does not count."""
    def rule(primals, tangents, *, axis, reverse):
        (x,), (t,) = primals, tangents
        y = primitive.bind(x, axis=axis, reverse=reverse)
        if type(t) is Zero:
            return y, zero_like(y)
        of_before, of_entry = coefficients(x, y, shifted(y, axis, reverse, first))
        return y, recurrence(of_before, ew.mul(of_entry, t), axis, reverse)
    primitive.jvp = rule


def _share(x, other, wins: Callable):
    """1 where x is the extremum of the two, ½ where both are, else 0."""
    dtype = typeof(x).dtype
    return select(wins(x, other), dtype.type(1), select(ew.eq(x, other), dtype.type(0.5), dtype.type(0)))


def _before(x, y):
    """x < y; of complex numbers, lexicographically."""
    if not dtypes.is_complex(typeof(x).dtype):
        return ew.lt(x, y)
    a, b = ew.real(x), ew.real(y)
    return ew.bitwise_or(ew.lt(a, b), ew.bitwise_and(ew.eq(a, b), ew.lt(ew.imag(x), ew.imag(y))))


def _after(x, y):
    return _before(y, x)


def _extremum(wins: Callable) -> Callable:
    def coefficients(x, y, before):
        share = _share(before, x, wins)
        return share, ew.sub(1, share)
    return coefficients


def _weight(x, y):
    """exp(x - y), the share of exp x in the sum exp y; 1 where x = y, infinite or not."""
    return select(ew.eq(x, y), 1.0, ew.exp(ew.sub(x, y)))


cumsum_p.transpose = lambda ct, x, *, axis, reverse: x.add(cumsum(ct, axis, not reverse))
linear_in_first(cumsum_p)
_derivative(cumprod_p, 1, lambda x, y, before: (x, before))
_derivative(cummax_p, np.nan, _extremum(_after))
_derivative(cummin_p, np.nan, _extremum(_before))
_derivative(cumlogsumexp_p, -np.inf, lambda x, y, before: (_weight(before, y), _weight(x, y)))
