"""Hypergeometric functions ₁F₁ and ₂F₁ of real arguments: power series, after transformations that make them converge fast."""
from __future__ import annotations

import math

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.scipy.elementwise import derivatives, elementwise, slope, steps
from mini_jax.scipy.special.gamma import _gammasgn

__all__ = ["hyp1f1", "hyp2f1"]


def _sum(ratio, like, limit: int):
    """1 + Σ ratio(0) … ratio(k - 1) over k = 1, 2, …, until no term counts any more."""
    eps = float(dtypes.finfo(like.dtype).eps) / 4

    def unfinished(state):
        k, total, term = state
        return (k < limit) & jnp.any(jnp.abs(term) > eps * jnp.abs(total))

    def add(state):
        k, total, term = state
        term = term * ratio(jnp.asarray(k, like.dtype))
        return k + 1, total + term, term
    one = jnp.ones_like(like)
    return lax.while_loop(unfinished, add, (0, one, one))[1]


def _gamma_ratio(tops, bottoms):
    """Π Γ(top) / Π Γ(bottom); 0 where a bottom is a pole."""
    sign, logarithm = 1, 0
    for x in (*tops, *bottoms):
        sign = sign * _gammasgn(x)
    for x in tops:
        logarithm = logarithm + lax.lgamma(x)
    for x in bottoms:
        logarithm = logarithm - lax.lgamma(x)
    pole = False
    for x in bottoms:
        pole = pole | ((x <= 0) & (x == jnp.floor(x)))
    return jnp.where(pole, 0, jnp.where(pole, 1, sign) * jnp.exp(jnp.where(pole, 0, logarithm)))


# --- confluent ---------------------------------------------------------------------------------------------------------------------------

def _confluent(a, b, x):
    """x < 0: eˣ ₁F₁(b - a, b, -x). Large x: Γ(b)/Γ(a) eˣ xᵃ⁻ᵇ Σ (b - a)ₖ (1 - a)ₖ / k! xᵏ."""
    polynomial = (a <= 0) & (a == jnp.floor(a))
    negative = (x < 0) & ~polynomial
    top, z = jnp.where(negative, b - a, a), jnp.where(negative, -x, x)
    far = (z > steps(x, 40, 100)) & ~((top <= 0) & (top == jnp.floor(top)))
    near = jnp.where(far, 1, z)
    series = _sum(lambda k: (top + k) / (b + k) / (k + 1) * near, top + b + near, 500)
    large = jnp.where(far, z, 100)
    asymptotic = jnp.ones_like(top + b + large)
    term = asymptotic
    for k in range(20):
        term = term * (b - top + k) * (1 - top + k) / (k + 1) / large
        asymptotic = asymptotic + term
    sign, size = _gammasgn(b) * _gammasgn(top), lax.lgamma(b) - lax.lgamma(top) + (top - b) * jnp.log(large)
    shift = jnp.where(negative, x, 0)
    out = jnp.where(far, sign * asymptotic * jnp.exp(size + large + shift), jnp.exp(shift) * series)
    return jnp.where(jnp.isnan(a) | jnp.isnan(b) | jnp.isnan(x), math.nan, out)


@derivatives(slope(_confluent, 0), slope(_confluent, 1), lambda y, a, b, x: a / b * _hyp1f1(a + 1, b + 1, x))
def _hyp1f1(a, b, x):
    return _confluent(a, b, x)


@elementwise(widen=True)
def hyp1f1(a, b, x):
    """₁F₁(a; b; x) = Σ (a)ₖ xᵏ / (b)ₖ k!, Kummer's function."""
    return _hyp1f1(a, b, x)


# --- Gauss -------------------------------------------------------------------------------------------------------------------------------

def _series(a, b, c, x):
    return _sum(lambda k: (a + k) * (b + k) / (c + k) / (k + 1) * x, a + b + c + x, 20000)


def _around_one(a, b, c, x):
    """At 1 - x for ½ < x < 1; where c - a - b is whole the two parts have poles that cancel, so it is moved by a little."""
    d = c - a - b
    whole = d == jnp.round(d)
    c = c + jnp.where(whole, float(dtypes.finfo(x.dtype).eps) ** 0.5 / 4, 0)
    d = c - a - b
    first = _gamma_ratio((c, d), (c - a, c - b)) * _series(a, b, 1 - d, 1 - x)
    second = _gamma_ratio((c, -d), (a, b)) * (1 - x) ** d * _series(c - a, c - b, 1 + d, 1 - x)
    return first + second


def _gauss(a, b, c, x):
    """x < 0: (1 - x)⁻ᵃ ₂F₁(a, c - b; c; x/(x - 1)), which lies in [0, 1); up to 0.9 the series; above it around 1,
    unless c - a - b is whole, where that has poles that cancel: then only above 0.998."""
    negative = x < 0
    b, shift = jnp.where(negative, c - b, b), jnp.where(negative, (1 - jnp.where(negative, x, 0)) ** -a, 1)
    z = jnp.where(negative, x / (jnp.where(negative, x, 0) - 1), x)
    polynomial = ((a <= 0) & (a == jnp.floor(a))) | ((b <= 0) & (b == jnp.floor(b)))
    d = c - a - b
    near = (z <= jnp.where(d == jnp.round(d), 0.998, 0.9)) | polynomial
    at_one = jnp.where(d > 0, _gamma_ratio((c, jnp.where(d > 0, d, 1)), (c - a, c - b)), math.inf * _gammasgn(a) * _gammasgn(b) * _gammasgn(c))
    inner = jnp.where(near, z, 0.5)
    outer = jnp.where(near | (z >= 1), 0.999, z)
    out = jnp.where(near, _series(a, b, c, inner), jnp.where(z == 1, at_one, _around_one(a, b, c, outer)))
    out = jnp.where((z > 1) & ~polynomial, math.nan, shift * out)
    return jnp.where(jnp.isnan(a) | jnp.isnan(b) | jnp.isnan(c) | jnp.isnan(x), math.nan, out)


@derivatives(slope(_gauss, 0), slope(_gauss, 1), slope(_gauss, 2), lambda y, a, b, c, x: a * b / c * _hyp2f1(a + 1, b + 1, c + 1, x))
def _hyp2f1(a, b, c, x):
    return _gauss(a, b, c, x)


@elementwise(widen=True)
def hyp2f1(a, b, c, x):
    """₂F₁(a, b; c; x) = Σ (a)ₖ (b)ₖ xᵏ / (c)ₖ k!, for x ≤ 1, else NaN (but where it is a polynomial)."""
    return _hyp2f1(a, b, c, x)
