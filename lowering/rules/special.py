"""How special functions are written: CHLO's operations, and a Chebyshev expansion; for narrow dtypes in float32."""
from __future__ import annotations

from lowering.emit import lowers
from lowering.rules.incomplete import written
from mini_jax.lax import elementwise as lax, special
from mini_jax.lax.selection import select

_CHLO = {special.erf_p: "erf", special.erfc_p: "erfc", special.erf_inv_p: "erf_inv", special.lgamma_p: "lgamma",
         special.digamma_p: "digamma", special.polygamma_p: "polygamma", special.zeta_p: "zeta",
         special.bessel_i1e_p: "bessel_i1e"}


@lowers(*_CHLO)
def _chlo(e, eqn, *operands):
    def program(e, aval, *operands):
        types = ", ".join([aval.mlir] * len(operands))
        return e.emit(f"chlo.{_CHLO[eqn.primitive]} {', '.join(operands)} : {types} -> {aval.mlir}")
    return written(e, eqn, operands, program)


# Chebyshev coefficients of e^-x I₀(x) in x/4 - 1 on [0, 8], and of √x e^-x I₀(x) in 16/x - 1 on [8, ∞), computed to 40 digits.
_I0E_NEAR = [
    0.33839763720473804, -0.3046826723431984, 0.17162090152220878, -0.094901097048047644, 0.049305284239670708,
    -0.023737414805899469, 0.010546460394594998, -0.0043243099950505759, 0.0016394756169413358, -0.00057637557453858237,
    0.00018850288509584166, -5.7541950100821037e-5, 1.6448448070728897e-5, -4.4167383584587506e-6, 1.1173875391201037e-6,
    -2.6707938539406117e-7, 6.0469950225419189e-8, -1.300025009986248e-8, 2.6598237246823867e-9, -5.1897956016352629e-10,
    9.6758090353732369e-11, -1.7268262914415557e-11, 2.9550526631296398e-12, -4.8564467831119295e-13, 7.6761854986049356e-14,
    -1.1685332877993452e-14, 1.715391285555133e-15, -2.4312798465479547e-16, 3.3307945188222381e-17]
_I0E_FAR = [
    0.40224520550705442, 0.0033691164782556941, 6.889758346916824e-5, 2.8913705208347565e-6, 2.0489185894690637e-7,
    2.2666689904981781e-8, 3.3962320257083863e-9, 4.9406023882249696e-10, 1.1889147107846438e-11, -3.1499165279632414e-11,
    -1.3215811840447713e-11, -1.7941785315068061e-12, 7.1801244513836662e-13, 3.8527783827421427e-13, 1.5400862175214098e-14,
    -4.1505693472872221e-14, -9.5548466988283076e-15, 3.8116806693526224e-15, 1.7725601330565264e-15, -3.4254856196772191e-16,
    -2.8276239805165835e-16, 3.4612228676974611e-17, 4.46562142029676e-17]


def _chebyshev(coefficients, u, eps: float):
    """Σ coefficients[k] Tₖ(u) by Clenshaw's recurrence, of as many terms as matter."""
    kept = [c for c in coefficients if abs(c) > eps / 16]
    b, previous = u * 0 + kept[-1], u * 0
    for c in reversed(kept[1:-1]):
        b, previous = 2 * u * b - previous + c, b
    return u * b - previous + kept[0]


def _bessel_i0e_program(e, aval, x):
    eps = 2.3e-16 if aval.dtype.itemsize == 8 else 1.2e-7

    def program(x):
        x = lax.abs(x)
        far = lax.max(x, 8)
        near = _chebyshev(_I0E_NEAR, lax.min(x, 8) / 4 - 1, eps)
        return [select(x <= 8, near, _chebyshev(_I0E_FAR, 16 / far - 1, eps) * lax.rsqrt(far))]
    return e.via(program, [aval], [x])[0]


@lowers(special.bessel_i0e_p)
def _bessel_i0e(e, eqn, x):
    return written(e, eqn, [x], _bessel_i0e_program)
