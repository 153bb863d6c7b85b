"""The gamma function and its family: logarithm, derivatives, ratios; beta functions; incomplete ones; factorials and binomial coefficients.

Definitions: dlmf.nist.gov, chapters 5, 8, 24 and 25.
"""
from __future__ import annotations

import functools
import math
import operator
from fractions import Fraction

import numpy as np

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.numpy.promotion import arraylike
from mini_jax.scipy.elementwise import derivatives, elementwise, steps

__all__ = ["gammaln", "loggamma", "gammasgn", "gamma", "digamma", "polygamma", "zeta", "gammainc", "gammaincc", "beta", "betaln", "betainc",
           "multigammaln", "poch", "factorial", "comb", "bernoulli"]


# --- the gamma function ----------------------------------------------------------------------------------------------------------------

@elementwise
def gammaln(x):
    """log |Γ(x)|; ∞ at 0 and the negative integers."""
    return lax.lgamma(x)


def _stirling(z):
    """log Γ(z) for Re z ≥ 0, by its asymptotic series at z + 10."""
    shifted, product = z, jnp.zeros_like(z)
    for k in range(10):
        product = product + jnp.log(z + k)
    shifted = z + 10
    inverse = 1 / shifted
    square, series = inverse * inverse, jnp.zeros_like(z)
    for n in range(9, 0, -1):
        series = series * square + float(_bernoulli_number(2 * n) / (2 * n * (2 * n - 1)))
    return (shifted - 0.5) * jnp.log(shifted) - shifted + 0.5 * math.log(2 * math.pi) + series * inverse - product


@derivatives(lambda _, z: _complex_digamma(z))
def _complex_loggamma(z):
    """Left of the imaginary axis by log Γ(z) = log π - log sin πz - log Γ(1 - z), log sin πz continuous in the upper half-plane."""
    below, left = jnp.imag(z) < 0, jnp.real(z) < 0
    up = jnp.where(below, jnp.conj(z), z)
    right = _stirling(jnp.where(left, 1 - up, up))
    log_sine = jnp.log1p(-jnp.exp(2j * math.pi * jnp.where(left, up, 0.5))) + 1j * math.pi * (0.5 - up) - math.log(2)
    out = jnp.where(left, math.log(math.pi) - log_sine - right, right)
    return jnp.where(below, jnp.conj(out), out)


def _complex_digamma(z):
    """ψ(z) = ψ(z + 10) - Σ 1/(z + k), and left of the imaginary axis ψ(1 - z) - π cot πz."""
    left = jnp.real(z) < 0
    right = jnp.where(left, 1 - z, z)
    shifted = right + 10
    inverse = 1 / shifted
    square, series = inverse * inverse, jnp.zeros_like(z)
    for n in range(9, 0, -1):
        series = (series + float(_bernoulli_number(2 * n) / (2 * n))) * square
    out = jnp.log(shifted) - inverse / 2 - series - sum([1 / (right + k) for k in range(10)])
    return jnp.where(left, out - math.pi / jnp.tan(math.pi * jnp.where(left, z, 0.5)), out)


@elementwise(complex_too=True)
def loggamma(x):
    """The principal branch of log Γ(x), x real or complex; of real x < 0 NaN."""
    if dtypes.is_complex(x.dtype):
        return _complex_loggamma(x)
    return jnp.where(x < 0, math.nan, lax.lgamma(x))


def _gammasgn(x):
    floor = jnp.floor(x)
    pole = (x < 0) & ((x == floor) | jnp.isinf(x))
    sign = jnp.where(x == 0, jnp.where(jnp.signbit(x), -1, 1), jnp.where((x > 0) | (floor % 2 == 0), 1, -1))
    return jnp.where(jnp.isnan(x) | pole, math.nan, sign.astype(x.dtype))


@elementwise
def gammasgn(x):
    """The sign of Γ(x): that of x at ±0, NaN at the negative integers and -∞."""
    return _gammasgn(x)


@elementwise
def gamma(x):
    """Γ(x) = ∫₀^∞ t^(x-1) e⁻ᵗ dt, continued to negative x; ±∞ at ±0, NaN at the negative integers and -∞."""
    return _gammasgn(x) * jnp.exp(lax.lgamma(x))


@derivatives(lambda y, x: lax.polygamma(jnp.ones_like(x), x))
def _digamma(x):
    return jnp.where(x == 0, jnp.copysign(math.inf, -x), lax.digamma(x))


@elementwise
def digamma(x):
    """ψ(x) = Γ'(x) / Γ(x); ∓∞ at ±0, NaN at the negative integers."""
    return _digamma(x)


@elementwise
def _polygamma(n, x):
    return jnp.where(n == 0, lax.digamma(x), lax.polygamma(n, x))


def polygamma(n, x):
    """The n-th derivative of ψ at x > 0, n integers ≥ 0. ValueError where n is not of an integer dtype."""
    n, x = arraylike("polygamma", n, x)
    if not dtypes.is_integer(typeof(n).dtype):
        raise ValueError(f"polygamma: n must be of an integer dtype, got {typeof(n)}")
    return _polygamma(n, x)


@elementwise
def _zeta(x, q):
    return lax.zeta(x, q)


def zeta(x, q=None):
    """Σ (q + k)⁻ˣ over k = 0, 1, …, Hurwitz's zeta function, for x > 1; q is 1 unless given, Riemann's."""
    return _zeta(x, 1.0 if q is None else q)


# --- incomplete gamma functions ------------------------------------------------------------------------------------------------------

@elementwise
def gammainc(a, x):
    """P(a, x) = 1/Γ(a) ∫₀ˣ t^(a-1) e⁻ᵗ dt, for a, x ≥ 0, else NaN."""
    return lax.igamma(a, x)


@elementwise
def gammaincc(a, x):
    """Q(a, x) = 1 - P(a, x), accurate where it is small."""
    return lax.igammac(a, x)


# --- beta functions --------------------------------------------------------------------------------------------------------------------

def _stirling_rest(x):
    """log Γ(x) - ((x - ½) log x - x + ½ log 2π) for x ≥ 10: an asymptotic series."""
    square, series = 1 / (x * x), jnp.zeros_like(x)
    for n in range(8, 0, -1):
        series = series * square + float(_bernoulli_number(2 * n) / (2 * n * (2 * n - 1)))
    return series / x


def log_beta(a, b):
    """log |B(a, b)|. Where one operand is large the difference of log gammas cancels, so their asymptotic forms are subtracted term by term."""
    small, large = jnp.minimum(a, b), jnp.maximum(a, b)
    far = (large >= 10) & (small > 0) & jnp.isfinite(large)
    small_far, large_far = jnp.where(far, small, 1), jnp.where(far, large, 10)
    total = small_far + large_far
    both = far & (small >= 10)
    s = jnp.where(both, small, 10)
    ratio = jnp.where(both, s, 1) / jnp.where(both, large_far, 1)
    both_far = (0.5 * math.log(2 * math.pi) - 0.5 * jnp.log(large_far) + (s - 0.5) * jnp.log(s / (s + large_far))
                - large_far * jnp.log1p(ratio) + _stirling_rest(s) + _stirling_rest(large_far) - _stirling_rest(s + large_far))
    one_far = (lax.lgamma(small_far) + small_far - small_far * jnp.log(total) + (large_far - 0.5) * -jnp.log1p(small_far / large_far)
               + _stirling_rest(large_far) - _stirling_rest(total))
    near_small, near_large = jnp.where(far, 1, small), jnp.where(far, 1, large)
    near = lax.lgamma(near_small) + lax.lgamma(near_large) - lax.lgamma(near_small + near_large)
    out = jnp.where(both, both_far, jnp.where(far, one_far, near))
    out = jnp.where((small > 0) & jnp.isinf(large), -math.inf, out)
    return jnp.where(((a == 0) & ~jnp.isnan(b)) | ((b == 0) & ~jnp.isnan(a)), math.inf, out)


@elementwise(widen=True)
def betaln(a, b):
    """log |B(a, b)| = log |Γ(a) Γ(b) / Γ(a + b)|."""
    return log_beta(a, b)


@elementwise(widen=True)
def beta(a, b):
    """B(a, b) = Γ(a) Γ(b) / Γ(a + b)."""
    return _gammasgn(a) * _gammasgn(b) * _gammasgn(a + b) * jnp.exp(log_beta(a, b))


@elementwise
def betainc(a, b, x):
    """I(a, b, x) = 1/B(a, b) ∫₀ˣ t^(a-1) (1-t)^(b-1) dt, for a, b ≥ 0 and 0 ≤ x ≤ 1, else NaN; differentiable by x."""
    return lax.betainc(a, b, x)


# --- products --------------------------------------------------------------------------------------------------------------------------

def multigammaln(a, d):
    """log Γ_d(a) = d(d-1)/4 log π + Σ log Γ(a - j/2) over j = 0, …, d - 1: the gamma function of matrices of size d; a > (d - 1) / 2."""
    return _multigammaln(a, d=operator.index(d if isinstance(d, int) else np.asarray(d).item()))


@functools.partial(elementwise, static_argnames=("d",))
def _multigammaln(a, d):
    return d * (d - 1) / 4 * math.log(math.pi) + sum([lax.lgamma(a - j / 2) for j in range(d)])


@derivatives(lambda y, z, m: y * (_digamma(z + m) - _digamma(z)), lambda y, z, m: y * _digamma(z + m))
def _poch(z, m):
    """Where z and z + m are both poles, (-1)ᵐ (1 - z - m)ₘ; where z alone is one, 0."""
    pole = lambda x: (x <= 0) & (x == jnp.floor(x))
    both, vanishing = pole(z) & pole(z + m), pole(z) & ~pole(z + m)
    start = jnp.where(both, 1 - z - m, z)
    sign = jnp.where(both, jnp.where(m % 2 == 0, 1, -1), 1) * _gammasgn(start + m) * _gammasgn(start)
    ratio = sign * jnp.exp(lax.lgamma(start + m) - lax.lgamma(start))
    infinite = (pole(z + m) & ~pole(z)) | ((z == math.inf) & (m > 0))
    return jnp.where(m == 0, 1, jnp.where(vanishing, 0, jnp.where(infinite, math.inf, ratio)))


@elementwise
def poch(z, m):
    """(z)ₘ = Γ(z + m) / Γ(z), Pochhammer's symbol z (z + 1) … (z + m - 1)."""
    return _poch(z, m)


@elementwise
def _factorial(n):
    return jnp.where(n < 0, 0, jnp.exp(lax.lgamma(n + 1)))


def factorial(n, exact: bool = False):
    """n! = Γ(n + 1) as a floating number, 0 for negative n. exact=True raises NotImplementedError: arrays have no unlimited integers."""
    if exact:
        raise NotImplementedError("factorial: exact=True needs integers without limit; math.factorial has them")
    return _factorial(n)


@functools.partial(elementwise, widen=True, static_argnames=("repetition",))
def comb(N, k, *, repetition: bool = False):
    """N! / k! (N - k)!, the number of ways to choose k of N; with `repetition` the same may be chosen again. 0 unless 0 ≤ k ≤ N."""
    if repetition:
        N = jnp.where(k > 0, N + k - 1, jnp.where(k == 0, 1, N))
    inside = (k >= 0) & (N >= 0) & (k <= N) & jnp.isfinite(N)
    n, j = jnp.where(inside, N, 1), jnp.where(inside, k, 1)
    count = jnp.exp(-jnp.log1p(n) - log_beta(n - j + 1, j + 1))
    whole = (n == jnp.floor(n)) & (j == jnp.floor(j)) & (count < 2.0 ** steps(count, 20, 48))
    count = jnp.where(inside, jnp.where(whole, count + lax.stop_gradient(jnp.round(count) - count), count), 0)
    count = jnp.where(jnp.isinf(N) & (N > 0) & (k >= 0), jnp.where(k == 0, 1, math.inf), count)
    return jnp.where(jnp.isnan(N) | jnp.isnan(k), math.nan, count)


# --- Bernoulli numbers -----------------------------------------------------------------------------------------------------------------

@functools.lru_cache(None)
def _bernoulli_number(n: int) -> Fraction:
    """Bₙ by Σ C(n + 1, k) Bₖ = 0 over k = 0, …, n."""
    if n == 0:
        return Fraction(1)
    if n > 1 and n % 2:
        return Fraction(0)
    return -sum([math.comb(n + 1, k) * _bernoulli_number(k) for k in range(n)], Fraction(0)) / (n + 1)


def bernoulli(n: int):
    """The Bernoulli numbers B₀, …, Bₙ (B₁ = -½), an array of size n + 1. Raises ValueError for negative n."""
    n = operator.index(n)
    if n < 0:
        raise ValueError(f"bernoulli: n must not be negative, got {n}")
    def number(k):
        try:
            return float(_bernoulli_number(k))
        except OverflowError:
            return math.copysign(math.inf, _bernoulli_number(k))
    with np.errstate(over="ignore"):
        return jnp.asarray(np.array([number(k) for k in range(n + 1)]).astype(dtypes.default_float()))
