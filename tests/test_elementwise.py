"""Elementwise operations where they are delicate: kinks, edges of domains, NaN, zeros, widths, scalars, and what is refused."""
import inspect
import math
import pickle

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.core import dtypes

inf, nan = math.inf, math.nan
f32 = np.float32


def check(function, expected, *args, rtol=1e-6):
    """function(*args), compiled as one program, is `expected`, NaN and signs of zeros included."""
    actual = np.asarray(jax.jit(function)(*args))
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=0)
    if actual.dtype.kind == "f":
        zero = actual == 0
        assert (np.signbit(actual[zero]) == np.signbit(np.broadcast_to(expected, actual.shape)[zero])).all(), (actual, expected)


def slope(f, *points, argnums=0):
    """The derivative of f at each of the points (arrays of arguments), in one program."""
    return np.asarray(jax.jit(jax.vmap(jax.grad(f, argnums)))(*map(f32, points)))


# --- derivatives at kinks and edges -----------------------------------------------------------------------------------

@pytest.mark.parametrize("f, points, expected", [
    (lax.abs, [-1, 0, 2], [-1, 1, 1]),
    (lax.sqrt, [0, 4], [inf, 0.25]),
    (lax.cbrt, [0, 8], [inf, 1 / 12]),
    (lax.log1p, [-1, 0], [inf, 1]),
    (lax.logistic, [-100, 0, 100], [0, 0.25, 0]),
    (lax.tanh, [-40, 0, 40], [0, 1, 0]),
    (lax.erf_inv, [0, 1], [math.sqrt(math.pi) / 2, inf]),
    (lax.bessel_i0e, [0], [0]),
    (lax.bessel_i1e, [0], [0.5]),
    (lax.sign, [-1, 0, 1], [0, 0, 0]),
    (lax.floor, [0.5, 1], [0, 0]),
    (lambda x: lax.integer_pow(x, 0), [0, 3], [0, 0]),
    (lambda x: lax.integer_pow(x, 1), [0, 3], [1, 1]),
    (lambda x: lax.integer_pow(x, -1), [0, 2], [-inf, -0.25]),
    (lambda x: lax.clamp(0.0, x, 1.0), [-1, 0, 0.5, 1, 2], [0, 0, 1, 0, 0]),
    (lambda x: lax.igamma(1.0, x), [0, 1], [1, math.exp(-1)]),
], ids=lambda f: getattr(f, "__name__", None))
def test_slopes_at_kinks_and_ends_of_domains_are_as_documented(f, points, expected):
    np.testing.assert_allclose(slope(f, points), expected, rtol=1e-5)


def test_where_max_and_min_tie_each_operand_gets_half_the_slope():
    x, y = [1, 2, 3], [2, 2, 2]
    assert slope(lax.max, x, y).tolist() == [0, 0.5, 1]
    assert slope(lax.max, x, y, argnums=1).tolist() == [1, 0.5, 0]
    assert slope(lax.min, x, y).tolist() == [1, 0.5, 0]


def test_slopes_of_powers_at_zero_and_of_negative_bases():
    base, exponent = [0, 0, 0, 0, -2, -2, -2], [0, 1, 2, -1, 0, 1, 2]
    np.testing.assert_array_equal(slope(lax.pow, base, exponent), [0, 1, 0, -inf, 0, 1, -4])
    np.testing.assert_array_equal(slope(lax.pow, [0, 0, 0, -2], [0, 1, 2, 2], argnums=1), [0, 0, 0, nan])


def test_the_remainder_moves_by_the_whole_quotient():
    x, y = [7, -7, 7, 7], [2, 2, -2, inf]
    assert slope(lax.rem, x, y).tolist() == [1, 1, 1, 1]
    assert slope(lax.rem, x, y, argnums=1).tolist() == [-3, 3, 3, 0]


def test_complex_functions_are_differentiated_as_holomorphic_and_the_others_along_the_tangent():
    z, t = np.complex64(3 + 4j), np.complex64(1 + 2j)
    same = lambda f, expected: np.testing.assert_allclose(jax.jvp(f, (z,), (t,))[1], expected, rtol=1e-5)
    same(lambda z: z * z, 2 * z * t)
    same(lax.abs, (np.conj(z) * t).real / 5)
    same(lax.conj, np.conj(t))
    same(lax.imag, 2)
    assert jax.jvp(lax.abs, (np.complex64(0),), (t,))[1] == 0
    cotangent = lambda f, ct: jax.vjp(f, z)[1](ct)[0]
    assert cotangent(lax.real, f32(1)) == 1 and cotangent(lax.imag, f32(1)) == -1j and cotangent(lax.conj, t) == np.conj(t)


# --- integers ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "uint32"])
def test_integer_division_rounds_towards_zero_and_survives_zero_and_overflow(dtype):
    low, ones = np.iinfo(dtype).min, np.array(-1).astype(dtype)
    signed = low < 0
    x = np.array([7, -7, 7, 0, low] if signed else [7, 249, 7, 0, 3], dtype)
    y = np.array([2, 2, 0, 0, -1] if signed else [2, 2, 0, 0, 255], dtype)
    quotients, remainders = jax.jit(lambda x, y: (lax.div(x, y), lax.rem(x, y)))(x, y)
    assert quotients.tolist() == ([3, -3, ones, ones, low] if signed else [3, 124, ones, ones, 0])
    assert remainders.tolist() == ([1, -1, 7, 0, 0] if signed else [1, 1, 7, 0, 3])


def test_integers_wrap():
    check(lambda x: x + x, [-2, 2], np.int8([127, -127]))
    check(lax.neg, [255, 0], np.uint8([1, 0]))
    check(lax.abs, [-128, 5], np.int8([-128, -5]))
    check(lambda x: lax.integer_pow(x, 3), [-128 + 2 ** 7, 27], np.int8([64, 3]))


# --- NaN, infinities, zeros -------------------------------------------------------------------------------------------

def test_nan_passes_through_extrema_and_clamp_but_not_through_comparisons():
    x, y = f32([nan, 1, nan, inf]), f32([1, nan, nan, nan])
    everything = jax.jit(lambda x, y: (lax.max(x, y), lax.min(x, y), lax.clamp(x, y, x), lax.clamp(0.0, x, 1.0)))(x, y)
    for out in everything[:3]:
        assert np.isnan(out).all()
    np.testing.assert_array_equal(everything[3], [nan, 1, nan, 1])
    compare = jax.jit(lambda x, y: [f(x, y) for f in (lax.eq, lax.lt, lax.le, lax.gt, lax.ge, lax.ne)])(x, y)
    assert [np.asarray(c).any() for c in compare] == [False] * 5 + [True]
    assert np.asarray(compare[5]).all()


def test_a_clamp_whose_bounds_cross_gives_the_upper_one():
    check(lax.clamp, 1, f32(3), f32(2), f32(1))


def test_the_total_order_puts_negative_nan_first_and_tells_zeros_apart():
    ordered = f32([-nan, -inf, -1, -0.0, 0.0, 1, inf, nan])
    below, upto, equal = jax.jit(lambda x, y: [p.bind(x, y) for p in (lax.lt_to_p, lax.le_to_p, lax.eq_to_p)])(
        np.repeat(ordered, 8).reshape(8, 8), np.tile(ordered, (8, 1)))
    position = np.arange(8)
    np.testing.assert_array_equal(below, position[:, None] < position)
    np.testing.assert_array_equal(upto, position[:, None] <= position)
    np.testing.assert_array_equal(equal, np.eye(8, dtype=bool))


def test_signs_of_zeros_and_of_small_halves():
    check(lax.sign, [0.0, -0.0, nan, -1], f32([0.0, -0.0, nan, -inf]))
    check(lax.round, [1, -1, 0, -0.0, 3], f32([0.5, -0.5, 0.49999997, -0.25, 2.5]))
    check(lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), [0, -0.0, 2, -2], f32([0.5, -0.5, 1.5, -2.5]))
    check(lax.cbrt, [-2, 0, -0.0], f32([-8, 0, -0.0]))
    check(lax.nextafter, [f32(1e-45), -f32(1e-45), f32(3.4028235e38), nan], f32([0, 0, inf, nan]), f32([1, -1, 0, 1]))


def test_functions_are_stable_far_from_zero_and_near_it():
    check(lax.logistic, [0, 1, 1, 0, 0.5], f32([-1000, 1000, inf, -inf, 0]))
    check(lax.log1p, [-inf, nan, 1e-10], f32([-1, -2, 1e-10]))
    check(lax.expm1, [1e-10, -1, inf], f32([1e-10, -inf, inf]))
    check(lax.tanh, [-1, 1, 1e-10], f32([-100, 100, 1e-10]))
    check(lax.asinh, [1e-10, math.asinh(1e20)], f32([1e-10, 1e20]))
    check(lax.exp2, [2 ** 10, 2 ** -20, 1 / math.sqrt(2)], f32([10, -20, -0.5]))


def test_complex_extrema_are_lexicographic_and_pass_nan_on():
    x, y = np.complex64([1 + 2j, 2, nan, 5]), np.complex64([1 + 3j, 1 + 9j, 3, complex(1, nan)])
    np.testing.assert_array_equal(jax.jit(lax.max)(x, y)[:2], [1 + 3j, 2])
    np.testing.assert_array_equal(jax.jit(lax.min)(x, y)[:2], [1 + 2j, 1 + 9j])
    assert np.isnan(jax.jit(lax.max)(x, y)[2:]).all() and np.isnan(jax.jit(lax.min)(x, y)[2:]).all()


# --- special functions at the ends of their domains, and far out ------------------------------------------------------

def test_incomplete_gamma_functions_at_the_edges():
    a, x = f32([0, 0, 1, 1, inf, 1, -1, 1, inf]), f32([0, 1, 0, inf, 1, -1, 1, nan, inf])
    check(lax.igamma, [nan, 1, 0, 1, 0, nan, nan, nan, nan], a, x)
    check(lax.igammac, [nan, 0, 1, 0, 1, nan, nan, nan, nan], a, x)


def test_incomplete_functions_are_accurate_in_all_regions():
    """Against sums of their series in 60-digit arithmetic; small and large parameters, on both sides of the mean."""
    table = np.array([
        # a, x, P(a, x), Q(a, x), the derivative of P by a, the derivative of the quantile by a
        (0.001, 1e-05, 0.98912304469578267, 0.010876955304217331, -10.818398299086339, 0.10937472778081825),
        (0.3, 2.5, 0.98815467815468866, 0.011845321845311337, -0.055483435306820468, 3.8402241658189188),
        (5.0, 3.0, 0.18473675547622793, 0.81526324452377207, -0.13305676070192275, 0.79185673480243416),
        (300.0, 280.0, 0.12260728267114314, 0.87739271732885686, -0.011865557618722611, 0.96643689916251177),
        (9000.0, 9100.0, 0.85399535718993666, 0.14600464281006334, -0.0024092891622232885, 1.0055537141317137),
        (20000.0, 20010.0, 0.52911915236799544, 0.47088084763200456, -0.0028132151795614882, 1.0002582938016833)])
    beta = np.array([(0.03, 0.2, 1e-20, 0.22028490116724388), (2.5, 1.5, 0.3, 0.088943723170665592),
                     (40.0, 60.0, 0.45, 0.84622479768139871), (3000.0, 2000.0, 0.61, 0.92584945028870167)])
    functions = (lax.igamma, lax.igammac, lax.igamma_grad_a, lax.random_gamma_grad)
    quick = {"xla_backend_optimization_level": 0}                                              # to compile
    for dtype, tolerance in ((np.float64, 1e-13), (np.float32, 2e-5)):
        with jax.enable_x64(dtype is np.float64):
            rows = table if dtype is np.float64 else table[1:]            # 0.001 and 1e-5 are no float32 numbers
            found = jax.jit(lambda a, x: [f(a, x) for f in functions], compiler_options=quick)(*rows[:, :2].T.astype(dtype))
            np.testing.assert_allclose(np.stack(found), rows[:, 2:].T, rtol=tolerance)
            np.testing.assert_allclose(jax.jit(lax.betainc)(*beta[:, :3].T.astype(dtype)), beta[:, 3], rtol=tolerance)


def test_incomplete_beta_at_the_edges():
    a, b = f32([0, 1, 1, 1, -1, 2, 2, 1, inf, 2]), f32([1, 0, 1, 1, 1, 3, 3, nan, 1, inf])
    x = f32([0.5, 0.5, 0, 1, 0.5, -1, 2, 0.5, 0.5, 0.5])
    check(lax.betainc, [1, 0, 0, 1, nan, nan, nan, nan, 0, 1], a, b, x)


def test_other_special_functions_at_the_edges():
    check(lax.erf_inv, [-inf, inf, nan, 0], f32([-1, 1, 2, 0]))
    check(lax.lgamma, [inf, inf, inf], f32([0, -1, inf]))
    check(lax.digamma, [nan, inf], f32([-1, inf]))
    check(lax.zeta, [inf, inf, nan], f32([1, 2, 0.5]), f32([2, 0, 2]))
    check(lax.polygamma, [0.42278433, inf, nan], f32([0, 1, -1]), f32([2, 0, 2]))
    check(lax.bessel_i0e, [1, 0], f32([0, inf]))


@pytest.mark.parametrize("f, argnums, operand", [
    (lax.zeta, 0, "x"), (lax.polygamma, 0, "m"), (lambda a, b: lax.betainc(a, b, 0.5), 1, "b")])
def test_a_derivative_that_is_not_known_says_with_respect_to_what(f, argnums, operand):
    with pytest.raises(NotImplementedError, match=f"no derivative with respect to {operand}"):
        jax.grad(f, argnums)(2.0, 3.0)


# --- scalars and dtypes -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int8", "uint8", "complex64", "float8_e4m3fn"])
def test_a_python_scalar_takes_the_dtype_of_the_array(dtype):
    x = lax.full((3,), 2, dtype)
    for out in (lax.add(x, 3), lax.mul(3, x), lax.max(x, 3)):
        assert out.dtype == x.dtype and out.shape == (3,) and not out.weak_type
    if not dtypes.is_integer(x.dtype):
        assert lax.sub(x, 0.5).dtype == x.dtype


def test_scalars_alone_stay_weak_and_comparisons_are_never_weak():
    assert lax.add(1, 2).weak_type and lax.mul(1.5, 2.5).weak_type
    assert not lax.lt(1, 2).weak_type and lax.lt(1, 2).dtype == bool


def test_a_scalar_operand_stands_for_an_array_and_is_not_broadcast_in_the_program():
    x = np.ones((2, 3), f32)
    assert str(jax.make_jaxpr(lambda x: lax.mul(x, 2.0))(x)) == "{ lambda ; a:f32[2,3]. let b:f32[2,3] = mul a 2.0:f32[] in (b,) }"
    assert lax.select(True, x, 0.0).shape == lax.clamp(0.0, x, x).shape == lax.pow(2.0, x).shape == (2, 3)
    gradient = jax.grad(lambda s: lax.reduce_sum(lax.mul(x, s), (0, 1)))(f32(3))
    assert gradient.shape == () and gradient == 6


@pytest.mark.parametrize("call, message", [
    (lambda x: lax.add(x, np.ones(2, np.int32)), "one dtype"),
    (lambda x: lax.add(np.int32([1, 2]), 2.5), "one dtype"),
    (lambda x: lax.add(x, 1j), "one dtype"),
    (lambda x: lax.add(x, True), "not accepted|one dtype"),
    (lambda x: lax.add(x, np.ones(3, f32)), r"shapes \(2,\) and \(3,\) differ"),
    (lambda x: lax.sin(3), r"lax.sin\(i32\[\]\): dtype int32 is not accepted"),
    (lambda x: lax.sin([1.0]), "not an array or a number"),
    (lambda x: lax.bitwise_and(x, x), "not accepted"),
    (lambda x: lax.lt(lax.complex(x, x), lax.complex(x, x)), "not accepted"),
    (lambda x: lax.real(x), "not accepted"),
    (lambda x: lax.integer_pow(np.int32(2), -1), "negative powers"),
    (lambda x: lax.integer_pow(x, 2.5), "Python int"),
    (lambda x: lax.pow(np.int32([1, 2]), 2), "floating or complex"),
    (lambda x: lax.select_n(x, x, x), "boolean or integer"),
    (lambda x: lax.select_n(x > 0, x, x, x), "two cases"),
    (lambda x: lax.select(x > 0, x, np.int32([1, 2])), "one dtype"),
    (lambda x: lax.clamp(np.zeros(3, f32), x, 1.0), "differ"),
    (lambda x: lax.full((2,), x), "scalar"),
    (lambda x: lax.bitcast_convert_type(x > 0, np.int8), "booleans"),
])
def test_wrong_operands_are_a_type_error_that_says_what_is_wrong(call, message):
    with pytest.raises(TypeError, match=message):
        call(lax.full((2,), 1.0, "float32"))


@pytest.mark.parametrize("error, call", [
    (ValueError, lambda x: lax.reduce_precision(x, 0, 2)), (ValueError, lambda x: lax.reduce_precision(x, 5, -1)),
    (ValueError, lambda x: lax.bitcast_convert_type(np.ones(3, np.int16), f32)), (ValueError, lambda x: lax.round(x, 7)),
    (OverflowError, lambda x: lax.add(np.int8([1, 2]), 300)), (OverflowError, lambda x: lax.add(np.uint8([1, 2]), -1))])
def test_parameters_out_of_range_raise(error, call):
    with pytest.raises(error):
        call(lax.full((2,), 1.0, "float32"))


# --- the functions themselves -----------------------------------------------------------------------------------------

def test_functions_document_themselves_have_jaxs_parameters_and_can_be_pickled():
    assert lax.sin.__doc__.startswith("sin x, x in radians.") and "TypeError" in lax.sin.__doc__
    parameters = lambda f: tuple(inspect.signature(f).parameters)
    assert parameters(lax.sin) == ("x", "accuracy") and parameters(lax.add) == ("x", "y")
    assert parameters(lax.nextafter) == ("x1", "x2") and parameters(lax.igamma) == ("a", "x")
    assert parameters(lax.betainc) == ("a", "b", "x") and parameters(lax.clamp) == ("min", "x", "max")
    assert lax.sub(y=f32(1), x=f32(3)) == 2
    assert pickle.loads(pickle.dumps(lax.sin)) is lax.sin


def test_the_accuracy_asked_for_reaches_the_program():
    text = lambda accuracy: jax.jit(lambda x: lax.exp(x, accuracy=accuracy)).lower(f32(1)).as_text()
    assert "result_accuracy" not in text(None) and "result_accuracy" not in text(lax.AccuracyMode.DEFAULT)
    assert "result_accuracy_mode<HIGHEST>" in text(lax.AccuracyMode.HIGHEST)
    assert "rtol = 1.000000e-05, ulps = 3" in text(lax.Tolerance(rtol=1e-5, ulps=3))
    assert lax.exp(f32(0)) == lax.exp(f32(0), accuracy=lax.AccuracyMode.HIGHEST) == 1


def test_integer_powers_take_a_logarithmic_number_of_products():
    text = jax.jit(lambda x: lax.integer_pow(x, 13)).lower(f32(1)).as_text()
    assert text.count("stablehlo.multiply") == 5


def test_full_and_full_like():
    assert lax.full((2,), 1).weak_type and lax.full((2,), 1.5, np.int32).tolist() == [1, 1]
    x = lax.full((2, 3), 0.0, "float16")
    assert lax.full_like(x, 2).dtype == np.float16 and lax.full_like(x, 2, shape=(4,)).shape == (4,)
    assert lax.full_like(x, 2.7, dtype=np.int8).dtype == np.int8 and lax.full_like(1.0, 2).weak_type
    assert lax.full_like(np.int32(3), 2.5) == 2 and lax.full((0, 3), 1.0).shape == (0, 3)


def test_bits_are_read_lowest_first():
    assert lax.bitcast_convert_type(f32(1), np.int32) == 0x3F800000
    assert lax.bitcast_convert_type(np.uint32([0x01020304]), np.uint8).tolist() == [[4, 3, 2, 1]]
    assert lax.bitcast_convert_type(np.uint8([[4, 3, 2, 1]]), np.uint32).tolist() == [0x01020304]
    assert lax.bitcast_convert_type(np.int8([0x12]), "int4").tolist() == [[2, 1]]


def test_zero_sized_and_rank_zero_arrays_work():
    assert lax.mul(np.ones((0, 3), f32), 2.0).shape == (0, 3)
    assert lax.igamma(np.ones((0,), f32), np.ones((0,), f32)).shape == (0,)
    assert lax.select(np.bool_(True), f32(1), f32(2)) == 1


def test_exponentials_of_a_nan_that_is_a_constant_of_the_program_are_nan():
    """XLA's CPU backend makes anything of exp(select(p, NaN, x)), above optimization level 0."""
    optimized = {"xla_backend_optimization_level": 3}
    for dtype in ("float32", "bfloat16", "float16"):
        for fun in (jnp.exp, jnp.exp2, jnp.expm1, jnp.sinh, jnp.cosh, jax.nn.sigmoid, lambda x: jnp.exp(-2 * x)):
            for n in (8, 16):
                lost = np.arange(n) % 2 == 0
                program = jax.jit(lambda x: fun(jnp.where(jnp.arange(n) % 2 == 0, jnp.nan, x)), compiler_options=optimized)
                out = np.asarray(program(jnp.linspace(0.1, 1, n).astype(dtype))).astype(np.float32)
                assert np.isnan(out[lost]).all() and not np.isnan(out[~lost]).any()
