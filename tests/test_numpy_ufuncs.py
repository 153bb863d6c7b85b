"""Universal functions: NumPy's values, JAX's dtypes, derivatives at the awkward places."""
import math

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp

rng = np.random.default_rng(0)
REAL = np.concatenate([rng.uniform(-3, 3, 12), [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -2.5, 1.5]])
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.0])
WHOLE = np.array([-7, -3, -1, 0, 1, 2, 5, 9])


def values(fun, *args):
    """The results of all functions in `fun` (name -> function) at the same arguments, by one compiled program, in float64."""
    with jax.enable_x64(True):
        return {name: out for name, out in zip(fun, jax.jit(lambda *xs: [f(*xs) for f in fun.values()])(*args))}


def agree(names, *args, rename={}, tolerance=1e-12):
    with np.errstate(all="ignore"):
        wanted = {name: getattr(np, rename.get(name, name))(*args) for name in names}
    for name, got in values({name: getattr(jnp, name) for name in names}, *args).items():
        for g, w in zip(got if isinstance(got, (tuple, list)) else [got], wanted[name] if isinstance(wanted[name], tuple) else [wanted[name]]):
            np.testing.assert_allclose(np.asarray(g), w, rtol=tolerance, atol=tolerance, err_msg=name)
            assert g.shape == w.shape and g.dtype.kind == w.dtype.kind, (name, g.dtype, w.dtype)


def test_functions_of_real_numbers_have_numpys_values():
    agree("sin cos tan arctan sinh cosh tanh arcsinh exp exp2 expm1 cbrt rad2deg deg2rad degrees radians sinc negative positive abs "
          "absolute fabs sign square floor ceil trunc rint isnan isinf isfinite isposinf isneginf signbit logical_not real imag "
          "conj conjugate modf spacing isreal iscomplex nan_to_num".split(), REAL)
    agree("log log2 log10 log1p sqrt reciprocal arccosh".split(), np.abs(REAL) + 1.01)
    agree("arcsin arccos arctanh".split(), REAL / 3.01)
    agree(["i0"], REAL, tolerance=1e-9)


def test_functions_of_complex_numbers_have_numpys_values():
    z = (REAL + 1j * REAL[::-1])[:12]
    agree("sin cos tan arctan sinh cosh tanh arcsinh arccosh arcsin arccos arctanh exp exp2 expm1 log log2 log10 log1p sqrt "
          "negative abs sign square reciprocal conj real imag angle isnan isinf isfinite rint isreal iscomplex".split(), z, tolerance=1e-10)


def test_functions_of_integers_and_booleans_have_numpys_values():
    agree("negative abs sign square invert bitwise_not bitwise_count isnan isinf isfinite logical_not floor ceil trunc conj "
          "signbit".split(), WHOLE)
    agree("sin exp sqrt rint".split(), np.abs(WHOLE) + 1)
    agree("abs invert logical_not bitwise_not".split(), WHOLE > 0)


def test_functions_of_two_real_numbers_have_numpys_values():
    x, y = REAL[:, None], np.where(REAL == 0, 0.7, REAL)[None]
    agree("add subtract multiply divide true_divide floor_divide remainder mod fmod divmod maximum minimum fmax fmin logaddexp logaddexp2 "
          "arctan2 hypot copysign nextafter heaviside equal not_equal less less_equal greater greater_equal logical_and logical_or "
          "logical_xor isclose".split(), x, y)
    agree("power pow float_power".split(), np.abs(x) + 0.1, y)


def test_functions_of_two_integers_have_numpys_values():
    x, y = WHOLE[:, None], np.array([-4, -1, 1, 2, 3])
    agree("add subtract multiply divide floor_divide remainder fmod divmod maximum minimum gcd lcm bitwise_and bitwise_or bitwise_xor "
          "equal less logical_and".split(), x, y)
    agree("power left_shift right_shift bitwise_left_shift bitwise_right_shift".split(), x, np.abs(y))
    agree(["ldexp"], REAL[:, None], y)


def test_infinities_nan_and_zeros_are_treated_as_numpy_does():
    x, y = SPECIAL[:, None], SPECIAL[None]
    agree("add multiply divide floor_divide remainder fmod maximum minimum fmax fmin logaddexp logaddexp2 arctan2 hypot copysign power "
          "equal less greater_equal logical_and heaviside".split(), x, y)
    agree("frexp modf signbit isposinf isneginf sign rint sinc log1p sqrt exp".split(), SPECIAL)


def test_frexp_of_numbers_below_the_normal_ones():
    for x, dtype in ((np.array([1e-40, -3e-45, 1.5, 0.0, -0.0]), np.float32), (np.array([1e-310, -5e-324, 3e300]), np.float64)):
        with jax.enable_x64(True):
            mantissa, exponent = jnp.frexp(x.astype(dtype))
        wanted = np.frexp(x.astype(dtype))
        np.testing.assert_array_equal(mantissa, wanted[0]), np.testing.assert_array_equal(exponent, wanted[1])


def test_logaddexp_of_complex_numbers():
    x, y = np.array([1 + 2j, -3j, 700.0 + 1j]), np.array([0.5j, 2 - 1j, 699.0])
    got = np.asarray(values({"logaddexp": jnp.logaddexp}, x, y)["logaddexp"])
    m = np.maximum(x.real, y.real)
    np.testing.assert_allclose(np.exp(got - m), np.exp(x - m) + np.exp(y - m), rtol=1e-12)


def test_integers_to_a_negative_power_are_rounded_towards_zero():
    x, y = jnp.array([1, -1, -1, 2, -3]), jnp.array([-3, -3, -2, -1, -2])
    assert jnp.power(x, y).tolist() == [1, -1, 1, 0, 0]
    with pytest.raises(TypeError, match="negative"):
        jnp.power(x, -1)
    with pytest.raises(TypeError, match="negative"):
        x ** -2


def test_integer_division_by_zero_raises_nothing_and_leaves_no_remainder():
    assert (jnp.array([5, -5, 0]) % 0).tolist() == [0, 0, 0]
    assert jnp.fmod(jnp.array([5, -5]), 0).tolist() == [0, 0]


@pytest.mark.parametrize("operands,dtype", [
    (("bool", "bool"), "bool"), (("int8", "uint8"), "int16"), (("int32", "float16"), "float16"), (("bfloat16", "float16"), "float32"),
    (("uint32", "int32"), "int64"), (("float32", "complex64"), "complex64"), (("int8", 3), "int8"), (("int32", 2.0), "float32"),
    (("bfloat16", 2.0), "bfloat16"), (("float16", 1j), "complex64"), (("bool", 1), "int32"), (("float16", 3), "float16"),
    (("uint8", np.int32(3)), "int32"), (("bfloat16", np.float32(2)), "float32"), ((2, 3), "int32"), ((2, 3.0), "float32"),
])
def test_operands_meet_in_jaxs_dtype(operands, dtype):
    x, y = [jnp.ones(2, o) if isinstance(o, str) else o for o in operands]
    if dtype == "int64":
        dtype = "int32"                       # 64 bits are off
    assert jnp.add(x, y).dtype == dtype and jax.eval_shape(jnp.add, x, y).dtype == dtype


def test_weak_types_stay_weak_and_give_way():
    assert jnp.add(1, 2).weak_type and jnp.sin(3).weak_type and not jnp.sin(jnp.int8(3)).weak_type
    assert (jnp.asarray(2.0) * jnp.ones(2, "bfloat16")).dtype == jnp.bfloat16
    assert (jnp.float32(2) * jnp.ones(2, "bfloat16")).dtype == jnp.float32
    assert not jnp.where(True, jnp.ones(2), 0.0).weak_type


def test_integers_and_booleans_become_floats_where_the_function_needs_it():
    for dtype in ("bool", "int8", "uint32"):
        assert jnp.sin(jnp.ones(2, dtype)).dtype == jnp.divide(jnp.ones(2, dtype), jnp.ones(2, dtype)).dtype == jnp.float32
    assert jnp.sin(jnp.ones(2, "bfloat16")).dtype == jnp.bfloat16


def test_narrow_dtypes_work():
    for dtype in ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"):
        x = jnp.array([0.5, 1.5], dtype)
        assert jnp.exp(x).dtype == x.dtype and jnp.allclose(jnp.exp(x).astype(float), np.exp([0.5, 1.5]), rtol=0.13)
    x = jnp.array([1, -3], "int4")
    assert (x + 1).tolist() == [2, -2] and (x + 1).dtype == jnp.int4


def test_python_ints_beyond_the_range_are_refused():
    for call in (lambda: jnp.ones(2) * 10 ** 10, lambda: jnp.arange(3) + 2 ** 31, lambda: jnp.add(3, 2 ** 40)):
        with pytest.raises(OverflowError):
            call()
        with pytest.raises(OverflowError):
            jax.jit(call)()


@pytest.mark.parametrize("call,error,words", [
    (lambda: jnp.sin([1, 2]), TypeError, "sin requires ndarray or scalar arguments, got <class 'list'> at position 0"),
    (lambda: jnp.add(jnp.ones(2), [1, 2]), TypeError, "position 1"),
    (lambda: jnp.add(jnp.ones(2), "a"), TypeError, "str"),
    (lambda: jnp.add(jnp.ones(2), jnp.ones(3)), ValueError, "broadcast"),
    (lambda: jnp.negative(True), TypeError, "bool"),
    (lambda: jnp.subtract(jnp.ones(2, bool), jnp.ones(2, bool)), TypeError, "bool"),
    (lambda: jnp.bitwise_and(jnp.ones(2), 1), TypeError, "f32"),
    (lambda: jnp.floor(1j), TypeError, "real"),
    (lambda: jnp.hypot(1j, 1), ValueError, "real"),
    (lambda: jnp.gcd(1.0, 2), ValueError, "integers"),
    (lambda: jnp.ldexp(1.0, 2.0), ValueError, "integer"),
    (lambda: jnp.clip(1j, 0, 1), ValueError, "complex"),
    (lambda: jnp.where(True, 1), ValueError, "both"),
    (lambda: jnp.round(jnp.ones(2), out=jnp.ones(2)), NotImplementedError, "out"),
    (lambda: jnp.round(jnp.ones(2, bool)), ValueError, "boolean"),
])
def test_wrong_arguments_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_rank_promotion_can_be_forbidden():
    with jax.numpy_rank_promotion("raise"), pytest.raises(ValueError, match="rank"):
        jnp.ones((2, 3)) + jnp.ones(3)
    with jax.numpy_rank_promotion("warn"), pytest.warns(UserWarning, match="rank"):
        jnp.ones((2, 3)) + jnp.ones(3)
    with jax.numpy_rank_promotion("raise"):
        jnp.ones((2, 3)) + jnp.float32(1)                       # scalars have no rank to promote


def test_rounding_to_decimals():
    x = np.array([1.25, -2.345, 155.5, 1e-3, 12345.678])
    with jax.enable_x64(True):
        for decimals in (-2, -1, 0, 1, 2):
            np.testing.assert_allclose(jnp.round(x, decimals), np.round(x, decimals), rtol=1e-12)
            np.testing.assert_allclose(jnp.round(x + 1j * x[::-1], decimals), np.round(x + 1j * x[::-1], decimals), rtol=1e-12)
        n = np.array([15, 25, -15, 149, 150, 7])
        for decimals in (-2, -1, 0, 1):
            np.testing.assert_array_equal(jnp.round(n, decimals), np.round(n, decimals))


def test_where_and_clip_broadcast():
    c, x, y = np.arange(3) > 0, np.arange(6.0).reshape(2, 3), np.float64(7)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(jnp.where(c, x, y), np.where(c, x, y))
        np.testing.assert_array_equal(jnp.where(c, 1, 0), np.where(c, 1, 0))
        np.testing.assert_array_equal(jnp.clip(x, np.array([1, 2, 3]), 4), np.clip(x, [1, 2, 3], 4))
        np.testing.assert_array_equal(jnp.clip(x, max=2), np.clip(x, None, 2))
        np.testing.assert_array_equal(jnp.clip(x), x)
        np.testing.assert_array_equal(jnp.where(np.arange(3), x, y), np.where(np.arange(3), x, y))


def test_nan_to_num_takes_replacements():
    x = np.array([np.nan, np.inf, -np.inf, 2.0])
    with jax.enable_x64(True):
        np.testing.assert_array_equal(jnp.nan_to_num(x), np.nan_to_num(x))
        np.testing.assert_array_equal(jnp.nan_to_num(x, nan=1, posinf=2, neginf=3), np.nan_to_num(x, nan=1, posinf=2, neginf=3))
    z = jnp.nan_to_num(jnp.array([complex(np.nan, np.inf)]))
    assert z[0].real == 0 and z[0].imag == jnp.finfo("float32").max


def test_isclose_knows_infinities_nan_and_integers():
    a, b = np.array([np.inf, np.nan, 1.0, 1e8]), np.array([np.inf, np.nan, 1 + 1e-9, 1e8 + 1])
    with jax.enable_x64(True):
        for equal_nan in (False, True):
            np.testing.assert_array_equal(jnp.isclose(a, b, equal_nan=equal_nan), np.isclose(a, b, equal_nan=equal_nan))
    assert bool(jnp.isclose(3, 3)) and bool(jnp.allclose(jnp.arange(3), jnp.arange(3.0)))
    assert bool(jnp.array_equal(jnp.array([jnp.nan]), jnp.array([jnp.nan]), equal_nan=True)) and not jnp.array_equal(jnp.ones(2), jnp.ones(3))
    assert bool(jnp.array_equiv(jnp.ones((2, 3)), jnp.ones(3)))


def derivative(fun, x, order=1):
    with jax.enable_x64(True):
        for _ in range(order):
            fun = jax.grad(fun)
        return float(fun(float(x)))


def test_derivatives_at_the_awkward_places():
    assert derivative(jnp.sinc, 0.0, 2) == pytest.approx(-math.pi ** 2 / 3) and derivative(jnp.sinc, 0.0) == 0
    assert derivative(jnp.sinc, 0.0, 4) == pytest.approx(math.pi ** 4 / 5)
    assert derivative(lambda x: jnp.logaddexp(x, x), 1.0) == pytest.approx(1.0)
    assert derivative(lambda x: jnp.logaddexp(x, -jnp.inf), 1.0) == pytest.approx(1.0)
    assert derivative(lambda x: jnp.hypot(x, 0.0 * x), 3.0) == pytest.approx(1.0)
    assert np.isfinite(derivative(lambda x: jnp.hypot(x, x), 0.0))
    assert derivative(lambda x: jnp.where(x > 0, x, 0.0), 0.0) == 0
    assert derivative(lambda x: x ** 0, 0.0) == 0 and derivative(lambda x: x ** 2, 0.0) == 0
    assert derivative(lambda x: jnp.power(x, jnp.array(2)), -3.0) == pytest.approx(-6.0)


def test_derivatives_agree_with_finite_differences():
    functions = {name: getattr(jnp, name) for name in "sinc log2 log10 rad2deg fabs angle reciprocal exp2 i0 square logaddexp2 hypot remainder fmod "
                 "copysign ldexp float_power arctan2 power maximum clip nan_to_num".split()}
    fixed = {"logaddexp2": (0.3,), "hypot": (0.7,), "remainder": (0.4,), "fmod": (0.4,), "copysign": (-1.0,), "ldexp": (3,), "float_power": (2.5,),
             "arctan2": (0.3,), "power": (1.7,), "maximum": (0.2,), "clip": (0.1, 2.0)}
    x, h = 0.9, 1e-6
    with jax.enable_x64(True):
        def all_at(x):
            return [f(x, *fixed.get(name, ())) for name, f in functions.items()]
        exact = jax.jit(jax.jacfwd(all_at))(x)
        above, below = jax.jit(all_at)(x + h), jax.jit(all_at)(x - h)
    for name, d, a, b in zip(functions, exact, above, below):
        assert float(d) == pytest.approx((float(a) - float(b)) / (2 * h), abs=1e-6), name


def test_functions_batch_like_a_loop():
    x, y = jnp.arange(6.0).reshape(2, 3) + 1, jnp.array([1.0, 2.0, 3.0])
    for f in (jnp.logaddexp, jnp.floor_divide, jnp.power, jnp.hypot):
        np.testing.assert_allclose(jax.vmap(f, in_axes=(1, 0))(x, y), np.stack([f(x[:, i], y[i]) for i in range(3)]), rtol=1e-6)
    np.testing.assert_array_equal(jax.vmap(jnp.gcd)(jnp.array([12, 18]), jnp.array([8, 27])), [4, 9])


def test_ufunc_methods():
    x = np.arange(6).reshape(2, 3)
    with jax.enable_x64(True):
        for name in ("add", "multiply", "maximum", "subtract", "bitwise_xor", "logical_or"):
            f, g = getattr(jnp, name), getattr(np, name)
            np.testing.assert_array_equal(f.reduce(x, axis=1), g.reduce(x, axis=1), err_msg=name)
            np.testing.assert_array_equal(f.accumulate(x, axis=1), g.accumulate(x, axis=1), err_msg=name)
            np.testing.assert_array_equal(f.outer(x, x[0]), g.outer(x, x[0]), err_msg=name)
            np.testing.assert_array_equal(f.reduceat(x[0], np.array([0, 2, 1])), g.reduceat(x[0], [0, 2, 1]), err_msg=name)
            if name != "logical_or":
                y = x.copy()
                g.at(y, (np.array([0, 0]), np.array([1, 1])), 3)
                np.testing.assert_array_equal(f.at(jnp.asarray(x), (np.array([0, 0]), np.array([1, 1])), 3, inplace=False), y, err_msg=name)
        assert int(jnp.add.reduce(x, axis=None)) == 15 and int(jnp.add.reduce(x, axis=None, where=x > 2, initial=100)) == 112
        f = jnp.frompyfunc(lambda a, b: a * b + 1, 2, 1)
        np.testing.assert_array_equal(f(x, x[0]), x * x[0] + 1)
        assert f.reduce(np.array([1, 2, 3])) == (1 * 2 + 1) * 3 + 1
        with pytest.raises(ValueError, match="identity"):
            f.reduce(np.zeros(0))
    with pytest.raises(NotImplementedError, match="inplace"):
        jnp.add.at(jnp.ones(2), 0, 1)
