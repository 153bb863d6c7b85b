"""Exponential, logarithmic and trigonometric integrals: Eₙ, Ei, the dilogarithm, Si and Ci.

Near 0 by power series, far from it by continued fractions or asymptotic series. (dlmf.nist.gov, chapters 6, 8 and 25.12)
"""
from __future__ import annotations

import math

import numpy as np

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.numpy.promotion import arraylike
from mini_jax.scipy.elementwise import derivatives, elementwise, steps
from mini_jax.scipy.special.gamma import _bernoulli_number

__all__ = ["exp1", "expn", "expi", "spence", "sici"]


# --- exponential integrals ---------------------------------------------------------------------------------------------------------------

def _fraction(n, x, depth: int):
    """eˣ Eₙ(x) = 1/(x + n - 1·n/(x + n + 2 - 2(n + 1)/(x + n + 4 - …))), from the depth upwards."""
    def step(i, tail):
        k = jnp.asarray(depth - i, x.real.dtype)
        return k * (n + k - 1) / (x + n + 2 * k - tail)
    return 1 / (x + n - lax.fori_loop(0, depth, step, jnp.zeros_like(x + n)))


@derivatives(None, lambda y, n, x: -_expn(n - 1, x))
def _expn(n, x):
    """x ≤ 1: (-x)ⁿ⁻¹/(n-1)! (ψ(n) - log x) - Σ (-x)ᵏ/k!(k - n + 1) over k ≠ n - 1."""
    near = (x <= 1) & (n >= 1)
    order, small = jnp.where(near, n, 1), jnp.where(near & (x > 0), x, 0.5)
    series, term = jnp.zeros_like(small + order), jnp.ones_like(small)
    for k in range(steps(x, 12, 22)):
        at = order == k + 1
        series = series - jnp.where(at, 0, term / jnp.where(at, 1, k + 1 - order))
        term = term * -small / (k + 1)
    whole = jnp.exp((order - 1) * jnp.log(small) - lax.lgamma(order)) * jnp.where(order % 2 == 1, 1, -1)
    series = series + whole * (lax.digamma(order) - jnp.log(small))
    big = jnp.where(near | (x <= 0), 2, x)
    fraction = jnp.exp(-big) * _fraction(jnp.where(near | (n < 1), 1, n), big, steps(x, 30, 90))
    out = jnp.where(near, series, jnp.where(jnp.isinf(x), 0, fraction))
    at_zero = jnp.where(n > 1, 1 / jnp.where(n > 1, n - 1, 1), math.inf)
    out = jnp.where(n == 0, jnp.exp(-x) / x, out)
    out = jnp.where(x == 0, at_zero, out)
    below = jnp.where(n == -1, jnp.exp(-x) * (x + 1) / (x * x), math.nan)             # of use to the derivative of n = 0
    out = jnp.where(n < 0, below, out)
    return jnp.where((x < 0) | jnp.isnan(x) | jnp.isnan(n), math.nan, out)


@elementwise(widen=True)
def _real_expn(n, x):
    return _expn(n, x)


def expn(n, x):
    """Eₙ(x) = ∫₁^∞ e^(-xt)/tⁿ dt, for whole n ≥ 0 and x ≥ 0; NaN for negative x or n."""
    n, x = arraylike("expn", n, x)
    return _nonnegative(_real_expn(n, x), n)


@elementwise
def _nonnegative(y, n):
    return jnp.where(n < 0, math.nan, y)


@elementwise(widen=True)
def exp1(x):
    """E₁(x) = ∫₁^∞ e^(-xt)/t dt for x ≥ 0, else NaN; ∞ at 0."""
    return _expn(jnp.ones_like(x), x)


def _expi_series(x):
    """Ei for x > 0: γ + log x + Σ xᵏ/k·k!, and for large x eˣ/x Σ k!/xᵏ."""
    limit = steps(x, 18, 50)
    near = x < limit
    small, large = jnp.where(near, x, 1), jnp.where(near | jnp.isinf(x), limit, x)

    def add(k, carry):
        total, term = carry
        k = jnp.asarray(k, x.dtype)
        term = term * small / k
        return total + term / k, term
    series = lax.fori_loop(1, 3 * limit, add, (jnp.zeros_like(x), jnp.ones_like(x)))[0]
    inverse, asymptotic = 1 / large, jnp.ones_like(x)
    for k in range(limit - 2, 0, -1):
        asymptotic = 1 + k * inverse * asymptotic
    far = jnp.where(jnp.isinf(x), math.inf, jnp.exp(large) * inverse * asymptotic)
    return jnp.where(near, np.euler_gamma + jnp.log(small) + series, far)


@derivatives(lambda y, x: jnp.exp(x) / x)
def _expi(x):
    negative = _expn(jnp.ones_like(x), jnp.where(x < 0, -x, 1))
    positive = _expi_series(jnp.where(x > 0, x, 1))
    return jnp.where(x < 0, -negative, jnp.where(x == 0, -math.inf, jnp.where(jnp.isnan(x), math.nan, positive)))


@elementwise(widen=True)
def expi(x):
    """Ei(x) = ∫_-∞ˣ eᵗ/t dt, the principal value; -∞ at 0."""
    return _expi(x)


# --- the dilogarithm ---------------------------------------------------------------------------------------------------------------------

def _dilogarithm(u):
    """Li₂(1 - e⁻ᵘ) = Σ Bₖ uᵏ⁺¹/(k + 1)! for |u| ≤ log 2."""
    square, series = u * u, jnp.zeros_like(u)
    for k in range(steps(u, 5, 10), 0, -1):
        series = series * square + float(_bernoulli_number(2 * k) / math.factorial(2 * k + 1))
    return u * (1 + square * series) - square / 4


def _log_ratio(x):
    """log(x) / (x - 1), by its series near 1."""
    u = x - 1
    near = jnp.abs(u) < 1e-3
    return jnp.where(near, 1 - u * (1 / 2 - u * (1 / 3 - u * (1 / 4 - u * (1 / 5 - u / 6)))), jnp.log(x) / jnp.where(near, 1, u))


@derivatives(lambda y, x: -_log_ratio(x))
def _spence(x):
    """S(x) = Li₂(1 - x): S(x) + S(1/x) = -log² x / 2, and S(x) + S(1 - x) = π²/6 - log x log(1 - x)."""
    inverted = x > 2
    y = jnp.where(inverted, 1 / jnp.where(inverted, x, 1), x)
    reflected = y < 0.5
    z = jnp.where(reflected, 1 - y, y)
    u = -jnp.where(reflected, jnp.log1p(-jnp.where(reflected, y, 0)), jnp.log(jnp.where(reflected, 1, z)))
    out = _dilogarithm(u)
    log_y = jnp.where(y == 0, 0, jnp.log(jnp.where(y == 0, 1, y)))
    out = jnp.where(reflected, math.pi ** 2 / 6 + log_y * u - out, out)
    out = jnp.where(inverted, -out - jnp.log(jnp.where(inverted, x, 1)) ** 2 / 2, out)
    return jnp.where(x < 0, math.nan, out)


@elementwise(widen=True)
def spence(x):
    """Spence's function -∫₁ˣ log(t)/(t - 1) dt = Li₂(1 - x), for x ≥ 0, else NaN."""
    return _spence(x)


# --- trigonometric integrals -------------------------------------------------------------------------------------------------------------

def _trigonometric(x):
    """(Si, Ci) of |x|: power series up to 4, then E₁(ix) = -Ci(x) + i (Si(x) - π/2)."""
    near = x < 4
    small, large = jnp.where(near & (x > 0), x, 1), jnp.where(near | jnp.isinf(x), 4, x)
    si, ci, term = jnp.zeros_like(x), jnp.zeros_like(x), small
    for k in range(1, steps(x, 20, 34)):
        if k % 2:
            si = si + term / k
        else:
            ci = ci + term / k
        term = term * small / (k + 1) * (-1 if k % 2 else 1)
    ci = np.euler_gamma + jnp.log(small) + ci
    z = lax.complex(jnp.zeros_like(large), large)
    e1 = jnp.exp(-z) * _fraction(jnp.ones_like(z), z, steps(x, 30, 90))
    far_si, far_ci = jnp.imag(e1) + math.pi / 2, -jnp.real(e1)
    si = jnp.where(near, jnp.where(x > 0, si, 0), jnp.where(jnp.isinf(x), math.pi / 2, far_si))
    ci = jnp.where(near, jnp.where(x > 0, ci, -math.inf), jnp.where(jnp.isinf(x), 0, far_ci))
    return jnp.where(jnp.isnan(x), math.nan, si), jnp.where(jnp.isnan(x), math.nan, ci)


@derivatives(lambda y, x: jnp.sinc(x / math.pi))
def _si(x):
    return jnp.sign(x) * _trigonometric(jnp.abs(x))[0]


@derivatives(lambda y, x: jnp.cos(x) / x)
def _ci(x):
    return jnp.where((x < 0) & jnp.isinf(x), math.nan, _trigonometric(jnp.abs(x))[1])


@elementwise(widen=True)
def sici(x):
    """(Si, Ci): ∫₀ˣ sin(t)/t dt and γ + log |x| + ∫₀ˣ (cos(t) - 1)/t dt."""
    return _si(x), _ci(x)
