"""Error functions and the normal distribution: real and complex, scaled, inverse; Dawson's, Fresnel's and Owen's integrals.

All but erf, erfc and erfinv rest on one approximation of w(z) = exp(-z²) erfc(-iz) for Im z ≥ 0 by a polynomial in (L + iz)/(L - iz).
(Weideman 1994, Computation of the complex error function)
"""
from __future__ import annotations

import functools
import math

import numpy as np

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.scipy.elementwise import derivatives, elementwise, steps

__all__ = ["erf", "erfc", "erfinv", "erfcx", "wofz", "dawsn", "fresnel", "ndtr", "ndtri", "log_ndtr", "owens_t"]

_ROOT_PI = math.sqrt(math.pi)


@elementwise
def erf(x):
    """2/√π ∫₀ˣ exp(-t²) dt."""
    return lax.erf(x)


@elementwise
def erfc(x):
    """1 - erf x, accurate for large x."""
    return lax.erfc(x)


@elementwise
def erfinv(x):
    """The number whose erf is x; ±∞ at ±1, NaN beyond."""
    return lax.erf_inv(x)


# --- w(z) ------------------------------------------------------------------------------------------------------------------------------

@functools.lru_cache(None)
def _weideman(n: int) -> tuple[float, tuple[float, ...]]:
    """(L, coefficients, highest power first) of the polynomial p with w(z) ≈ 2 p((L + iz)/(L - iz)) / (L - iz)² + 1/√π(L - iz)."""
    m = 2 * n
    scale = math.sqrt(n / math.sqrt(2))
    t = scale * np.tan(np.arange(1 - m, m) * np.pi / (2 * m))
    values = np.concatenate([[0.0], np.exp(-t ** 2) * (scale ** 2 + t ** 2)])
    coefficients = np.fft.fft(np.fft.fftshift(values)).real / (2 * m)
    return scale, tuple(coefficients[n:0:-1].tolist())


def _faddeeva(minus_iz):
    """w(z), given -iz with a real part ≥ 0."""
    scale, coefficients = _weideman(steps(minus_iz, 24, 56))
    inverse = 1 / (scale + minus_iz)
    point, p = (scale - minus_iz) * inverse, jnp.zeros_like(minus_iz)
    for c in coefficients:
        p = p * point + c
    return (2 * p * inverse + 1 / _ROOT_PI) * inverse


@derivatives(lambda y, z: 2j / _ROOT_PI - 2 * z * y)
def _wofz(z):
    below = jnp.imag(z) < 0
    up = jnp.where(below, -z, z)
    w = _faddeeva(-1j * up)
    return jnp.where(below, 2 * jnp.exp(-jnp.where(below, z, 0) ** 2) - w, w)


def wofz(z):
    """w(z) = exp(-z²) erfc(-iz), the Faddeeva function; complex."""
    return _of_complex(z)


@functools.partial(elementwise, complex_too=True)
def _of_complex(z):
    return _wofz(z if dtypes.is_complex(z.dtype) else lax.complex(*[x.astype(_part(z)) for x in (z, jnp.zeros_like(z))]))


def _part(x):
    return dtypes.float64 if x.dtype == dtypes.float64 else dtypes.float32


# --- real relatives of w ---------------------------------------------------------------------------------------------------------------

@derivatives(lambda y, x: _scaled_erfc_slope(y, x))
def scaled_erfc(x):
    """exp(x²) erfc x = w(ix); for negative x 2 exp(x²) less that of -x."""
    size = jnp.abs(x)
    right = _faddeeva(jnp.where(jnp.isinf(size), 1, size))
    right = jnp.where(jnp.isinf(size), 0, right)
    return jnp.where(x < 0, 2 * jnp.exp(jnp.where(x < 0, x, 0) ** 2) - right, right)


def _scaled_erfc_slope(y, x):
    """2xy - 2/√π, which cancels for large x: there by its asymptotic series."""
    large = x > steps(x, 20, 50)
    inverse = 1 / jnp.where(large, x, 1) ** 2
    far = -inverse / _ROOT_PI * (1 - 1.5 * inverse * (1 - 2.5 * inverse))
    return jnp.where(large, far, 2 * jnp.where(large, 0, x) * jnp.where(large, 0, y) - 2 / _ROOT_PI)


@elementwise(widen=True)
def erfcx(x):
    """exp(x²) erfc x, which neither over- nor underflows for large x."""
    return scaled_erfc(x)


@derivatives(lambda y, x: _dawson_slope(y, x))
def _dawson(x):
    small = jnp.abs(x) < 0.5
    inner, outer = jnp.where(small, x, 0), jnp.where(small | jnp.isinf(x), 1, x)
    square, series = inner * inner, jnp.ones_like(x)
    for k in range(steps(x, 6, 12), 0, -1):
        series = 1 - 2 * square / (2 * k + 1) * series
    wide = lax.complex(jnp.zeros_like(outer), -outer)
    return jnp.where(small, inner * series, jnp.where(jnp.isinf(x), 0 / x, _ROOT_PI / 2 * jnp.imag(_faddeeva(wide))))


def _dawson_slope(y, x):
    """1 - 2xy, which cancels for large x: there by its asymptotic series."""
    large = jnp.abs(x) > steps(x, 20, 50)
    inverse = 1 / jnp.where(large, x, 1) ** 2
    return jnp.where(large, -inverse / 2 * (1 + 1.5 * inverse * (1 + 2.5 * inverse)), 1 - 2 * jnp.where(large, 0, x) * jnp.where(large, 0, y))


@elementwise(widen=True)
def dawsn(x):
    """Dawson's integral, exp(-x²) ∫₀ˣ exp(t²) dt."""
    return _dawson(x)


# --- Fresnel's integrals ---------------------------------------------------------------------------------------------------------------

def _fresnel_pair(x):
    """A power series for small x; else C + iS = (1 + i)/2 - (1 + i)/2 exp(iπx²/2) w(√π/2 (1 + i) x)."""
    size = jnp.abs(x)
    small = size < 1.6
    inner = jnp.where(small, size, 0)
    t2 = (math.pi / 2 * inner * inner) ** 2
    s, c, term = jnp.zeros_like(x), jnp.zeros_like(x), jnp.ones_like(x)
    for k in range(steps(x, 12, 20)):
        c = c + term / (4 * k + 1)
        s = s + term / ((2 * k + 1) * (4 * k + 3))
        term = term * -t2 / ((2 * k + 1) * (2 * k + 2))
    c, s = c * inner, s * (math.pi / 2) * inner ** 3
    outer = jnp.where(small | jnp.isinf(size), 2, size)
    w = _faddeeva(lax.complex(_ROOT_PI / 2 * outer, -_ROOT_PI / 2 * outer))
    phase = math.pi / 2 * jnp.remainder(outer * outer, 4)
    spiral = (0.5 + 0.5j) * (1 - lax.complex(jnp.cos(phase), jnp.sin(phase)) * w)
    beyond = jnp.where(jnp.isinf(size), 0.5, math.nan)
    choose = lambda near, far: jnp.sign(x) * jnp.where(small, near, jnp.where(jnp.isfinite(size), far, beyond))
    return choose(s, jnp.imag(spiral)), choose(c, jnp.real(spiral))


@derivatives(lambda y, x: jnp.sin(math.pi / 2 * jnp.remainder(x * x, 4)))
def _fresnel_s(x):
    return _fresnel_pair(x)[0]


@derivatives(lambda y, x: jnp.cos(math.pi / 2 * jnp.remainder(x * x, 4)))
def _fresnel_c(x):
    return _fresnel_pair(x)[1]


@elementwise(widen=True)
def fresnel(x):
    """(S, C): ∫₀ˣ sin(πt²/2) dt and ∫₀ˣ cos(πt²/2) dt."""
    return _fresnel_s(x), _fresnel_c(x)


# --- the normal distribution -----------------------------------------------------------------------------------------------------------

def normal_cdf(x):
    """Φ(x) = erfc(-x/√2)/2."""
    return 0.5 * lax.erfc(-x * math.sqrt(0.5))


@derivatives(lambda y, x: jnp.where(x > 0, 2 / _ROOT_PI * math.sqrt(0.5) * jnp.exp(-jnp.where(x > 0, x, 0) ** 2 / 2 - jnp.where(x > 0, y, 0)) / 2,
                                    math.sqrt(2 / math.pi) / scaled_erfc(-jnp.where(x > 0, 0, x) * math.sqrt(0.5))))
def log_normal_cdf(x):
    """log Φ(x): for x < ½ by exp(x²) erfc x, above by log(1 - Φ(-x))."""
    left = x < 0.5
    low = jnp.where(left, x, -1) * math.sqrt(0.5)
    tail = jnp.where(jnp.isinf(x), -math.inf, jnp.log(scaled_erfc(-jnp.where(jnp.isinf(low), -1, low)) / 2) - low * low)
    return jnp.where(left, tail, jnp.log1p(-normal_cdf(-jnp.where(left, 1, x))))


@derivatives(lambda y, p: math.sqrt(2 * math.pi) * jnp.exp(y * y / 2))
def normal_quantile(p):
    """Φ⁻¹(p): by erf⁻¹ in the middle; in the tails two steps of Newton's method for log Φ(x) = log p, from a rational start.
    (Abramowitz & Stegun 26.2.23)"""
    tail = jnp.minimum(p, 1 - p)
    middle = tail > 0.05
    log_tail = jnp.log(jnp.where(middle | (tail <= 0), 0.01, tail))
    t = jnp.sqrt(-2 * log_tail)
    x = (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) - t
    for _ in range(steps(p, 1, 2)):
        ratio = scaled_erfc(-x * math.sqrt(0.5))
        x = x - (jnp.log(ratio / 2) - x * x / 2 - log_tail) * ratio * math.sqrt(math.pi / 2)
    x = jnp.where(tail == 0, -math.inf, x) * jnp.where(p > 0.5, -1, 1)
    central = math.sqrt(2) * lax.erf_inv(2 * jnp.where(middle, p, 0.5) - 1)
    return jnp.where(middle, central, jnp.where(tail >= 0, x, math.nan))


@elementwise
def ndtr(x):
    """Φ(x) = (1 + erf(x/√2)) / 2, the distribution function of a standard normal number."""
    return normal_cdf(x)


@elementwise(widen=True)
def ndtri(p):
    """Φ⁻¹(p), the inverse of `ndtr`: ∓∞ at 0 and 1, NaN outside."""
    return normal_quantile(p)


@elementwise(widen=True)
def _log_ndtr(x):
    return log_normal_cdf(x)


def log_ndtr(x, series_order: int = 3):
    """log Φ(x), accurate in both tails. series_order is accepted and of no effect: no asymptotic series is cut off."""
    return _log_ndtr(x)


# --- Owen's T --------------------------------------------------------------------------------------------------------------------------

@derivatives(lambda y, h, a: -jnp.exp(-h * h / 2) / math.sqrt(2 * math.pi) * lax.erf(a * h * math.sqrt(0.5)) / 2,
             lambda y, h, a: jnp.exp(-h * h * (1 + a * a) / 2) / (2 * math.pi * (1 + a * a)))
def _owens_t(h, a):
    """Gauss's quadrature over [0, min(|a|, 1, 9/h)]; for |a| > 1, T(h, a) + T(ah, 1/a) = ¼ - ¼ erf(h/√2) erf(ah/√2)."""
    height, size = jnp.abs(h), jnp.abs(a)
    beyond = size > 1
    slope = jnp.where(beyond, 1 / jnp.where(beyond, size, 1), size)
    level = jnp.where(beyond & (height > 0), size * height, height)
    end = jnp.minimum(slope, 9 / jnp.maximum(level, 1))
    total = jnp.zeros_like(end)
    for node, weight in zip(*np.polynomial.legendre.leggauss(steps(end, 12, 30))):
        square = 1 + (end * float(0.5 + node / 2)) ** 2
        total = total + float(weight / 2) * jnp.exp(-level * level * square / 2) / square
    inside = total * end / (2 * math.pi)
    complement = 0.25 * (1 - lax.erf(height * math.sqrt(0.5)) * lax.erf(level * math.sqrt(0.5)))
    return jnp.sign(a) * jnp.where(beyond, complement - inside, inside)


@elementwise(widen=True)
def owens_t(h, a):
    """1/2π ∫₀ᵃ exp(-h²(1 + x²)/2) / (1 + x²) dx: the probability that X > h and 0 < Y < aX for standard normal X, Y."""
    return _owens_t(h, a)
