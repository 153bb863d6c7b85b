"""Incomplete gamma and beta functions, written as series, continued fractions and Temme's expansion.

Numbers in parentheses are equations of the NIST Digital Library of Mathematical Functions (dlmf.nist.gov); continued fractions
are evaluated by Lentz's method (Applied Optics 15, 1976). In what follows

    g = x^a e^-x / Γ(a),    P = g/a · S = 1 - Q,    Q = g · h,    S = Σₖ xᵏ / ((a+1)…(a+k)),    h a continued fraction

and names ending in `_dot` are derivatives by a, carried along term by term.
"""
from __future__ import annotations

import math
from typing import Callable, Sequence

import numpy as np

from lowering.emit import lowers
from lowering.rules.elementwise import compare
from mini_jax.core import dtypes
from mini_jax.core.types import array_type
from mini_jax.lax import elementwise as lax, special
from mini_jax.lax.selection import select

_STEPS = 10_000                 # a bound on every loop; what is left to loops converges much earlier


def computed_in(dtype):
    """The dtype in which special functions of narrow dtypes are computed."""
    return dtypes.float64 if dtype == dtypes.float64 else dtypes.float32


def written(e, eqn, operands, program: Callable) -> str:
    """Write program(e, aval, *operands) for operands of one floating type `aval`, wide enough and of the result's shape."""
    out = eqn.outvars[0].aval
    aval = array_type(out.shape, computed_in(out.dtype))
    wide = [e.convert(e.spread(x, v, out), v.aval.update(shape=out.shape), aval.dtype) for x, v in zip(operands, eqn.invars)]
    return e.convert(program(e, aval, *wide), aval, out.dtype)


def repeat(e, step: Callable, active: str, constants: Sequence[str], state: Sequence[str], aval) -> list[str]:
    """Repeat `active, *state = step(k, *constants, *state)` for k = 1, 2, … for the elements that are active, until none is.

    active: booleans of the shape of `aval`, the type of all others. Returns the last state. An element's result does not depend on
    other elements: it stays as it is from its own last step on.
    """
    number, mask, truth = array_type((), aval.dtype), aval.update(dtype=dtypes.bool_), array_type((), dtypes.bool_)
    types = [number, mask, *[aval] * (len(constants) + len(state))]

    def condition(inner, k, active, *_):
        if aval.shape:
            active = inner.emit(f"stablehlo.reduce({active} init: {inner.constant(False, truth)}) applies stablehlo.or "
                                f"across dimensions = {list(range(aval.ndim))} : ({mask.mlir}, {truth.mlir}) -> {truth.mlir}")
        below = compare(inner, "LT", k, inner.constant(_STEPS, number), number)
        return [(inner.emit(f"stablehlo.and {active}, {below} : {truth.mlir}"), truth.mlir)]

    def body(inner, k, active, *state):
        k = inner.emit(f"stablehlo.add {k}, {inner.constant(1, number)} : {number.mlir}")
        results = inner.via(advance, [number, *types[1:]], [k, active, *state])
        return [(name, t.mlir) for name, t in zip([k, *results], types)]

    def advance(k, active, *values):
        fixed, state = values[:len(constants)], values[len(constants):]
        more, *new = step(k, *values)
        return [active & more, *fixed, *[select(active, x, old) for x, old in zip(new, state)]]

    texts = [t.mlir for t in types]
    start, signature = ", ".join([e.constant(0, number), active, *constants, *state]), f"({', '.join(texts)})"
    text = f'"stablehlo.while"({start}) ({e.region(texts, condition)}, {e.region(texts, body)}) : {signature} -> {signature}'
    return e.emit_many(text, len(types))[2 + len(constants):]


def _polynomial(coefficients: Sequence[float], x):
    """Σ coefficients[k] xᵏ, by Horner's rule."""
    total = x * 0 + coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


# --- factors of the gamma function ------------------------------------------------------------------------------------

def _excess(x, mean):
    """u - log(1 + u) for u = x/mean - 1, to full precision also near u = 0, by log(1+u) = 2 artanh(u / (2+u)) there."""
    u = (x - mean) / mean
    s = u / (2 + u)
    near = s * (u - 2 * s * s * _polynomial([1 / (2 * k + 3) for k in range(12)], s * s))
    return select(lax.abs(u) < 0.3, near, u - lax.log(x / mean))


def _log_scaled_gamma(a):
    """log Γ*(a), Γ(a) = √(2π) a^(a-½) e^-a Γ*(a); for large a Stirling's series (5.11.1)."""
    r = 1 / a
    stirling = r * _polynomial([1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156], r * r)
    small = special.lgamma(a) - (a - 0.5) * lax.log(a) + a - 0.5 * math.log(2 * math.pi)
    return select(a < 10, small, stirling)


def _power_over_gamma(a, x):
    """g = x^a e^-x / Γ(a), without the cancellation of a log x - x - log Γ(a)."""
    return lax.exp(0.5 * lax.log(a / (2 * math.pi)) - a * _excess(x, a) - _log_scaled_gamma(a))


# --- incomplete gamma functions ---------------------------------------------------------------------------------------
# Temme's expansion (8.12): ½η² = μ - log(1+μ), μ = x/a - 1; P = ½ erfc(-η√(a/2)) - E · T, E = e^(-aη²/2) / √(2πa),
# T = Σₖ cₖ(η) a^-k; c₀ = 1/μ - 1/η and cₖ = cₖ₋₁'/η + (-1)ᵏ γₖ/μ, here as power series in η.
_TEMME = [
    [-0.3333333333333333, 0.08333333333333333, -0.014814814814814815, 0.0011574074074074073, 0.0003527336860670194,
     -0.0001787551440329218, 3.919263178522438e-05, -2.185448510679992e-06, -1.85406221071516e-06, 8.296711340953087e-07,
     -1.7665952736826078e-07, 6.707853543401498e-09, 1.0261809784240309e-08, -4.382036018453353e-09, 9.14769958223679e-10],
    [-0.001851851851851852, -0.003472222222222222, 0.0026455026455026454, -0.0009902263374485596, 0.00020576131687242798,
     -4.018775720164609e-07, -1.8098550334489977e-05, 7.64916091608111e-06, -1.6120900894563446e-06],
    [0.004133597883597883, -0.0026813271604938273, 0.0007716049382716049, 2.0093878600823047e-06, -0.0001073665322636516]]


def _regions(a, x, dtype):
    """Where a is so large, and x so near, that Temme's expansion is used, and where the series; the rest is the fraction's."""
    large = 1e4 if dtype == dtypes.float64 else 200
    uniform = (a > large) & (lax.abs(x - a) < 0.3 * a)
    series = lax.bitwise_not(uniform) & (x <= lax.max(a, 1))
    return uniform, series


def _temme(a, x):
    """(P, Q, E, -P_dot / E) by Temme's expansion."""
    mu = (x - a) / a
    half_square = _excess(x, a)
    eta = lax.sign(mu) * lax.sqrt(2 * half_square)
    slope = select(eta == 0, 1.0, mu / select(eta == 0, 1.0, eta))                  # -a η̇
    E = lax.exp(-a * half_square) * lax.rsqrt(2 * math.pi * a)
    T = T_dot = eta * 0
    for k, c in enumerate(_TEMME):
        power = lax.integer_pow(a, -k)
        value, c_dot = _polynomial(c, eta) * power, np.polynomial.polynomial.polyder(c).tolist()
        T = T + value
        T_dot = T_dot - (_polynomial(c_dot, eta) * power * slope + k * value) / a
    z = eta * lax.sqrt(0.5 * a)
    moved = slope - 0.5 * eta + T * (lax.log1p(mu) - 0.5 / a) + T_dot
    return 0.5 * special.erfc(-z) - E * T, 0.5 * special.erfc(z) + E * T, E, moved


def _gamma_loops(e, aval, a, x, derivative: bool) -> list[str]:
    """[S, h], or [S, h, S_dot, h_dot] if `derivative`: the series and the continued fraction, each converged in its own region."""
    eps = float(dtypes.finfo(aval.dtype).eps)

    def begin(a, x):
        uniform, series = _regions(a, x, aval.dtype)
        fraction = lax.bitwise_not(uniform | series)
        one = a * 0 + 1
        b = select(fraction, x + 1 - a, one)
        return [series, fraction, one, one * 0, b, one / b, one / (b * b), one / 0.0]

    series, fraction, one, zero, b, h, h_dot, infinity = e.via(begin, [aval, aval], [a, x])

    def series_step(k, a, x, term, S, *dots):
        """(8.11.4)"""
        ratio = x / (a + k)
        following = term * ratio
        if not dots:
            return following > eps * S, following, S + following
        term_dot, S_dot = dots
        term_dot = (term_dot - term / (a + k)) * ratio
        return lax.abs(term_dot) > eps * lax.abs(S_dot), following, S + following, term_dot, S_dot + term_dot

    def fraction_step(k, a, b, c, d, h, *dots):
        """(8.9.2): h = 1/(b₀ + n₁/(b₁ + n₂/(b₂ + …))), bₖ = x + 1 - a + 2k, nₖ = k (a - k)"""
        b, n = b + 2, k * (a - k)
        c_new, d_new = b + n / c, 1 / (b + n * d)
        ratio = c_new * d_new
        if not dots:
            return lax.abs(ratio - 1) > 4 * eps, b, c_new, d_new, h * ratio
        c_dot, d_dot, h_dot = dots
        c_dot, d_dot = k / c - n * c_dot / (c * c) - 1, -d_new * d_new * (k * d + n * d_dot - 1)
        change = h_dot * (ratio - 1) + h * (c_dot * d_new + c_new * d_dot)
        return lax.abs(change) > 4 * eps * lax.abs(h_dot), b, c_new, d_new, h * ratio, c_dot, d_dot, h_dot + change

    dots = ([zero, zero], [zero, h_dot, h_dot]) if derivative else ([], [])
    sums = repeat(e, series_step, series, [a, x], [one, one, *dots[0]], aval)[1:]
    fractions = repeat(e, fraction_step, fraction, [a], [b, infinity, h, h, *dots[1]], aval)[3:]
    return [sums[0], fractions[0], *([sums[2], fractions[3]] if derivative else [])]


def _gamma_program(finish: Callable, derivative: bool) -> Callable:
    """The program of (a, x) that is finish(a, x, valid a, valid x, uniform, series, *what the loops give)."""
    def program(e, aval, a, x):
        def inside(a, x):
            valid = (a > 0) & (x > 0) & lax.is_finite(a) & lax.is_finite(x)
            return [select(valid, a, 1.0), select(valid, x, 1.0)]

        safe = e.via(inside, [aval, aval], [a, x])
        loops = _gamma_loops(e, aval, *safe, derivative)

        def end(a, x, safe_a, safe_x, *loops):
            return [finish(a, x, safe_a, safe_x, *_regions(safe_a, safe_x, aval.dtype), *loops)]
        return e.via(end, [aval] * (4 + len(loops)), [a, x, *safe, *loops])[0]
    return program


def _invalid(a, x):
    """a < 0, x < 0 or NaN; and the corners (0, 0) and (∞, ∞)."""
    # (not "not a >= 0": XLA takes max(x, 0) ≥ 0 to hold, NaN or not)
    return (a < 0) | (x < 0) | (a != a) | (x != x) | (a == x) & ((a == 0) | (a == math.inf))


def _igamma(upper: bool) -> Callable:
    def finish(a, x, safe_a, safe_x, uniform, series, S, h):
        g = _power_over_gamma(safe_a, safe_x)
        P, Q, _, _ = _temme(safe_a, safe_x)
        below, above = g / safe_a * S, g * h
        if upper:
            value, at_zero, at_infinity = select(uniform, Q, select(series, 1 - below, above)), 1.0, 0.0
        else:
            value, at_zero, at_infinity = select(uniform, P, select(series, below, 1 - above)), 0.0, 1.0
        value = select((x == 0) | (a == math.inf), at_zero, value)
        value = select((a == 0) | (x == math.inf), at_infinity, value)
        return select(_invalid(a, x), math.nan, value)
    return finish


def _slopes(a, x, S, h, S_dot, h_dot):
    """d log P / da · S and d log Q / da · h."""
    log_x = lax.log(x)
    return S * (log_x - special.digamma(a + 1)) + S_dot, h * (log_x - special.digamma(a)) + h_dot


def _igamma_grad_a(a, x, safe_a, safe_x, uniform, series, S, h, S_dot, h_dot):
    g = _power_over_gamma(safe_a, safe_x)
    below, above = _slopes(safe_a, safe_x, S, h, S_dot, h_dot)
    _, _, E, moved = _temme(safe_a, safe_x)
    value = select(uniform, -E * moved, select(series, g / safe_a * below, -g * above))
    value = select((x == 0) | (x == math.inf) | (a == math.inf), 0.0, value)
    return select((a == 0) | _invalid(a, x), math.nan, value)


def _random_gamma_grad(a, x, safe_a, safe_x, uniform, series, S, h, S_dot, h_dot):
    """-Ṗ / (g/x), of which g is divided out."""
    below, above = _slopes(safe_a, safe_x, S, h, S_dot, h_dot)
    moved = _temme(safe_a, safe_x)[3] * lax.exp(_log_scaled_gamma(safe_a))
    value = select(uniform, safe_x / safe_a * moved, select(series, -safe_x / safe_a * below, safe_x * above))
    value = select(x == 0, 0.0, value)
    return select((a == 0) | (x == math.inf) | _invalid(a, x), math.nan, value)


_PROGRAMS = {
    special.igamma_p: _gamma_program(_igamma(upper=False), derivative=False),
    special.igammac_p: _gamma_program(_igamma(upper=True), derivative=False),
    special.igamma_grad_a_p: _gamma_program(_igamma_grad_a, derivative=True),
    special.random_gamma_grad_p: _gamma_program(_random_gamma_grad, derivative=True),
}


@lowers(*_PROGRAMS)
def _gamma_family(e, eqn, *operands):
    return written(e, eqn, operands, _PROGRAMS[eqn.primitive])


# --- the incomplete beta function -------------------------------------------------------------------------------------

def _powers_over_beta(a, b, x, y):
    """x^a y^b / B(a, b), y = 1 - x, without the cancellation of logarithms of gamma functions."""
    n = a + b
    p, q = a / n, b / n
    exponent = a * _excess(x, p) + b * _excess(y, q)
    scaled = _log_scaled_gamma(n) - _log_scaled_gamma(a) - _log_scaled_gamma(b)
    return lax.exp(0.5 * lax.log(a * q / (2 * math.pi)) - exponent + scaled)


def _betainc(e, aval, a, b, x):
    """(8.17.22), on the side of the mean where it converges fast: I(a, b, x) = 1 - I(b, a, 1-x)."""
    eps = float(dtypes.finfo(aval.dtype).eps)
    mask = aval.update(dtype=dtypes.bool_)

    def begin(a, b, x):
        valid = (a > 0) & (b > 0) & (x > 0) & (x < 1) & lax.is_finite(a) & lax.is_finite(b)
        a, b, x = select(valid, a, 1.0), select(valid, b, 1.0), select(valid, x, 0.5)
        flip = x > (a + 1) / (a + b + 2)
        a, b, x, y = select(flip, b, a), select(flip, a, b), select(flip, 1 - x, x), select(flip, x, 1 - x)
        d = 1 / (1 - (a + b) / (a + 1) * x)
        return [valid, flip, a, b, x, y, x * 0 + 1, d]

    valid, flip, p, q, u, v, one, d = e.via(begin, [aval] * 3, [a, b, x])

    def step(k, a, b, x, c, d, h):
        """Two terms of 1 + n₁/(1 + n₂/(1 + …)), each by Lentz."""
        m = a + 2 * k
        for n in (k * (b - k) * x / ((m - 1) * m), -(a + k) * (a + b + k) * x / (m * (m + 1))):
            c, d = 1 + n / c, 1 / (1 + n * d)
            h = h * (c * d)
        return lax.abs(c * d - 1) > 4 * eps, c, d, h

    h = repeat(e, step, valid, [p, q, u], [one, d, d], aval)[2]

    def finish(a, b, x, flip, p, q, u, v, h):
        lower = _powers_over_beta(p, q, u, v) / p * h
        value = select(flip, 1 - lower, lower)
        value = select((x == 0) | (b == 0) | (a == math.inf), 0.0, value)
        value = select((x == 1) | (a == 0) | (b == math.inf), 1.0, value)
        corner = (a == b) & ((a == 0) | (a == math.inf))
        return [select((a >= 0) & (b >= 0) & (x >= 0) & (x <= 1) & lax.bitwise_not(corner), value, math.nan)]

    return e.via(finish, [aval] * 3 + [mask] + [aval] * 5, [a, b, x, flip, p, q, u, v, h])[0]


@lowers(special.regularized_incomplete_beta_p)
def _regularized_incomplete_beta(e, eqn, *operands):
    return written(e, eqn, operands, _betainc)
