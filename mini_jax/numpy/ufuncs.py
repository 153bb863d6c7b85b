"""Universal functions: elementwise functions with NumPy's promotion and broadcasting.

A row names the function, how its operands are promoted, what is computed of the promoted operands, and its formula:

    sin = unary("sin", promote_args_inexact, lax.sin, "sin x, x in radians.")
    add = binary("add", promote_args, _add, "x1 + x2; of booleans, logical or.")
"""
from __future__ import annotations

import math
import operator
from typing import Callable

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.core.trace import Tracer, typeof
from mini_jax.lax import select
from mini_jax.numpy.promotion import (arraylike, as_array, broadcast_operands, converted, promote_args, promote_args_inexact,
                                      promote_args_numeric, promote_dtypes)
from mini_jax.runtime.dispatch import library

__all__ = []


def _public(name: str, fun: Callable, doc: str) -> Callable:
    fun.__name__ = fun.__qualname__ = name
    fun.__doc__ = doc
    __all__.append(name)
    return library(fun)


def unary(name: str, promote: Callable, compute: Callable, formula: str) -> Callable:
    """Declare a universal function of one operand."""
    def fun(x, /):
        return compute(*promote(name, x))
    return _public(name, fun, f"""{formula}

    x: an array or number of any shape. Returns an array of its shape. Raises TypeError for what is neither array nor number.
    """)


def binary(name: str, promote: Callable, compute: Callable, formula: str) -> Callable:
    """Declare a universal function of two operands."""
    def fun(x1, x2, /):
        return compute(*promote(name, x1, x2))
    return _public(name, fun, f"""{formula}

    x1, x2: arrays or numbers that broadcast. Returns an array of the shape they broadcast to. Raises TypeError for what is
    neither array nor number, ValueError where the shapes do not broadcast.
    """)


def also(*names: str, of: Callable) -> None:
    """Other names under which NumPy has the same function."""
    for name in names:
        globals()[name] = of
        __all__.append(name)


# --- what the formulas below are written with ---------------------------------------------------------------------------------

def kind(x):
    """The dtype of a value."""
    return typeof(x).dtype


def is_bool(x) -> bool:
    return typeof(x).dtype == dtypes.bool_


def as_bool(x):
    """x != 0."""
    return x if is_bool(x) else lax.ne(x, converted(0, kind(x)))


def real_operands(name: str, *operands):
    """TypeError if an operand is complex."""
    for x in operands:
        if dtypes.is_complex(kind(x)):
            raise TypeError(f"{name} takes real operands, got {typeof(x)}")
    return operands


def bits_of(x):
    """The bits of a floating x as a signed integer of its width."""
    return lax.bitcast_convert_type(x, np.dtype(f"int{dtypes.itemsize_bits(kind(x))}"))


def filled(x, value, dtype=None):
    """An array of the shape of x, of equal entries."""
    return lax.full(typeof(x).shape, value, kind(x) if dtype is None else dtype)


# --- transcendental functions: operands become floats --------------------------------------------------------------------------

sin = unary("sin", promote_args_inexact, lax.sin, "sin x, x in radians.")
cos = unary("cos", promote_args_inexact, lax.cos, "cos x, x in radians.")
tan = unary("tan", promote_args_inexact, lax.tan, "tan x, x in radians.")
arcsin = unary("arcsin", promote_args_inexact, lax.asin, "The angle in [-π/2, π/2] whose sine is x.")
arccos = unary("arccos", promote_args_inexact, lax.acos, "The angle in [0, π] whose cosine is x.")
arctan = unary("arctan", promote_args_inexact, lax.atan, "The angle in (-π/2, π/2) whose tangent is x.")
sinh = unary("sinh", promote_args_inexact, lax.sinh, "(exp x - exp -x) / 2.")
cosh = unary("cosh", promote_args_inexact, lax.cosh, "(exp x + exp -x) / 2.")
tanh = unary("tanh", promote_args_inexact, lax.tanh, "sinh x / cosh x.")
arcsinh = unary("arcsinh", promote_args_inexact, lax.asinh, "The inverse of sinh: log(x + sqrt(x² + 1)).")
arccosh = unary("arccosh", promote_args_inexact, lax.acosh, "The inverse of cosh: log(x + sqrt(x² - 1)), x ≥ 1.")
arctanh = unary("arctanh", promote_args_inexact, lax.atanh, "The inverse of tanh: log((1 + x) / (1 - x)) / 2, |x| < 1.")
exp = unary("exp", promote_args_inexact, lax.exp, "e to the power x.")
exp2 = unary("exp2", promote_args_inexact, lax.exp2, "2 to the power x.")
expm1 = unary("expm1", promote_args_inexact, lax.expm1, "exp(x) - 1, exact for small x too.")
log = unary("log", promote_args_inexact, lax.log, "The natural logarithm of x.")
log1p = unary("log1p", promote_args_inexact, lax.log1p, "log(1 + x), exact for small x too.")
log2 = unary("log2", promote_args_inexact, lambda x: lax.log(x) / math.log(2), "The logarithm of x to base 2.")
log10 = unary("log10", promote_args_inexact, lambda x: lax.log(x) / math.log(10), "The logarithm of x to base 10.")
sqrt = unary("sqrt", promote_args_inexact, lax.sqrt, "The non-negative square root of x; NaN for negative real x.")
cbrt = unary("cbrt", promote_args_inexact, lambda x: lax.cbrt(*real_operands("cbrt", x)), "The real cube root of x.")
rad2deg = unary("rad2deg", promote_args_inexact, lambda x: as_array(x) * (180 / math.pi), "Radians to degrees: 180 x / π.")
deg2rad = unary("deg2rad", promote_args_inexact, lambda x: as_array(x) * (math.pi / 180), "Degrees to radians: π x / 180.")
arctan2 = binary("arctan2", promote_args_inexact, lax.atan2, "The angle in [-π, π] of the point (x2, x1): x1 is the ordinate.")
also("degrees", of=rad2deg), also("radians", of=deg2rad)
also("asin", of=arcsin), also("acos", of=arccos), also("atan", of=arctan), also("atan2", of=arctan2)
also("asinh", of=arcsinh), also("acosh", of=arccosh), also("atanh", of=arctanh)


def _sinc(x):
    """sin(πx) / (πx); close to 0 its Taylor series, so that all derivatives are right there too."""
    px = as_array(x) * math.pi
    close = lax.lt(lax.abs(px), 0.1)
    square = px * px
    series = 1.0 - square / 110
    for k in (72, 42, 20, 6):
        series = 1.0 - square / k * series
    apart = select(close, 1.0, px)
    return select(close, series, lax.sin(apart) / apart)


def _hypot(x, y):
    """sqrt(x² + y²) = m sqrt(1 + (n/m)²) of the larger and the smaller absolute value."""
    if dtypes.is_complex(kind(x)):
        raise ValueError("hypot takes real operands; of a complex z, abs(z) is the modulus")
    x, y = lax.abs(x), lax.abs(y)
    larger, smaller = lax.max(x, y), lax.min(x, y)
    ratio = smaller / select(lax.eq(larger, 0.0), 1.0, larger)
    length = select(lax.eq(larger, 0.0), larger, larger * lax.sqrt(1.0 + ratio * ratio))
    return select(lax.bitwise_or(lax.eq(x, math.inf), lax.eq(y, math.inf)), math.inf, length)


def _log_add(power: Callable, log1p: Callable) -> Callable:
    """log(b^x + b^y) = max(x, y) + log(1 + b^-|x - y|), where two equal infinities have the difference 0."""
    def compute(x, y):
        difference = lax.sub(x, y)
        if dtypes.is_complex(kind(difference)):
            first = lax.ge(lax.real(difference), 0.0)
            return select(first, x, y) + log1p(power(select(first, lax.neg(difference), difference)))
        distance = lax.abs(select(lax.ne(difference, difference), 0.0, difference))
        return lax.max(x, y) + log1p(power(lax.neg(distance)))
    return compute


sinc = unary("sinc", promote_args_inexact, _sinc, "sin(πx) / (πx), 1 at 0.")
hypot = binary("hypot", promote_args_inexact, _hypot, "sqrt(x1² + x2²), without overflow on the way; real operands.")
logaddexp = binary("logaddexp", promote_args_inexact, _log_add(lax.exp, lax.log1p), "log(exp x1 + exp x2), without overflow on the way.")
logaddexp2 = binary("logaddexp2", promote_args_inexact, _log_add(lax.exp2, lambda x: lax.log1p(x) / math.log(2)),
                    "log2(2^x1 + 2^x2), without overflow on the way.")


# --- arithmetic -----------------------------------------------------------------------------------------------------------------

def _floor_divide(x, y):
    """The greatest integer not above x / y. Integers: the quotient towards zero, less one where it was negative and not exact."""
    dtype = kind(*real_operands("floor_divide", x))
    if dtypes.is_floating(dtype):
        return _float_divmod(x, y)[0]
    if dtypes.is_unsigned(dtype):
        return lax.div(x, y)
    quotient = lax.div(x, y)
    too_high = lax.bitwise_and(lax.ne(lax.sign(x), lax.sign(y)), lax.ne(lax.rem(x, y), 0))
    return select(too_high, quotient - 1, quotient)


def _float_divmod(x, y):
    rest = lax.rem(x, y)
    quotient = (x - rest) / y
    wrong = lax.bitwise_and(lax.ne(rest, 0.0), lax.ne(lax.sign(y), lax.sign(rest)))
    quotient = _to_even(select(wrong, quotient - 1.0, quotient))
    return select(lax.eq(y, 0.0), lax.div(x, y), quotient), select(wrong, rest + y, rest)


def _remainder(x, y):
    """x - y floor(x / y), with the sign of y. Of integers by 0: 0."""
    rest = _fmod(x, y)
    zero = kind(rest).type(0)
    other_sign = lax.bitwise_and(lax.ne(lax.lt(rest, zero), lax.lt(y, zero)), lax.ne(rest, zero))
    return select(other_sign, rest + y, rest)


def _fmod(x, y):
    """x - y trunc(x / y), with the sign of x. Of integers by 0: 0."""
    real_operands("remainder", x)
    if dtypes.is_integer(kind(x)):
        y = select(lax.eq(y, 0), 1, y)
    return lax.rem(x, y)


def _divmod(x, y):
    return _float_divmod(x, y) if dtypes.is_floating(kind(x)) else (_floor_divide(x, y), _remainder(x, y))


def _power(x, y):
    """x to the power y; of integers by repeated squaring, and to a negative power 1 / x^-y, rounded towards zero."""
    dtype = kind(x)
    if not dtypes.is_integer(dtype):
        return lax.pow(x, y)
    x, y = _full_operands(x, y)
    result, base, exponent = filled(x, 1), x, y
    for _ in range(min(dtypes.itemsize_bits(dtype), 6)):                # a base beyond ±1 overflows at higher exponents
        result = select(lax.ne(lax.bitwise_and(exponent, 1), 0), result * base, result)
        base, exponent = base * base, lax.shift_right_logical(exponent, 1)
    if dtypes.is_signed(dtype):
        odd = lax.ne(lax.bitwise_and(y, 1), 0)
        reciprocal = select(lax.eq(x, 1), 1, select(lax.eq(x, -1), select(odd, filled(x, -1), filled(x, 1)), 0))
        result = select(lax.lt(y, 0), reciprocal, result)
    return result


def _full_operands(x, y):
    """The operands as arrays of one shape."""
    shape = typeof(x).shape or typeof(y).shape
    return [lax.broadcast_in_dim(v, shape, ()) if typeof(v).shape != shape else as_array(v) for v in (x, y)]


_add = lambda x, y: lax.bitwise_or(x, y) if is_bool(x) else lax.add(x, y)
_multiply = lambda x, y: lax.bitwise_and(x, y) if is_bool(x) else lax.mul(x, y)
_absolute = lambda x: as_array(x) if is_bool(x) or dtypes.is_unsigned(kind(x)) else lax.abs(x)

add = binary("add", promote_args, _add, "x1 + x2; of booleans, logical or.")
subtract = binary("subtract", promote_args, lax.sub, "x1 - x2; not of booleans (TypeError).")
multiply = binary("multiply", promote_args, _multiply, "x1 x2; of booleans, logical and.")
divide = binary("divide", promote_args_inexact, lax.div, "x1 / x2 in floating point, also of integers.")
floor_divide = binary("floor_divide", promote_args_numeric, _floor_divide, "The greatest integer not above x1 / x2, in their common dtype.")
remainder = binary("remainder", promote_args_numeric, _remainder, "x1 - x2 floor(x1 / x2), which has the sign of x2, as Python's %.")
fmod = binary("fmod", promote_args_numeric, _fmod, "x1 - x2 trunc(x1 / x2), which has the sign of x1, as C's fmod.")
divmod = binary("divmod", promote_args_numeric, _divmod, "The pair (floor_divide(x1, x2), remainder(x1, x2)).")
float_power = binary("float_power", promote_args_inexact, lax.pow, "x1 to the power x2 in floating point, also of integers.")
negative = unary("negative", promote_args, lax.neg, "-x; not of booleans (TypeError).")
positive = unary("positive", promote_args, as_array, "x itself.")
absolute = unary("absolute", promote_args, _absolute, "|x|; of complex x its modulus, a real array.")
fabs = unary("fabs", promote_args_inexact, lambda x: lax.abs(*real_operands("fabs", x)), "|x| in floating point; real x.")
sign = unary("sign", promote_args, lax.sign, "-1, 0 or 1 by the sign of x; of complex x: x / |x|.")
square = unary("square", promote_args_numeric, lax.square, "x².")
reciprocal = unary("reciprocal", promote_args_inexact, lambda x: lax.integer_pow(x, -1), "1 / x in floating point.")
also("true_divide", of=divide), also("mod", of=remainder), also("abs", of=absolute)


def _power_args(name, x, y):
    """Integers stay integers as exponents of floating and complex numbers."""
    arraylike(name, x, y)
    if dtypes.is_integer(kind(y)) and dtypes.is_inexact(kind(x)) and type(y) is not int:
        return broadcast_operands(name, x, y)
    return promote_args_numeric(name, x, y)


_power_of_values = binary("power", _power_args, _power, "")
__all__.pop()


def _integer_power(x, exponent):
    return lax.integer_pow(*promote_args_numeric("power", x), exponent)


_integer_power.__name__ = "power"
_integer_power = library(_integer_power, static_argnames=("exponent",))


def power(x1, x2, /):
    """x1 to the power x2, in their common dtype.

    x1, x2: arrays or numbers that broadcast. An x2 that is a Python int is written out as products, which differentiates
    well everywhere. Raises TypeError for integers to the power of a negative Python int.
    """
    if type(x2) is int or isinstance(x2, np.integer):
        return _integer_power(x1, int(x2))
    return _power_of_values(x1, x2)


__all__ += ["power"]
also("pow", of=power)


# --- extrema ----------------------------------------------------------------------------------------------------------------------

maximum = binary("maximum", promote_args, lax.max, "The greater of x1 and x2; NaN if either is.")
minimum = binary("minimum", promote_args, lax.min, "The less of x1 and x2; NaN if either is.")
fmax = binary("fmax", promote_args, lambda x, y: select(lax.ne(y, y), x, select(lax.ne(x, x), y, lax.max(x, y))),
              "The greater of x1 and x2; of a number and NaN the number.")
fmin = binary("fmin", promote_args, lambda x, y: select(lax.ne(y, y), x, select(lax.ne(x, x), y, lax.min(x, y))),
              "The less of x1 and x2; of a number and NaN the number.")


@library
def clip(arr, /, min=None, max=None, *, a_min=None, a_max=None):
    """min(max(arr, min), max): arr limited to the interval [min, max].

    arr: an array. min, max: numbers or arrays that broadcast with it; None: no limit on that side. Where min > max the result
    is max. a_min, a_max: their older names. Raises ValueError for complex operands, and for a limit that is given by both its names.
    """
    if a_min is not None and min is not None or a_max is not None and max is not None:
        raise ValueError("clip: a_min and a_max are older names of min and max; pass each limit once")
    min, max = a_min if min is None else min, a_max if max is None else max
    bounds = [bound for bound in (min, max) if bound is not None]
    arr, *bounds = promote_args("clip", arr, *bounds)
    if dtypes.is_complex(kind(arr)):
        raise ValueError("clip takes real operands: complex numbers have no order. Clip the real and imaginary parts instead.")
    bounds = iter(bounds)
    out = as_array(arr)
    if min is not None:
        out = lax.max(next(bounds), out)
    return lax.min(next(bounds), out) if max is not None else out


# --- rounding ---------------------------------------------------------------------------------------------------------------------

def _rounding(name: str, compute: Callable) -> Callable:
    def rounded(x):
        real_operands(name, x)
        return compute(x) if dtypes.is_floating(kind(x)) else as_array(x)
    return rounded


def _to_even(x):
    if dtypes.is_complex(kind(x)):
        return lax.complex(_to_even(lax.real(x)), _to_even(lax.imag(x)))
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


_towards_zero = lambda x: select(lax.lt(x, 0.0), lax.ceil(x), lax.floor(x))

floor = unary("floor", promote_args, _rounding("floor", lax.floor), "The greatest integer not above x, in x's dtype.")
ceil = unary("ceil", promote_args, _rounding("ceil", lax.ceil), "The least integer not below x, in x's dtype.")
trunc = unary("trunc", promote_args, _rounding("trunc", _towards_zero), "The integer part of x, in x's dtype.")
rint = unary("rint", promote_args_inexact, _to_even, "The nearest integer, ties to even, in floating point.")
modf = unary("modf", promote_args_inexact, lambda x: (lambda whole: (select(lax.eq(lax.abs(x), math.inf), 0.0, x - whole), whole))(
    _towards_zero(*real_operands("modf", x))), "The pair (fractional part, integer part), both with the sign of x.")


@library(static_argnames=("decimals",))
def _round(a, decimals):
    (a,) = arraylike("round", a)
    dtype = kind(a)
    if dtype == dtypes.bool_:
        raise ValueError("round takes numbers, got booleans")
    if dtypes.is_integer(dtype):
        if decimals >= 0:
            return as_array(a)
        if decimals < -18:
            return filled(a, 0)
        unit = 10 ** -decimals
        if unit > int(dtypes.iinfo(dtype).max):
            return filled(a, 0)
        half, rest = unit // 2, _remainder(a, converted(unit, dtype))
        down = a - rest
        odd = lax.ne(_remainder(_floor_divide(down, converted(unit, dtype)), converted(2, dtype)), 0)
        up = lax.bitwise_or(lax.gt(rest, half), lax.bitwise_and(lax.eq(rest, half), odd))
        return select(up, down + unit, down)
    if dtypes.is_complex(dtype):
        return lax.complex(_round(lax.real(a), decimals), _round(lax.imag(a), decimals))
    if decimals == 0:
        return _to_even(a)
    factor = 10.0 ** abs(decimals)
    wide = lax.convert_element_type(a, np.float32) if dtypes.is_floating(dtype) and dtypes.itemsize_bits(dtype) <= 16 else a
    out = _to_even(lax.mul(wide, factor)) / factor if decimals > 0 else _to_even(lax.div(wide, factor)) * factor
    return lax.convert_element_type(out, dtype) if wide is not a else out


def round(a, decimals: int = 0, out=None):
    """`a` rounded to `decimals` decimal places (negative: to tens, hundreds, …), ties to even, in its dtype.

    a: an array of numbers. Raises TypeError when decimals is no int; NotImplementedError for `out`.
    """
    unsupported_out("round", out)
    return _round(a, operator.index(decimals))


def unsupported_out(name: str, out) -> None:
    """Arrays are immutable: NumPy's argument `out` cannot be honoured."""
    if out is not None:
        raise NotImplementedError(f"{name}: the argument `out` is not supported, since arrays are immutable; use the returned array")


__all__ += ["clip", "round"]
also("around", of=round)


# --- comparisons and logic ----------------------------------------------------------------------------------------------------------

equal = binary("equal", promote_args, lax.eq, "x1 == x2.")
not_equal = binary("not_equal", promote_args, lax.ne, "x1 != x2.")


def _ordered(compare: Callable, on_ties: Callable) -> Callable:
    """Complex numbers are ordered by real part, then by imaginary part."""
    def compute(x, y):
        if not dtypes.is_complex(kind(x)):
            return compare(x, y)
        return select(lax.eq(lax.real(x), lax.real(y)), compare(lax.imag(x), lax.imag(y)), on_ties(lax.real(x), lax.real(y)))
    return compute


less = binary("less", promote_args, _ordered(lax.lt, lax.lt), "x1 < x2.")
less_equal = binary("less_equal", promote_args, _ordered(lax.le, lax.lt), "x1 <= x2.")
greater = binary("greater", promote_args, _ordered(lax.gt, lax.gt), "x1 > x2.")
greater_equal = binary("greater_equal", promote_args, _ordered(lax.ge, lax.gt), "x1 >= x2.")


def _boolean_args(name, *args):
    return broadcast_operands(name, *[as_bool(x) for x in arraylike(name, *args)])


logical_and = binary("logical_and", _boolean_args, lax.bitwise_and, "x1 and x2, numbers counting as x != 0.")
logical_or = binary("logical_or", _boolean_args, lax.bitwise_or, "x1 or x2, numbers counting as x != 0.")
logical_xor = binary("logical_xor", _boolean_args, lax.bitwise_xor, "Whether one of x1 and x2 is true and the other is not.")
logical_not = unary("logical_not", _boolean_args, lax.bitwise_not, "not x, numbers counting as x != 0.")

bitwise_and = binary("bitwise_and", promote_args, lax.bitwise_and, "x1 & x2, bit by bit, of integers or booleans.")
bitwise_or = binary("bitwise_or", promote_args, lax.bitwise_or, "x1 | x2, bit by bit, of integers or booleans.")
bitwise_xor = binary("bitwise_xor", promote_args, lax.bitwise_xor, "x1 ^ x2, bit by bit, of integers or booleans.")
invert = unary("invert", promote_args, lax.bitwise_not, "~x, bit by bit, of integers or booleans.")
left_shift = binary("left_shift", promote_args_numeric, lax.shift_left, "x1 2^x2 of integers: the bits moved up by x2 places.")
right_shift = binary("right_shift", promote_args_numeric, lambda x, y: (
    lax.shift_right_logical if dtypes.is_unsigned(kind(x)) else lax.shift_right_arithmetic)(x, y),
    "floor(x1 / 2^x2) of integers: the bits moved down by x2 places.")
bitwise_count = unary("bitwise_count", promote_args, lambda x: lax.convert_element_type(lax.population_count(_absolute(x)), np.uint8)
                      if not is_bool(x) else lax.convert_element_type(x, np.uint8), "The number of bits that are set in |x|, as uint8.")
also("bitwise_not", "bitwise_invert", of=invert), also("bitwise_left_shift", of=left_shift), also("bitwise_right_shift", of=right_shift)


# --- questions about numbers -----------------------------------------------------------------------------------------------------------

def _is_infinite(sign: int) -> Callable:
    def compute(x):
        if dtypes.is_complex(kind(x)):
            raise ValueError("complex infinities have no sign: ask for isinf, or of the real and imaginary parts")
        return lax.eq(x, sign * math.inf) if dtypes.is_floating(kind(x)) else filled(x, False, dtypes.bool_)
    return compute


def _isinf(x):
    if dtypes.is_complex(kind(x)):
        return lax.bitwise_or(_isinf(lax.real(x)), _isinf(lax.imag(x)))
    return lax.eq(lax.abs(x), math.inf) if dtypes.is_floating(kind(x)) else filled(x, False, dtypes.bool_)


def _isfinite(x):
    if dtypes.is_complex(kind(x)):
        return lax.bitwise_and(lax.is_finite(lax.real(x)), lax.is_finite(lax.imag(x)))
    return lax.is_finite(x) if dtypes.is_floating(kind(x)) else filled(x, True, dtypes.bool_)


def _signbit(x):
    dtype = kind(x)
    if dtypes.is_complex(dtype):
        raise ValueError("signbit takes real operands")
    if dtypes.is_floating(dtype):
        return lax.lt(bits_of(x), 0)
    return lax.lt(x, 0) if dtypes.is_signed(dtype) else filled(x, False, dtypes.bool_)


isnan = unary("isnan", promote_args, lambda x: lax.ne(x, x), "Whether x is NaN (of complex x: either part).")
isinf = unary("isinf", promote_args, _isinf, "Whether x is infinite (of complex x: either part).")
isfinite = unary("isfinite", promote_args, _isfinite, "Whether x is neither infinite nor NaN.")
isposinf = unary("isposinf", promote_args, _is_infinite(1), "Whether x is +inf; real x (else ValueError).")
isneginf = unary("isneginf", promote_args, _is_infinite(-1), "Whether x is -inf; real x (else ValueError).")
signbit = unary("signbit", promote_args, _signbit, "Whether the sign bit of x is set: x < 0 or x is -0.0; real x (else ValueError).")
isreal = unary("isreal", promote_args, lambda x: lax.eq(lax.imag(x), 0.0) if dtypes.is_complex(kind(x)) else filled(x, True, dtypes.bool_),
               "Whether the imaginary part is zero.")
iscomplex = unary("iscomplex", promote_args, lambda x: lax.ne(lax.imag(x), 0.0) if dtypes.is_complex(kind(x)) else filled(x, False, dtypes.bool_),
                  "Whether the imaginary part is not zero.")


@library(static_argnames=("equal_nan",))
def isclose(a, b, rtol=1e-05, atol=1e-08, equal_nan: bool = False):
    """|a - b| <= atol + rtol |b|, elementwise; equal infinities are close, NaNs if equal_nan.

    a, b: arrays or numbers that broadcast. Returns booleans.
    """
    a, b = promote_args("isclose", a, b)
    dtype = kind(a)
    if dtype == dtypes.bool_:
        dtype = dtypes.default_int()
        a, b = converted(a, dtype), converted(b, dtype)
    if dtypes.is_integer(dtype):
        dtype = dtypes.to_inexact(dtype)
        a, b = converted(a, dtype), converted(b, dtype)
    rtol, atol = [lax.convert_element_type(t, dtypes.to_real(dtype)) for t in arraylike("isclose", rtol, atol)]
    close = lax.le(lax.abs(lax.sub(a, b)), atol + rtol * lax.abs(b))
    finite = lax.bitwise_and(_isfinite(a), _isfinite(b))
    out = lax.bitwise_or(lax.bitwise_and(close, finite), lax.eq(a, b))
    return lax.bitwise_or(out, lax.bitwise_and(lax.ne(a, a), lax.ne(b, b))) if equal_nan else out


__all__ += ["isclose"]


# --- parts of numbers ---------------------------------------------------------------------------------------------------------------

def _imag(x):
    return lax.imag(x) if dtypes.is_complex(kind(x)) else filled(x, 0)


def _angle(x):
    return lax.atan2(lax.imag(x), lax.real(x)) if dtypes.is_complex(kind(x)) else lax.atan2(filled(x, 0), x)


def _copysign(x, y):
    real_operands("copysign", x)
    return select(_signbit(y), lax.neg(lax.abs(x)), lax.abs(x))


def _heaviside(x, y):
    real_operands("heaviside", x)
    return select(lax.lt(x, 0.0), 0.0, select(lax.gt(x, 0.0), 1.0, select(lax.eq(x, 0.0), y, x)))


def _spacing(x):
    """The distance to the next number away from zero."""
    if dtypes.is_complex(kind(x)):
        raise ValueError("spacing takes real operands")
    return lax.nextafter(x, select(_signbit(x), filled(x, -math.inf), filled(x, math.inf))) - x


def _frexp(x):
    """x = m 2^e, read from the bits sign | exponent | fraction; the fraction of a number below the normal ones is moved up to be normal."""
    (x,) = real_operands("frexp", as_array(x))
    dtype = kind(x)
    if dtypes.itemsize_bits(dtype) < 32:
        mantissa, exponent = _frexp(lax.convert_element_type(x, np.float32))
        return lax.convert_element_type(mantissa, dtype), exponent
    info, bits = dtypes.finfo(dtype), bits_of(x)
    fraction_bits, infinite, half = info.nmant, 2 * int(info.maxexp) - 1, int(info.maxexp) - 2
    field = lax.bitwise_and(lax.shift_right_logical(bits, fraction_bits), infinite)
    fraction = lax.bitwise_and(bits, (1 << fraction_bits) - 1)
    lift = lax.clz(fraction) - (dtypes.itemsize_bits(dtype) - 1 - fraction_bits)
    tiny = lax.bitwise_and(lax.eq(field, 0), lax.ne(fraction, 0))
    lifted = lax.bitwise_and(lax.shift_left(fraction, select(tiny, lift, 0)), (1 << fraction_bits) - 1)
    sign_bit = lax.bitwise_and(bits, int(dtypes.iinfo(kind(bits)).min))
    mantissa = lax.bitcast_convert_type(lax.bitwise_or(lax.bitwise_or(sign_bit, half << fraction_bits), lifted), dtype)
    exponent = select(tiny, 1 - lift, field) - half
    same = lax.bitwise_or(lax.eq(field, infinite), lax.bitwise_and(lax.eq(field, 0), lax.eq(fraction, 0)))
    return select(same, x, mantissa), lax.convert_element_type(select(same, 0, exponent), np.int32)


def _ldexp(x, n):
    """x 2^n in three steps, none of whose powers of two is beyond the range of normal numbers."""
    dtype = kind(x)
    info = dtypes.finfo(dtype)
    step = int(info.maxexp) - 2
    n = lax.clamp(converted(-3 * step, np.int32), lax.convert_element_type(n, np.int32), converted(3 * step, np.int32))
    for _ in range(3):
        part = lax.clamp(converted(-step, np.int32), n, converted(step, np.int32))
        x, n = lax.mul(x, lax.exp2(lax.convert_element_type(part, dtype))), n - part
    return x


real = unary("real", promote_args, lambda x: lax.real(x) if dtypes.is_complex(kind(x)) else as_array(x), "The real part of x.")
imag = unary("imag", promote_args, _imag, "The imaginary part of x; zeros for real x.")
conjugate = unary("conjugate", promote_args, lambda x: lax.conj(x) if dtypes.is_complex(kind(x)) else as_array(x),
                  "The complex conjugate of x.")
copysign = binary("copysign", promote_args_inexact, _copysign, "|x1| with the sign of x2, -0.0 counting as negative; real operands.")
nextafter = binary("nextafter", promote_args_inexact, lambda x, y: lax.nextafter(*_full_operands(*real_operands("nextafter", x, y))),
                   "The number next to x1 in the direction of x2; real operands.")
heaviside = binary("heaviside", promote_args_inexact, _heaviside, "0 for x1 < 0, 1 for x1 > 0, x2 at x1 = 0; real operands.")
spacing = unary("spacing", promote_args_inexact, _spacing, "The distance from x to the next number further from zero; real x.")
frexp = unary("frexp", promote_args_inexact, _frexp, "The pair (m, e) with x = m 2^e, 1/2 <= |m| < 1, e an int32; real x.")
also("conj", of=conjugate)


@library
def ldexp(x1, x2, /):
    """x1 2^x2.

    x1: real numbers; x2: integers that broadcast with it (else ValueError).
    """
    x1, x2 = arraylike("ldexp", x1, x2)
    if not dtypes.is_integer(kind(x2)) and not is_bool(x2) or dtypes.is_complex(kind(x1)):
        raise ValueError(f"ldexp takes real numbers and integer exponents, got {typeof(x1)} and {typeof(x2)}")
    (x1,) = promote_args_inexact("ldexp", x1)
    return _ldexp(*_full_operands(*broadcast_operands("ldexp", x1, x2)))


@library(static_argnames=("deg",))
def angle(z, deg: bool = False):
    """The argument of z in (-π, π], in degrees if deg; of real z: 0 or π."""
    (z,) = promote_args_inexact("angle", z)
    out = _angle(z)
    return out * (180 / math.pi) if deg else out


@library(static_argnames=("copy",))
def nan_to_num(x, copy: bool = True, nan=0.0, posinf=None, neginf=None):
    """x with NaN replaced by `nan` and infinities by `posinf` and `neginf` (None: the dtype's greatest and least number).

    x: an array; of complex x both parts are so treated. Integers and booleans are returned as they are.
    """
    (x,) = arraylike("nan_to_num", x)
    dtype = kind(x)
    if not dtypes.is_inexact(dtype):
        return as_array(x)
    if dtypes.is_complex(dtype):
        return lax.complex(*[nan_to_num(part, nan=nan, posinf=posinf, neginf=neginf) for part in (lax.real(x), lax.imag(x))])
    info = dtypes.finfo(dtype)
    replacements = [converted(v, dtype) for v in (nan, float(info.max) if posinf is None else posinf, float(info.min) if neginf is None else neginf)]
    x, nan, posinf, neginf = broadcast_operands("nan_to_num", as_array(x), *replacements)
    out = select(lax.ne(x, x), nan, x)
    out = select(lax.eq(out, math.inf), posinf, out)
    return select(lax.eq(out, -math.inf), neginf, out)


@library
def i0(x):
    """The modified Bessel function of the first kind and order 0. Real x (else ValueError)."""
    (x,) = promote_args_inexact("i0", x)
    if dtypes.is_complex(kind(x)):
        raise ValueError("i0 takes real operands")
    return lax.exp(lax.abs(x)) * lax.bessel_i0e(x)


__all__ += ["ldexp", "angle", "nan_to_num", "i0"]


# --- integers ------------------------------------------------------------------------------------------------------------------------

def _integers(name: str):
    def promote(_, *args):
        args = promote_args(name, *args)
        if not dtypes.is_integer(kind(args[0])):
            raise ValueError(f"{name} takes integers, got {typeof(args[0])}")
        return _full_operands(*args)
    return promote


def _gcd(x, y):
    """Euclid's algorithm: (x, y) -> (y, x mod y) until y = 0, everywhere at once."""
    def step(pair):
        x, y = pair
        return select(lax.ne(y, 0), y, x), select(lax.ne(y, 0), lax.rem(x, select(lax.eq(y, 0), 1, y)), y)
    some = lambda pair: lax.reduce_or(lax.ne(pair[1], 0), tuple(range(typeof(pair[1]).ndim)))
    return lax.while_loop(some, step, (_absolute(x), _absolute(y)))[0]


def _lcm(x, y):
    divisor = _gcd(x, y)
    return lax.mul(_absolute(x), lax.div(_absolute(y), select(lax.eq(divisor, 0), 1, divisor)))


gcd = binary("gcd", _integers("gcd"), _gcd, "The greatest common divisor of integers; gcd(0, 0) = 0.")
lcm = binary("lcm", _integers("lcm"), _lcm, "The least common multiple of integers.")


# --- where --------------------------------------------------------------------------------------------------------------------------

@library
def _where(condition, x, y):
    condition, x, y = arraylike("where", condition, x, y)
    x, y = promote_dtypes(x, y)
    condition, x, y = broadcast_operands("where", as_bool(condition), x, y)
    if typeof(condition).shape and not typeof(x).shape and not typeof(y).shape:
        x = lax.broadcast_in_dim(x, typeof(condition).shape, ())
    return select(condition, x, y)


def where(condition, x, y):
    """x where condition holds, else y, elementwise; the public function of this name is in sorting.py, beside nonzero."""
    if isinstance(x, Tracer) and isinstance(condition, Tracer) and getattr(y, "aval", None) is x.aval and \
            condition.aval.dtype == dtypes.bool_ and condition.aval.shape == x.aval.shape:
        return select(condition, x, y)                 # traced, and nothing to promote or to broadcast
    return _where(condition, x, y)
