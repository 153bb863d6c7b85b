"""Samples of elementwise operations, with NumPy as reference."""
import ml_dtypes
import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.lax.rows import BOOL, COMPLEX, FLOATS, INTS, NUMBERS, UINTS
from tests.samples import Sample, any_bits, booleans, constant, distinct, integers, uniform

WORDS = INTS | UINTS
STANDARD = frozenset([dtypes.bfloat16, dtypes.float16, dtypes.float32, dtypes.float64])
USUAL = frozenset([dtypes.float32, dtypes.complex64, dtypes.int32, dtypes.uint32, dtypes.bool_])
SINGLE = frozenset([dtypes.float32])


# --- functions of one operand -----------------------------------------------------------------------------------------

def unary(reference, low=-2.0, high=2.0, away_from=(), **options) -> list[Sample]:
    return [Sample((uniform(low, high, away_from=away_from),), reference=reference, **options)]


def accurate(reference, low=-2.0, high=2.0, **options) -> list[Sample]:
    """A function with an `accuracy` parameter, which float32 tries."""
    return unary(reference, low, high, **options) + [
        Sample((uniform(low, high),), {"accuracy": accuracy}, SINGLE, lambda x, accuracy: reference(x), order=0, batched=())
        for accuracy in (lax.AccuracyMode.HIGHEST, lax.Tolerance(atol=1e-6, rtol=1e-6, ulps=4))]


SAMPLES = {
    "neg": unary(np.negative),
    "abs": unary(np.abs, away_from=(0,)),
    "sign": unary(np.sign, away_from=(0,)),
    "square": unary(np.square),
    "sqrt": accurate(np.sqrt, 0.2, 4),
    "rsqrt": accurate(lambda x: 1 / np.sqrt(x), 0.2, 4),
    "cbrt": accurate(np.cbrt, 0.2, 4),
    "exp": accurate(np.exp),
    "exp2": accurate(np.exp2),
    "expm1": accurate(np.expm1),
    "log": accurate(np.log, 0.2, 4),
    "log1p": accurate(np.log1p, -0.5, 3),
    "logistic": accurate(lambda x: 1 / (1 + np.exp(-x))),
    "sin": accurate(np.sin),
    "cos": accurate(np.cos),
    "tan": accurate(np.tan, -1.2, 1.2),
    "asin": unary(np.arcsin, -0.8, 0.8),
    "acos": unary(np.arccos, -0.8, 0.8),
    "atan": unary(np.arctan, -0.9, 0.9),
    "sinh": unary(np.sinh),
    "cosh": unary(np.cosh),
    "tanh": accurate(np.tanh),
    "asinh": unary(np.arcsinh),
    "acosh": unary(np.arccosh, 1.2, 4),
    "atanh": unary(np.arctanh, -0.8, 0.8),
    "floor": unary(np.floor, away_from=(-1, 0, 1)),
    "ceil": unary(np.ceil, away_from=(-1, 0, 1)),
    "is_finite": unary(np.isfinite),
    "real": unary(np.real),
    "imag": unary(np.imag),
    "conj": unary(np.conj),
}

_TIES = constant([[-2.5, -0.5, 0.5], [1.5, 2.5, 3.5]])
SAMPLES["round"] = [
    *[Sample((uniform(away_from=(-1.5, -0.5, 0.5, 1.5)),), {"rounding_method": method}, accepted, lambda x, **_: np.round(x))
      for method, accepted in ((lax.RoundingMethod.TO_NEAREST_EVEN, FLOATS), (lax.RoundingMethod.AWAY_FROM_ZERO, STANDARD))],
    Sample((_TIES,), {"rounding_method": lax.RoundingMethod.TO_NEAREST_EVEN}, STANDARD, lambda x, **_: np.round(x), order=0),
    Sample((_TIES,), {"rounding_method": lax.RoundingMethod.AWAY_FROM_ZERO}, STANDARD,
           lambda x, **_: np.trunc(x + np.copysign(0.5, x)), order=0)]

_TO_E5M2 = {"exponent_bits": 5, "mantissa_bits": 2}
SAMPLES["reduce_precision"] = [
    Sample((uniform(),), _TO_E5M2, reference=lambda x, **_: x.astype(ml_dtypes.float8_e5m2).astype(x.dtype), order=0, linear=()),
    Sample((uniform(),), {"exponent_bits": 11, "mantissa_bits": 52}, frozenset([dtypes.float64]), reference=lambda x, **_: x)]

SAMPLES["integer_pow"] = [
    *[Sample((uniform(0.5, 1.5),), {"y": y}, accepted, lambda x, y: x ** np.asarray(y, x.dtype), tolerance=8.0)
      for y, accepted in ((0, USUAL - BOOL), (1, USUAL - BOOL), (2, USUAL - BOOL), (7, NUMBERS))],
    *[Sample((uniform(0.5, 1.5),), {"y": y}, accepted, lambda x, y: x ** float(y), tolerance=8.0)
      for y, accepted in ((-1, USUAL & (FLOATS | COMPLEX)), (-3, FLOATS | COMPLEX))]]


# --- functions of two operands ----------------------------------------------------------------------------------------

def binary(reference, first=(-2.0, 2.0), second=(-2.0, 2.0), accepted=None, **options) -> list[Sample]:
    """Two arrays, and each of the two as a scalar that stands for an array. first, second: intervals."""
    return [Sample((uniform(*first, shape=(2, 3)), uniform(*second, shape=(2, 3))), {}, accepted, reference, **options)] + [
        Sample((uniform(*first, shape=a), uniform(*second, shape=b)), {}, SINGLE if accepted is None or SINGLE <= accepted else WORDS & USUAL,
               reference, order=1, **options) for a, b in (((2, 3), ()), ((), (2, 3)))]


def _quotient(x, y):
    return x / y if x.dtype.kind in "fc" else np.trunc(x / y).astype(np.int64)


def _power(x, y):
    return x ** (y if x.dtype.kind == y.dtype.kind else y.astype(float))


def _angle(x, y):
    return -1j * np.log((y + 1j * x) / np.sqrt(x * x + y * y)) if np.iscomplexobj(x) else np.arctan2(x, y)


EITHER, BOTH = ((0,), (1,)), ((0,), (1,), (0, 1))
SAMPLES |= {
    "add": binary(np.add, linear=BOTH),
    "sub": binary(np.subtract, linear=BOTH),
    "mul": binary(np.multiply, linear=EITHER),
    "div": binary(_quotient, second=(0.6, 3), tolerance=8.0),
    "rem": binary(np.fmod, (1.2, 1.4), (0.9, 1), FLOATS) + binary(np.fmod, (-9, 9), (0.6, 3), WORDS),
    "pow": binary(_power, (0.5, 2), (-1.5, 2), FLOATS | COMPLEX, tolerance=16.0) + [
        Sample((uniform(0.5, 2), integers(-2, 4, dtype=np.int32)), {}, USUAL & (FLOATS | COMPLEX), _power, tolerance=8.0),
        Sample((uniform(0.5, 2), integers(0, 4, (), dtype=np.uint8)), dtypes=STANDARD, reference=_power, tolerance=8.0)],
    "atan2": binary(_angle, (0.5, 3), (0.5, 3), FLOATS | COMPLEX, tolerance=8.0),
    "complex": binary(lambda x, y: x + 1j * y, accepted=frozenset([dtypes.float32, dtypes.float64]), linear=BOTH),
    "nextafter": [Sample((uniform(0.2, 2), uniform(0.2, 2)), reference=np.nextafter, wide=False, tolerance=0.0)],
    "max": [Sample((distinct(), uniform(1.1, 1.2, ())), dtypes=USUAL, reference=np.maximum)],
    "min": [Sample((uniform(1.1, 1.2, ()), distinct()), dtypes=USUAL, reference=np.minimum)],
}


def _rolled(rng, dtype):
    return np.roll(distinct()(np.random.default_rng(1), dtype), 1)


for name, extremum in (("max", np.maximum), ("min", np.minimum)):
    SAMPLES[name].append(Sample((lambda rng, dtype: distinct()(np.random.default_rng(1), dtype), _rolled), reference=extremum))

for name, compare in {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
                      "ge": np.greater_equal, "eq_to": np.equal, "lt_to": np.less, "le_to": np.less_equal}.items():
    orders = USUAL if name in ("eq", "ne") else USUAL - COMPLEX
    SAMPLES[name] = [Sample((integers(1, 3), integers(1, 3)), reference=compare),
                     Sample((uniform(), constant(1)), dtypes=orders, reference=compare),
                     Sample((constant(1), uniform()), dtypes=orders, reference=compare)]


# --- bits, on Python's integers ---------------------------------------------------------------------------------------

def on_bits(function):
    """The reference that is function(number of bits, *operands) for single operands, as Python ints."""
    def reference(*operands):
        bits = dtypes.itemsize_bits(operands[0].dtype)
        results = [function(bits, *map(int, values)) for values in zip(*[np.broadcast_to(x, (2, 3)).ravel() for x in operands])]
        return np.array(results, object).reshape(2, 3)
    return reference


def bitwise(function, *operands) -> list[Sample]:
    return [Sample(operands, reference=on_bits(function), wide=False)]


def unsigned(bits: int, x: int) -> int:
    return x & (1 << bits) - 1


def signed(bits: int, x: int) -> int:
    x = unsigned(bits, x)
    return x - (1 << bits) if x >> bits - 1 else x


def places(rng, dtype):
    """Numbers of places to shift by, some of them beyond the width and some negative."""
    bits = dtypes.itemsize_bits(dtype)
    choices = [int(n) for n in rng.permutation([0, 1, bits // 2, bits - 1, bits, bits + 1, -1])[:6]]
    wrapped = [signed(bits, n) if dtypes.is_signed(dtype) else unsigned(bits, n) for n in choices]
    return np.array(wrapped, np.int64 if dtypes.is_signed(dtype) else np.uint64).astype(dtype).reshape(2, 3)


def shift(function):
    def shifted(bits, x, y):
        return function(bits, x, min(unsigned(bits, y), bits))
    return bitwise(shifted, any_bits(), places) + [
        Sample((any_bits(), constant(1)), dtypes=USUAL & WORDS, reference=on_bits(shifted), wide=False)]


SAMPLES |= {
    "and": bitwise(lambda bits, x, y: x & y, any_bits(), any_bits()),
    "or": bitwise(lambda bits, x, y: x | y, any_bits(), any_bits()),
    "xor": bitwise(lambda bits, x, y: x ^ y, any_bits(), any_bits()),
    "not": bitwise(lambda bits, x: ~x if bits > 1 else not x, any_bits()),
    "shift_left": shift(lambda bits, x, y: x << y),
    "shift_right_arithmetic": shift(lambda bits, x, y: signed(bits, x) >> y),
    "shift_right_logical": shift(lambda bits, x, y: unsigned(bits, x) >> y),
    "population_count": bitwise(lambda bits, x: unsigned(bits, x).bit_count(), any_bits()),
    "clz": bitwise(lambda bits, x: bits - unsigned(bits, x).bit_length(), any_bits()),
    "mulhi": bitwise(lambda bits, x, y: x * y >> bits, any_bits(), any_bits()),
}
SAMPLES["not"] = [Sample((any_bits(),), reference=np.invert)]


def _as_unsigned(x):
    return np.dtype(getattr(ml_dtypes, f"uint{dtypes.itemsize_bits(x.dtype)}", f"uint{dtypes.itemsize_bits(x.dtype)}"))


def _unsigned_bits(x):
    bits = dtypes.itemsize_bits(x.dtype)
    return x.view(f"u{x.dtype.itemsize}") & np.array((1 << bits) - 1, f"u{x.dtype.itemsize}")


SAMPLES["bitcast_convert_type"] = [
    Sample((uniform(),), reference=_unsigned_bits, wide=False, call=lambda x: lax.bitcast_convert_type(x, _as_unsigned(x))),
    Sample((uniform(),), {"new_dtype": dtypes.int16}, frozenset([dtypes.float32]), wide=False,
           reference=lambda x, new_dtype: x.view(new_dtype).reshape(2, 3, 2)),
    Sample((integers(0, 200, (3, 2)),), {"new_dtype": dtypes.float32}, frozenset([dtypes.uint16]), wide=False, order=0,
           reference=lambda x, new_dtype: x.view(new_dtype).reshape(3))]

# --- choices ----------------------------------------------------------------------------------------------------------


def _chosen(which, *cases):
    return np.select([which.astype(int) == i for i in range(len(cases))], cases)


CASES = ((1,), (2,), (1, 2))
SAMPLES["select_n"] = [
    Sample((booleans(), uniform(), uniform()), reference=_chosen, linear=CASES),
    Sample((booleans(()), uniform(), uniform()), reference=_chosen, dtypes=USUAL, linear=CASES),
    Sample((booleans(), uniform(shape=()), uniform()), reference=_chosen, dtypes=USUAL, linear=CASES),
    Sample((integers(0, 3, dtype=np.int32), uniform(), uniform(), uniform()), {}, USUAL, _chosen, linear=((1,), (2, 3))),
    Sample((integers(-2, 6, dtype=np.int32), uniform(), uniform(), uniform()), dtypes=USUAL, linear=(),
           reference=lambda which, *cases: _chosen(np.clip(which, 0, 2), *cases))]


def _clipped(low, x, high):
    return np.clip(x, low, high)


REALS = frozenset(dtypes.all_dtypes) - COMPLEX
SAMPLES["clamp"] = [
    Sample((constant(-0.9), distinct(), constant(0.9)), {}, (REALS - UINTS) & (FLOATS | USUAL), _clipped),
    Sample((uniform(0, 1), distinct(), uniform(1, 2)), {}, REALS & (WORDS | BOOL), _clipped),
    Sample((uniform(-1.5, -0.3), uniform(-0.2, 0.2), uniform(0.3, 1.5)), dtypes=STANDARD, reference=lambda low, x, high: x),
    Sample((uniform(0.1, 0.3), uniform(-0.5, 0), uniform(0.4, 1.5)), dtypes=STANDARD, reference=lambda low, x, high: low),
    Sample((uniform(-1.5, -1), uniform(0.5, 1), uniform(-0.5, 0.2, shape=())), dtypes=STANDARD,
           reference=lambda low, x, high: np.broadcast_to(high, x.shape))]
