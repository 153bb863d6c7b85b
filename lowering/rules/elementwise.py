"""How elementwise operations are written: most are one StableHLO or CHLO operation, named in a table."""
from __future__ import annotations

import numpy as np

from lowering.emit import lower_via, lowers
from mini_jax.core import dtypes
from mini_jax.lax import bitcast, elementwise as ew, selection
from mini_jax.lax.shapes import convert_element_type

# --- one operation each -----------------------------------------------------------------------------------------------
# Operands and result have one type.
_STABLEHLO = {
    ew.neg_p: "negate", ew.add_p: "add", ew.sub_p: "subtract", ew.mul_p: "multiply", ew.div_p: "divide", ew.rem_p: "remainder",
    ew.sqrt_p: "sqrt", ew.rsqrt_p: "rsqrt", ew.cbrt_p: "cbrt", ew.exp_p: "exponential", ew.expm1_p: "exponential_minus_one",
    ew.log_p: "log", ew.log1p_p: "log_plus_one", ew.logistic_p: "logistic", ew.sin_p: "sine", ew.cos_p: "cosine", ew.tan_p: "tan",
    ew.tanh_p: "tanh", ew.atan2_p: "atan2", ew.floor_p: "floor", ew.ceil_p: "ceil", ew.not_p: "not", ew.and_p: "and", ew.or_p: "or",
    ew.xor_p: "xor", ew.shift_left_p: "shift_left", ew.shift_right_arithmetic_p: "shift_right_arithmetic",
    ew.shift_right_logical_p: "shift_right_logical", }
_CHLO = {
    ew.asin_p: "asin", ew.acos_p: "acos", ew.atan_p: "atan", ew.sinh_p: "sinh", ew.cosh_p: "cosh", ew.asinh_p: "asinh",
    ew.acosh_p: "acosh", ew.atanh_p: "atanh", ew.nextafter_p: "next_after",
}
# The result's dtype is another one than the operand's.
_OTHER_DTYPE = {ew.is_finite_p: "is_finite", ew.real_p: "real", ew.imag_p: "imag"}
_COMPARISONS = {ew.eq_p: "EQ", ew.ne_p: "NE", ew.lt_p: "LT", ew.le_p: "LE", ew.gt_p: "GT", ew.ge_p: "GE",
                ew.eq_to_p: "EQ", ew.lt_to_p: "LT", ew.le_to_p: "LE"}
_TOTAL_ORDER = (ew.eq_to_p, ew.lt_to_p, ew.le_to_p)


def through_float32(rule):
    """The rule, except that what it would write for float8_e8m0fnu is computed in float32: XLA would take float16, whose
    exponents are too few, and take NaN for a number."""
    def lowered(e, eqn, *operands):
        if eqn.invars[0].aval.dtype != dtypes.float8_e8m0fnu:
            return rule(e, eqn, *operands)
        wide = lambda *values: eqn.primitive.bind(*[convert_element_type(x, dtypes.float32) for x in values], **eqn.params)
        return e.via(lambda *values: [convert_element_type(wide(*values), eqn.outvars[0].aval.dtype)], eqn.in_types, operands)[0]
    return lowered


_EXPONENTIALS = frozenset([ew.exp_p, ew.exp2_p, ew.expm1_p, ew.sinh_p, ew.cosh_p, ew.logistic_p])


def keeping_nan(rule):
    """The rule, except that exponentials computed in float32, in a module with a constant NaN, get what is NaN put in its place
    afterwards: XLA's CPU backend makes anything of exp(select(p, NaN, x)), in jaxlib 0.10 often, in 0.12 now and then."""
    def lowered(e, eqn, *operands):
        result, aval = rule(e, eqn, *operands), eqn.outvars[0].aval
        if eqn.primitive not in _EXPONENTIALS or not e.module.holds_nan or e.module.platform != "cpu" or (
                not dtypes.is_floating(aval.dtype) or dtypes.itemsize_bits(aval.dtype) > 32):
            return result
        x, flags = operands[0], aval.update(dtype=dtypes.bool_).mlir
        lost = e.emit(f"stablehlo.compare NE, {x}, {x}, FLOAT : ({aval.mlir}, {aval.mlir}) -> {flags}")
        return e.emit(f"stablehlo.select {lost}, {x}, {result} : {flags}, {aval.mlir}")
    return lowered


def spread(e, eqn, operands) -> list[str]:
    """The operands at the shape of the result."""
    shape = eqn.outvars[0].aval.shape
    return [x if v.aval.shape == shape else e.spread(x, v, v.aval.update(shape=shape)) for x, v in zip(operands, eqn.invars)]


@lowers(*_STABLEHLO)
@keeping_nan
@through_float32
def _stablehlo(e, eqn, *operands):
    operands = ", ".join(spread(e, eqn, operands))
    accuracy = _accuracy(eqn.params["accuracy"]) if eqn.params else ""
    return e.emit(f"stablehlo.{_STABLEHLO[eqn.primitive]} {operands}{accuracy} : {eqn.outvars[0].aval.mlir}")


@lowers(ew.clz_p)
def _clz(e, eqn, x):
    """Of the bits as an unsigned number: XLA of jaxlib 0.10 folds a known negative one wrongly."""
    aval = eqn.outvars[0].aval
    if not dtypes.is_signed(aval.dtype) or dtypes.itemsize_bits(aval.dtype) < 8:
        return e.emit(f"stablehlo.count_leading_zeros {x} : {aval.mlir}")
    bits = aval.update(dtype=np.dtype(f"u{aval.dtype.itemsize}"))
    x = e.emit(f"stablehlo.bitcast_convert {x} : ({aval.mlir}) -> {bits.mlir}")
    x = e.emit(f"stablehlo.count_leading_zeros {x} : {bits.mlir}")
    return e.emit(f"stablehlo.bitcast_convert {x} : ({bits.mlir}) -> {aval.mlir}")


@lowers(*_CHLO)
@keeping_nan
@through_float32
def _chlo(e, eqn, *operands):
    out = eqn.outvars[0].aval.mlir
    operands, types = ", ".join(spread(e, eqn, operands)), ", ".join([out] * len(operands))
    return e.emit(f"chlo.{_CHLO[eqn.primitive]} {operands} : {types} -> {out}")


@lowers(*_OTHER_DTYPE)
def _other_dtype(e, eqn, x):
    return e.emit(f"stablehlo.{_OTHER_DTYPE[eqn.primitive]} {x} : ({eqn.invars[0].aval.mlir}) -> {eqn.outvars[0].aval.mlir}")


def _accuracy(accuracy) -> str:
    """The attribute for an `accuracy` parameter."""
    if accuracy is None or accuracy is ew.AccuracyMode.DEFAULT:
        return ""
    if isinstance(accuracy, ew.AccuracyMode):
        text = f"mode = #stablehlo.result_accuracy_mode<{accuracy.name}>"
    else:
        bounds = [f"{name} = {value:e}" for name, value in (("atol", accuracy.atol), ("rtol", accuracy.rtol)) if value]
        bounds += [f"ulps = {accuracy.ulps}"] if accuracy.ulps else []
        text = ", ".join([*bounds, "mode = #stablehlo.result_accuracy_mode<TOLERANCE>"])
    return f" {{result_accuracy = #stablehlo.result_accuracy<{text}>}}"


# --- comparisons, choices ---------------------------------------------------------------------------------------------

def compare(e, direction: str, x: str, y: str, aval, total_order: bool = False) -> str:
    """x `direction` y, both of type `aval`: an array of booleans."""
    if dtypes.is_inexact(aval.dtype):
        kind = "TOTALORDER" if total_order else "FLOAT"
    else:
        kind = "SIGNED" if dtypes.is_signed(aval.dtype) else "UNSIGNED"
    out = aval.update(dtype=dtypes.bool_)
    return e.emit(f"stablehlo.compare {direction}, {x}, {y}, {kind} : ({aval.mlir}, {aval.mlir}) -> {out.mlir}")


@lowers(*_COMPARISONS)
@through_float32
def _comparison(e, eqn, x, y):
    x, y = spread(e, eqn, (x, y))
    aval = eqn.invars[0].aval.update(shape=eqn.outvars[0].aval.shape)
    return compare(e, _COMPARISONS[eqn.primitive], x, y, aval, eqn.primitive in _TOTAL_ORDER)


def _select(e, pred, pred_aval, on_true, on_false, out) -> str:
    return e.emit(f"stablehlo.select {pred}, {on_true}, {on_false} : {pred_aval.mlir}, {out.mlir}")


@lowers(selection.select_n_p)
def _select_n(e, eqn, which, *cases):
    out, choice = eqn.outvars[0].aval, eqn.invars[0].aval
    cases = [e.spread(case, v, out) for case, v in zip(cases, eqn.invars[1:])]
    if dtypes.is_bool(choice.dtype):
        return cases[0] if len(cases) == 1 else _select(e, which, choice, cases[1], cases[0], out)

    def pick(low, high):
        """cases[which], which is known to lie in [low, high), by bisection."""
        if high - low == 1:
            return cases[low]
        middle = (low + high) // 2
        below = compare(e, "LT", which, e.constant(middle, choice), choice)
        return _select(e, below, choice.update(dtype=dtypes.bool_), pick(low, middle), pick(middle, high), out)
    return pick(0, len(cases))


@lowers(selection.clamp_p)
def _clamp(e, eqn, low, x, high):
    out = eqn.outvars[0].aval
    low, x, high = spread(e, eqn, (low, x, high))
    if dtypes.is_bool(out.dtype):                                    # XLA clamps numbers only
        return e.emit(f"stablehlo.and {e.emit(f'stablehlo.or {low}, {x} : {out.mlir}')}, {high} : {out.mlir}")
    return e.emit(f"stablehlo.clamp {low}, {x}, {high} : {out.mlir}")


@lowers(ew.max_p, ew.min_p)
@through_float32
def _extremum(e, eqn, x, y):
    x, y = spread(e, eqn, (x, y))
    out = eqn.outvars[0].aval
    if not dtypes.is_complex(out.dtype):
        return e.emit(f"stablehlo.{'maximum' if eqn.primitive is ew.max_p else 'minimum'} {x}, {y} : {out.mlir}")
    return e.via(lambda x, y: [_lexicographic(ew.gt if eqn.primitive is ew.max_p else ew.lt, x, y)], [out, out], [x, y])[0]


def _lexicographic(before, x, y):
    """The one of two complex numbers whose real part, or else imaginary part, comes before the other's; NaN if either is."""
    first = selection.select(ew.eq(ew.real(x), ew.real(y)), before(ew.imag(x), ew.imag(y)), before(ew.real(x), ew.real(y)))
    return selection.select(ew.bitwise_or(ew.ne(x, x), ew.bitwise_and(first, ew.eq(y, y))), x, y)


# --- operations with parameters, and those whose spelling depends on the dtype ----------------------------------------

@lowers(ew.round_p)
@through_float32
def _round(e, eqn, x):
    ties = "even" if eqn.params["rounding_method"] is ew.RoundingMethod.TO_NEAREST_EVEN else "afz"
    return e.emit(f"stablehlo.round_nearest_{ties} {x} : {eqn.outvars[0].aval.mlir}")


@lowers(ew.reduce_precision_p)
def _reduce_precision(e, eqn, x):
    form = "e{exponent_bits}m{mantissa_bits}".format(**eqn.params)
    return e.emit(f"stablehlo.reduce_precision {x}, format = {form} : {eqn.outvars[0].aval.mlir}")


@lowers(bitcast.bitcast_convert_type_p)
def _bitcast(e, eqn, x):
    have, out = eqn.invars[0].aval, eqn.outvars[0].aval
    return x if have.dtype == out.dtype else e.emit(f"stablehlo.bitcast_convert {x} : ({have.mlir}) -> {out.mlir}")


@lowers(ew.population_count_p)
def _population_count(e, eqn, x):
    out = eqn.outvars[0].aval
    bits = dtypes.itemsize_bits(out.dtype)
    if bits >= 8:
        return e.emit(f"stablehlo.popcnt {x} : {out.mlir}")
    wide = out.update(dtype=dtypes.uint8)                            # XLA counts a narrow integer's sign, repeated to 8 bits
    kept = e.emit(f"stablehlo.and {e.convert(x, out, wide.dtype)}, {e.constant((1 << bits) - 1, wide)} : {wide.mlir}")
    return e.convert(e.emit(f"stablehlo.popcnt {kept} : {wide.mlir}"), wide, out.dtype)


@lowers(ew.mulhi_p)
def _mulhi(e, eqn, x, y):
    out = eqn.outvars[0].aval
    x, y = spread(e, eqn, (x, y))
    bits = dtypes.itemsize_bits(out.dtype)
    if bits >= 32:
        return e.emit(f"chlo.mulhi {x}, {y} : {out.mlir}, {out.mlir} -> {out.mlir}")
    wide = out.update(dtype=dtypes.int32 if dtypes.is_signed(out.dtype) else dtypes.uint32)
    product = e.emit(f"stablehlo.multiply {e.convert(x, out, wide.dtype)}, {e.convert(y, out, wide.dtype)} : {wide.mlir}")
    return e.convert(e.emit(f"stablehlo.shift_right_logical {product}, {e.constant(bits, wide)} : {wide.mlir}"), wide, out.dtype)


@lowers(ew.abs_p)
@through_float32
def _abs(e, eqn, x):
    have, out = eqn.invars[0].aval, eqn.outvars[0].aval
    return e.emit(f"stablehlo.abs {x} : {out.mlir if have.dtype == out.dtype else f'({have.mlir}) -> {out.mlir}'}")


@lowers(ew.sign_p)
@through_float32
def _sign(e, eqn, x):
    out = eqn.outvars[0].aval
    if not dtypes.is_unsigned(out.dtype):
        return e.emit(f"stablehlo.sign {x} : {out.mlir}")
    zero = e.constant(0, out)
    return _select(e, compare(e, "EQ", x, zero, out), out.update(dtype=dtypes.bool_), zero, e.constant(1, out), out)


@lowers(ew.square_p)
@through_float32
def _square(e, eqn, x):
    out = eqn.outvars[0].aval
    if dtypes.is_complex(out.dtype):
        return e.emit(f"chlo.square {x} : {out.mlir} -> {out.mlir}")
    return e.emit(f"stablehlo.multiply {x}, {x} : {out.mlir}")


@lowers(ew.integer_pow_p)
@through_float32
def _integer_pow(e, eqn, x):
    """By repeated squaring: x¹³ = x · x⁴ · x⁸."""
    out, power, n = eqn.outvars[0].aval, None, abs(eqn.params["y"])
    while n:
        if n & 1:
            power = x if power is None else e.emit(f"stablehlo.multiply {power}, {x} : {out.mlir}")
        n >>= 1
        if n:
            x = e.emit(f"stablehlo.multiply {x}, {x} : {out.mlir}")
    if power is None:
        return e.constant(1, out)
    return power if eqn.params["y"] > 0 else e.emit(f"stablehlo.divide {e.constant(1, out)}, {power} : {out.mlir}")


@lowers(ew.pow_p)
@through_float32
def _pow(e, eqn, x, y):
    out = eqn.outvars[0].aval
    x, y = spread(e, eqn, (x, y))
    y = e.convert(y, eqn.invars[1].aval.update(shape=out.shape), out.dtype)
    return e.emit(f"stablehlo.power {x}, {y} : {out.mlir}")


@lowers(ew.exp2_p)
@keeping_nan
@through_float32
def _exp2(e, eqn, x):
    out = eqn.outvars[0].aval
    scaled = e.emit(f"stablehlo.multiply {e.constant(0.6931471805599453, out)}, {x} : {out.mlir}")
    accuracy = _accuracy(eqn.params["accuracy"]) if eqn.params else ""
    return e.emit(f"stablehlo.exponential {scaled}{accuracy} : {out.mlir}")


@lowers(ew.complex_p)
def _complex(e, eqn, x, y):
    x, y = spread(e, eqn, (x, y))
    return e.emit(f"stablehlo.complex {x}, {y} : {eqn.outvars[0].aval.mlir}")


lower_via(ew.conj_p, lambda x: ew.complex(ew.real(x), ew.neg(ew.imag(x))))
