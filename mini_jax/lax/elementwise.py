"""Elementwise arithmetic, functions and comparisons of numbers and bits: one row a primitive.

Derivatives at kinks are JAX's: half to each operand where max or min ties, 1 for |x| at 0, 0 for x⁰ at 0.
"""
from __future__ import annotations

import enum
from typing import Callable, NamedTuple

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.linear import Zero
from mini_jax.core.trace import typeof
from mini_jax.core.types import array_type
from mini_jax.lax import shapes
from mini_jax.lax.functions import binary, public_names, unary
from mini_jax.lax.rows import ANY, BOOL, COMPLEX, FLOATS, INTS, NUMBERS, REALS, UINTS, nary_type_rule, result_shape, type_error
from mini_jax.lax.selection import select

INEXACT = FLOATS | COMPLEX
BITS = INTS | UINTS | BOOL
WORDS = INTS | UINTS


def _is_complex(x) -> bool:
    return dtypes.is_complex(typeof(x).dtype)


# --- arithmetic -------------------------------------------------------------------------------------------------------

neg_p, neg = unary("neg", NUMBERS, "-x; unsigned integers wrap", jvp=lambda t, y, x: -t, transpose=lambda ct, x: -ct)

add_p, add = binary("add", NUMBERS, "x + y; integers wrap", jvp=(lambda t, y, a, b: t, lambda t, y, a, b: t),
                    transpose=(lambda ct, a, b: ct, lambda ct, a, b: ct))

sub_p, sub = binary("sub", NUMBERS, "x - y; integers wrap", jvp=(lambda t, y, a, b: t, lambda t, y, a, b: -t),
                    transpose=(lambda ct, a, b: ct, lambda ct, a, b: -ct))

mul_p, mul = binary("mul", NUMBERS, "x · y; integers wrap", jvp=(lambda t, y, a, b: t * b, lambda t, y, a, b: a * t),
                    transpose=(lambda ct, a, b: ct * b, lambda ct, a, b: a * ct))

div_p, div = binary("div", NUMBERS, "x / y; of integers the quotient rounded towards zero, where x / 0 = -1 (all bits set) and "
                    "min / -1 = min", jvp=(lambda t, y, a, b: div(t, b), lambda t, y, a, b: t * -div(y, b)),
                    transpose=(lambda ct, a, b: div(ct, b), None))

rem_p, rem = binary("rem", REALS, "The remainder of x / y rounded towards zero, with the sign of x; of integers x rem 0 = x",
                    jvp=(lambda t, y, a, b: t, lambda t, y, a, b: t * div(y - a, b)))

mulhi_p, mulhi = binary("mulhi", WORDS, "The upper half of the product x · y, which has twice the bits of the operands")


def _share(wins: Callable) -> Callable:
    """The part of the derivative of max or min that is x's: 1 where x wins over the other, ½ where they are equal, else 0.

    Real numbers are compared with each other, not with the result: what XLA computes again in another place may be rounded otherwise there.
    """
    def share(x, y, other):
        if _is_complex(x):
            return select(x == y, select(other == y, 0.5, 1.0), 0.0)
        return select(wins(x, other), 1.0, select(x == other, 0.5, 0.0))
    return share


_greater, _lesser = _share(lambda x, other: gt(x, other)), _share(lambda x, other: lt(x, other))
max_p, max = binary("max", ANY, "The greater of x and y; NaN if either is. Complex numbers in lexicographic order",
                    jvp=(lambda t, y, a, b: t * _greater(a, y, b), lambda t, y, a, b: t * _greater(b, y, a)))
min_p, min = binary("min", ANY, "The lesser of x and y; NaN if either is. Complex numbers in lexicographic order",
                    jvp=(lambda t, y, a, b: t * _lesser(a, y, b), lambda t, y, a, b: t * _lesser(b, y, a)))


def _abs_jvp(t, y, x):
    if _is_complex(x):
        return real(t * conj(sign(x)))
    return t * select(x >= 0, 1.0, -1.0)


abs_p, abs = unary("abs", FLOATS | COMPLEX | INTS, "|x|; of complex numbers the modulus, a real number. |min| = min for integers",
                   jvp=_abs_jvp, result=dtypes.to_real)

sign_p, sign = unary("sign", NUMBERS, "1, 0 or -1, as x is positive, zero (whose sign is kept) or negative; NaN of NaN; "
                     "x / |x| of complex numbers")


def _sign_jvp(primals, tangents):
    """Only a complex sign moves: it turns by the part of t that is across x, over |x|."""
    (x,), (t,) = primals, tangents
    y = sign(x)
    if type(t) is Zero or not _is_complex(x):
        return y, Zero(typeof(y).tangent())
    modulus = abs(x)
    turn = imag(conj(y) * t) / select(modulus == 0, 1.0, modulus)
    return y, complex(-imag(y) * turn, real(y) * turn)


sign_p.jvp = _sign_jvp

nextafter_p, nextafter = binary("nextafter", FLOATS - {dtypes.float8_e8m0fnu}, "The number next to x1 in the direction of x2",
                                arguments=("x1", "x2"), jvp=(lambda t, y, a, b: t, None))

# --- powers and roots -------------------------------------------------------------------------------------------------

square_p, square = unary("square", NUMBERS, "x²", jvp=lambda t, y, x: t * (2 * x))
# √'s derivative has 1 / y of its own, which a division by y then shares (lowering/quotients.py).
sqrt_p, sqrt = unary("sqrt", INEXACT, "√x; NaN of negative real numbers", jvp=lambda t, y, x: t * (0.5 * (1 / y)), accuracy=True)
rsqrt_p, rsqrt = unary("rsqrt", INEXACT, "1 / √x", jvp=lambda t, y, x: t * (-0.5 * y / x), accuracy=True)
cbrt_p, cbrt = unary("cbrt", FLOATS, "The real cube root of x", jvp=lambda t, y, x: t * (1 / (3 * (y * y))), accuracy=True)


def _integer_pow_type(x, *, y):
    if y < 0 and x.dtype not in INEXACT:
        raise type_error("integer_pow", [x], f"integers have no negative powers (y={y}); convert x to a floating dtype")
    return _integer_pow_operand(x)


_integer_pow_operand = nary_type_rule("integer_pow", NUMBERS, None)
integer_pow_p, _ = unary("integer_pow", NUMBERS, "xʸ", type_rule=_integer_pow_type,
                         jvp=lambda t, z, x, *, y: t * (y * integer_pow(x, y - 1)) if y else Zero(typeof(z)))


def integer_pow(x, y: int):
    """xʸ for a Python int y, by repeated squaring; 1 / x⁻ʸ for y < 0; x⁰ = 1.

    x: an array or number, integer, floating or complex. Raises TypeError for other dtypes, for a negative power of integers, and
    for a y that is no int.
    """
    if not isinstance(y, (int, np.integer)) or isinstance(y, bool):
        raise TypeError(f"lax.integer_pow: the exponent is a Python int, got {y!r}; lax.pow takes others")
    return integer_pow_p.bind(x, y=int(y))


def reciprocal(x):
    """1 / x.

    x: an array or number, floating or complex. Returns an array of its shape. Raises TypeError for other dtypes.
    """
    return integer_pow_p.bind(x, y=-1)


def _pow_type(x, y):
    if x.dtype not in INEXACT or y.dtype != x.dtype and y.dtype not in WORDS:
        raise type_error("pow", [x, y], "x is floating or complex, y of the dtype of x or an integer")
    return array_type(result_shape("pow", [x, y]), x.dtype, x.weak_type and y.weak_type)


def _pow_by_base(t, z, x, y):
    """y xʸ⁻¹, and 0 where y = 0, also at x = 0."""
    if dtypes.is_integer(typeof(y).dtype):
        previous = select(y == 0, 1, y) - 1
    else:
        previous = select((x == 0) & (y == 0), 1.0, y) - 1
    return t * (shapes.convert_element_type(y, typeof(x).dtype) * pow(x, previous))


pow_p, pow = binary("pow", INEXACT, "xʸ", type_rule=_pow_type,
                    jvp=(_pow_by_base, lambda t, z, x, y: t * (log(select(x == 0, 1.0, x)) * z)))

# --- exponentials and logarithms --------------------------------------------------------------------------------------

exp_p, exp = unary("exp", INEXACT, "eˣ", jvp=lambda t, y, x: t * y, accuracy=True)
exp2_p, exp2 = unary("exp2", INEXACT, "2ˣ", jvp=lambda t, y, x: t * (0.6931471805599453 * y), accuracy=True)
expm1_p, expm1 = unary("expm1", INEXACT, "eˣ - 1, accurate near x = 0", jvp=lambda t, y, x: t * (y + 1), accuracy=True)
log_p, log = unary("log", INEXACT, "The natural logarithm of x", jvp=lambda t, y, x: div(t, x), accuracy=True)
log1p_p, log1p = unary("log1p", INEXACT, "log(1 + x), accurate near x = 0", jvp=lambda t, y, x: div(t, 1 + x), accuracy=True)
logistic_p, logistic = unary("logistic", INEXACT, "1 / (1 + e⁻ˣ)", jvp=lambda t, y, x: t * (y * (1 - y)), accuracy=True)

# --- trigonometric and hyperbolic functions ---------------------------------------------------------------------------

sin_p, sin = unary("sin", INEXACT, "sin x, x in radians", jvp=lambda t, y, x: t * cos(x), accuracy=True)
cos_p, cos = unary("cos", INEXACT, "cos x, x in radians", jvp=lambda t, y, x: t * -sin(x), accuracy=True)
tan_p, tan = unary("tan", INEXACT, "tan x, x in radians", jvp=lambda t, y, x: t * (1 + y * y), accuracy=True)
asin_p, asin = unary("asin", INEXACT, "The angle in [-π/2, π/2] whose sine is x", jvp=lambda t, y, x: t * rsqrt((1 - x) * (1 + x)))
acos_p, acos = unary("acos", INEXACT, "The angle in [0, π] whose cosine is x", jvp=lambda t, y, x: t * -rsqrt((1 - x) * (1 + x)))
atan_p, atan = unary("atan", INEXACT, "The angle in [-π/2, π/2] whose tangent is x", jvp=lambda t, y, x: div(t, 1 + x * x))
atan2_p, atan2 = binary("atan2", INEXACT, "The angle in [-π, π] of the point with ordinate x and abscissa y",
                        jvp=(lambda t, z, x, y: t * div(y, x * x + y * y), lambda t, z, x, y: t * div(-x, x * x + y * y)))
sinh_p, sinh = unary("sinh", INEXACT, "(eˣ - e⁻ˣ) / 2", jvp=lambda t, y, x: t * cosh(x))
cosh_p, cosh = unary("cosh", INEXACT, "(eˣ + e⁻ˣ) / 2", jvp=lambda t, y, x: t * sinh(x))
tanh_p, tanh = unary("tanh", INEXACT, "sinh x / cosh x", jvp=lambda t, y, x: t * ((1 - y) * (1 + y)), accuracy=True)
asinh_p, asinh = unary("asinh", INEXACT, "The number whose hyperbolic sine is x", jvp=lambda t, y, x: t * rsqrt(x * x + 1))
acosh_p, acosh = unary("acosh", INEXACT, "The number ≥ 0 whose hyperbolic cosine is x",
                       jvp=lambda t, y, x: t * (rsqrt(x - 1) * rsqrt(x + 1)))
atanh_p, atanh = unary("atanh", INEXACT, "The number whose hyperbolic tangent is x", jvp=lambda t, y, x: div(t, (1 - x) * (1 + x)))

# --- rounding ---------------------------------------------------------------------------------------------------------

floor_p, floor = unary("floor", FLOATS, "The greatest integer ≤ x, as a floating number")
ceil_p, ceil = unary("ceil", FLOATS, "The least integer ≥ x, as a floating number")
round_p, _ = unary("round", FLOATS, "The integer nearest to x")


class RoundingMethod(enum.IntEnum):
    """What `round` does with a number that is halfway between two integers."""
    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def round(x, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO):
    """The integer nearest to x, as a floating number; of two equally near ones that further from zero, or the even one.

    x: an array or number, floating. Raises TypeError for other dtypes, ValueError for an unknown method.
    """
    return round_p.bind(x, rounding_method=RoundingMethod(rounding_method))


def _reduce_precision_type(x, *, exponent_bits, mantissa_bits):
    if exponent_bits < 1 or mantissa_bits < 0:
        raise ValueError(f"lax.reduce_precision({x}): exponent_bits is at least 1 and mantissa_bits at least 0, "
                         f"got {exponent_bits} and {mantissa_bits}")
    return _reduce_precision_operand(x)


_reduce_precision_operand = nary_type_rule("reduce_precision", FLOATS, None)
reduce_precision_p, _ = unary("reduce_precision", FLOATS, "", type_rule=_reduce_precision_type,
                              jvp=lambda t, y, x, **bits: reduce_precision_p.bind(t, **bits),
                              transpose=lambda ct, x, **bits: reduce_precision_p.bind(ct, **bits))


def reduce_precision(operand, exponent_bits: int, mantissa_bits: int):
    """The operand rounded to the numbers that a floating format of so many bits has, in the dtype that it is.

    operand: an array or number, floating. Raises TypeError for other dtypes, ValueError unless exponent_bits ≥ 1 and
    mantissa_bits ≥ 0. Linear for derivatives: tangents are rounded alike. (StableHLO: reduce_precision)
    """
    return reduce_precision_p.bind(operand, exponent_bits=int(exponent_bits), mantissa_bits=int(mantissa_bits))


# --- complex numbers --------------------------------------------------------------------------------------------------
# Cotangents are transposed without conjugation: what is paired is Re(ct · t).

real_p, real = unary("real", COMPLEX, "The real part of x, a real number", result=dtypes.to_real,
                     jvp=lambda t, y, x: real(t), transpose=lambda ct, x: complex(ct, 0.0))
imag_p, imag = unary("imag", COMPLEX, "The imaginary part of x, a real number", result=dtypes.to_real,
                     jvp=lambda t, y, x: imag(t), transpose=lambda ct, x: complex(0.0, -ct))
complex_p, complex = binary("complex", frozenset([dtypes.float32, dtypes.float64]), "x + iy", result=dtypes.to_complex,
                            jvp=(lambda t, z, x, y: complex(t, 0.0), lambda t, z, x, y: complex(0.0, t)),
                            transpose=(lambda ct, x, y: real(ct), lambda ct, x, y: -imag(ct)))
conj_p, _ = unary("conj", COMPLEX, "", jvp=lambda t, y, x: conj(t), transpose=lambda ct, x: conj(ct))


def conj(x):
    """The complex conjugate of x, complex also where x is real.

    x: an array or number, complex, float32 or float64. Raises TypeError for other dtypes.
    """
    return conj_p.bind(x) if _is_complex(x) else complex(x, 0.0)


# --- comparisons ------------------------------------------------------------------------------------------------------

def _comparison(name: str, accepts: frozenset, formula: str):
    return binary(name, accepts, formula, result=lambda dtype: dtypes.bool_)


eq_p, eq = _comparison("eq", ANY, "x = y, a boolean; NaN equals nothing")
ne_p, ne = _comparison("ne", ANY, "x ≠ y, a boolean; NaN differs from everything")
lt_p, lt = _comparison("lt", REALS | BOOL, "x < y, a boolean; false if either is NaN")
le_p, le = _comparison("le", REALS | BOOL, "x ≤ y, a boolean; false if either is NaN")
gt_p, gt = _comparison("gt", REALS | BOOL, "x > y, a boolean; false if either is NaN")
ge_p, ge = _comparison("ge", REALS | BOOL, "x ≥ y, a boolean; false if either is NaN")

# The total order of IEEE 754, by which arrays are sorted: -NaN < -∞ < … < -0 < 0 < … < ∞ < NaN.
eq_to_p, _ = _comparison("eq_to", REALS | BOOL, "x = y in the total order")
lt_to_p, _ = _comparison("lt_to", REALS | BOOL, "x < y in the total order")
le_to_p, _ = _comparison("le_to", REALS | BOOL, "x ≤ y in the total order")

is_finite_p, is_finite = unary("is_finite", FLOATS, "Is x neither infinite nor NaN? A boolean", result=lambda dtype: dtypes.bool_)

# --- bits -------------------------------------------------------------------------------------------------------------

not_p, bitwise_not = unary("not", BITS, "The complement of each bit of x; of booleans, not x", public_name="bitwise_not")
and_p, bitwise_and = binary("and", BITS, "x & y, bit by bit", public_name="bitwise_and")
or_p, bitwise_or = binary("or", BITS, "x | y, bit by bit", public_name="bitwise_or")
xor_p, bitwise_xor = binary("xor", BITS, "x ^ y, bit by bit", public_name="bitwise_xor")
shift_left_p, shift_left = binary("shift_left", WORDS, "x · 2ʸ: the bits moved up by y places; 0 unless 0 ≤ y < their number")
shift_right_arithmetic_p, shift_right_arithmetic = binary(
    "shift_right_arithmetic", WORDS, "The bits of x moved down by y places, the sign bit moving in from above; "
    "nothing but sign bits unless 0 ≤ y < their number")
shift_right_logical_p, shift_right_logical = binary(
    "shift_right_logical", WORDS, "The bits of x moved down by y places, zeros moving in from above; 0 unless 0 ≤ y < their number")
population_count_p, population_count = unary("population_count", WORDS, "The number of bits of x that are set")
clz_p, clz = unary("clz", WORDS, "The number of zero bits above the highest bit of x that is set")


# --- accuracy ---------------------------------------------------------------------------------------------------------

class AccuracyMode(enum.Enum):
    """Named trade-offs of accuracy against speed, for the functions that have an `accuracy` parameter."""
    HIGHEST = 1
    DEFAULT = 2


class Tolerance(NamedTuple):
    """A bound on the error of a function: absolute, relative, or in units of the last place; for `accuracy` parameters."""
    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0


__all__ = public_names(globals())
