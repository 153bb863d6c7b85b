"""Special functions: error functions, the gamma and beta families, zeta and modified Bessel functions.

Definitions: Abramowitz & Stegun, Handbook of Mathematical Functions, chapters 6, 7, 9, 23 and 26; dlmf.nist.gov.
"""
from __future__ import annotations

import math

from mini_jax.lax.elementwise import exp, log, log1p, sign, square
from mini_jax.lax.functions import binary, public, public_names, unary
from mini_jax.lax.rows import FLOATS, nary
from mini_jax.lax.selection import select


def _no_derivative(function: str, operand: str):
    """A row's entry for a derivative that has no known form here."""
    def partial(*_, **__):
        raise NotImplementedError(f"lax.{function} has no derivative with respect to {operand}; lax.stop_gradient holds it constant")
    return partial


# --- error functions --------------------------------------------------------------------------------------------------

_SLOPE = 2 / math.sqrt(math.pi)
erf_p, erf = unary("erf", FLOATS, "2/√π ∫₀ˣ exp(-s²) ds", jvp=lambda t, y, x: t * (_SLOPE * exp(-square(x))))
erfc_p, erfc = unary("erfc", FLOATS, "1 - erf x, accurate for large x", jvp=lambda t, y, x: t * (-_SLOPE * exp(-square(x))))
erf_inv_p, erf_inv = unary("erf_inv", FLOATS, "The number whose erf is x; ±∞ at ±1, NaN beyond",
                           jvp=lambda t, y, x: t * (1 / _SLOPE * exp(square(y))))

# --- the gamma function and its derivatives ---------------------------------------------------------------------------

lgamma_p, lgamma = unary("lgamma", FLOATS, "log |Γ(x)|", jvp=lambda t, y, x: t * digamma(x))
digamma_p, digamma = unary("digamma", FLOATS, "ψ(x) = Γ'(x) / Γ(x)", jvp=lambda t, y, x: t * polygamma(1.0, x))
polygamma_p, polygamma = binary("polygamma", FLOATS, "The m-th derivative of ψ at x, for whole m ≥ 0", arguments=("m", "x"),
                                jvp=(_no_derivative("polygamma", "m"), lambda t, y, m, x: t * polygamma(m + 1, x)))
zeta_p, zeta = binary("zeta", FLOATS, "The Hurwitz zeta function Σₙ (q + n)⁻ˣ over n = 0, 1, …, for x > 1", arguments=("x", "q"),
                      jvp=(_no_derivative("zeta", "x"), lambda t, y, x, q: t * (-x * zeta(x + 1, q))))

# --- incomplete gamma functions ---------------------------------------------------------------------------------------

def _gamma_density(a, x):
    """x^(a-1) e^-x / Γ(a), the derivative of igamma by x."""
    return exp(select(a == 1, 0.0, (a - 1) * log(x)) - x - lgamma(a))


igamma_p, igamma = binary("igamma", FLOATS, "P(a, x) = 1/Γ(a) ∫₀ˣ s^(a-1) e⁻ˢ ds, for a, x ≥ 0, else NaN", arguments=("a", "x"),
                          jvp=(lambda t, y, a, x: t * igamma_grad_a(a, x), lambda t, y, a, x: t * _gamma_density(a, x)))
igammac_p, igammac = binary("igammac", FLOATS, "Q(a, x) = 1 - P(a, x), accurate for large x", arguments=("a", "x"),
                            jvp=(lambda t, y, a, x: t * -igamma_grad_a(a, x), lambda t, y, a, x: t * -_gamma_density(a, x)))
igamma_grad_a_p, igamma_grad_a = binary("igamma_grad_a", FLOATS, "The derivative of P(a, x) by a", arguments=("a", "x"),
                                        jvp=(_no_derivative("igamma_grad_a", "a"),
                                             lambda t, y, a, x: t * (_gamma_density(a, x) * (log(x) - digamma(a)))))
random_gamma_grad_p, random_gamma_grad = binary(
    "random_gamma_grad", FLOATS, "The derivative by a of the quantile of the gamma distribution of shape a at which x lies:\n"
    "    how a sample x moves with a (Figurnov, Mohamed & Mnih, Implicit Reparameterization Gradients, 2018)",
    arguments=("a", "x"), jvp=(_no_derivative("random_gamma_grad", "a"), _no_derivative("random_gamma_grad", "x")))

# --- the incomplete beta function -------------------------------------------------------------------------------------


def _beta_density(a, b, x):
    """x^(a-1) (1-x)^(b-1) / B(a, b), the derivative of betainc by x."""
    return exp((a - 1) * log(x) + (b - 1) * log1p(-x) + lgamma(a + b) - lgamma(a) - lgamma(b))


regularized_incomplete_beta_p = nary("regularized_incomplete_beta", 3, FLOATS, jvp=(
    _no_derivative("betainc", "a"), _no_derivative("betainc", "b"), lambda t, y, a, b, x: t * _beta_density(a, b, x)))
betainc = public(regularized_incomplete_beta_p,
                 "I(a, b, x) = 1/B(a, b) ∫₀ˣ s^(a-1) (1-s)^(b-1) ds, for a, b ≥ 0 and 0 ≤ x ≤ 1, else NaN",
                 "betainc", ("a", "b", "x"))

# --- modified Bessel functions ----------------------------------------------------------------------------------------

bessel_i0e_p, bessel_i0e = unary("bessel_i0e", FLOATS, "e^-|x| I₀(x), the scaled modified Bessel function of order 0",
                                 jvp=lambda t, y, x: t * (bessel_i1e(x) - sign(x) * y))


def _bessel_i1e_slope(t, y, x):
    """I₁' = I₀ - I₁/x, which is ½ at 0."""
    near = x == 0
    safe = select(near, 1.0, x)
    return t * select(near, 0.5, bessel_i0e(x) - y * (sign(x) + 1 / safe))


bessel_i1e_p, bessel_i1e = unary("bessel_i1e", FLOATS, "e^-|x| I₁(x), the scaled modified Bessel function of order 1",
                                 jvp=_bessel_i1e_slope)

__all__ = public_names(globals())
