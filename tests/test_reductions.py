"""Laws of reductions and cumulative operations at their edges; the walk of test_primitives.py has the rest."""
import ml_dtypes
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from lowering.rules import cumulative as lowering
from mini_jax import lax
from mini_jax.lax.cumulative import recurrence

NAN, INF = np.nan, np.inf


def equal(actual, expected):
    """Equal values (NaN equals NaN), shape and dtype."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    assert np.array_equal(actual, expected, equal_nan=actual.dtype.kind in "fc"), (actual, expected)


# --- reductions -----------------------------------------------------------------------------------------------------------------

def test_a_reduction_of_nothing_is_the_identity():
    f, i, c, b = [np.zeros((0, 2), d) for d in (np.float32, np.int8, np.complex64, np.bool_)]
    found = jax.jit(lambda f, i, c, b: [
        lax.reduce_sum(f, (0,)), lax.reduce_prod(i, (0,)), lax.reduce_max(f, (0,)), lax.reduce_min(i, (0,)), lax.reduce_max(c, (0,)),
        lax.reduce_and(i, (0,)), lax.reduce_and(b, (0,)), lax.reduce_or(b, (0,)), lax.reduce_max(b, (0,)), lax.argmax(f, 1, np.int32)])(f, i, c, b)
    expected = [np.float32(0), np.int8(1), np.float32(-INF), np.int8(127), np.complex64(-INF), np.int8(-1), True, False, False]
    for actual, value in zip(found, expected):
        equal(actual, np.full(2, value))
    equal(found[-1], np.zeros(0, np.int32))


def test_nan_prevails_in_extrema_wherever_it_stands():
    x = np.array([[1, NAN, 3], [NAN, -INF, INF], [1, 2, 3]], np.float32)
    reductions = lambda x: [lax.reduce_max(x, (1,)), lax.reduce_min(x, (1,)), lax.argmax(x, 1, np.int32), lax.argmin(x, 1, np.uint8)]
    many = np.tile(x, (1, 50))                                   # argmax of many entries goes another way
    for found in jax.jit(lambda x, many: (reductions(x), reductions(many)))(x, many):
        for actual, expected in zip(found, [np.array([NAN, NAN, 3], np.float32), np.array([NAN, NAN, 1], np.float32),
                                            np.array([1, 0, 2], np.int32), np.array([1, 0, 0], np.uint8)]):
            equal(actual, expected)


@pytest.mark.parametrize("shape, axes", [((200, 60), (0,)), ((60, 200), (1,)), ((8, 20, 40), (0, 1)), ((9000,), (0,)), ((600, 500), (0,)),
                                         ((3, 20000), (0,)), ((2, 300, 90), (1,)), ((9000, 7), (1,))])
def test_extrema_of_many_entries_are_numpys_with_nan_infinities_and_ties(shape, axes):
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    for value, places in ((-0.0, slice(0, None, 50)), (INF, slice(7, None, 601)), (-INF, slice(9, None, 97)), (NAN, slice(11, None, 701))):
        x.reshape(-1)[places] = value
    found = jax.jit(lambda x: [lax.reduce_max(x, axes), lax.reduce_min(x, axes)] + [
        f(x, axis, np.int32) for f in (lax.argmax, lax.argmin) for axis in axes[:1]])(x)
    equal(found[0], x.max(axes))
    equal(found[1], x.min(axes))
    equal(found[2], x.argmax(axes[0]).astype(np.int32))
    equal(found[3], x.argmin(axes[0]).astype(np.int32))


def test_argmax_takes_the_first_of_equals():
    zeros, ties = np.array([-0.0, 0.0], np.float32), np.array([0, 3, 1, 3] * 40)
    found = jax.jit(lambda z, t: [lax.argmax(z, 0, np.int32), lax.argmin(z, 0, np.int32), lax.argmax(t, 0, np.int32),
                                  lax.argmin(t, 0, np.int32), lax.argmax(t > 0, 0, np.int32)])(zeros, ties)
    assert [int(i) for i in found] == [0, 0, 1, 0, 1]


def test_narrow_floats_are_added_in_32_bits_and_integers_wrap():
    ones = np.ones(4097)
    found = jax.jit(lambda h, b, i, p: [lax.reduce_sum(h, (0,)), lax.reduce_sum(b, (0,)), lax.reduce_sum(i, (0,)), lax.reduce_prod(p, (0,)),
                                        lax.reduce_xor(p, (0,))])(
        ones.astype(np.float16), ones.astype(ml_dtypes.bfloat16), np.full(3, 100, np.int8), np.array([16, 17], np.uint8))
    for actual, expected in zip(found, [np.float16(4096), ml_dtypes.bfloat16(4096), np.int8(44), np.uint8(16), np.uint8(1)]):
        equal(actual, expected)


def test_long_rows_are_reduced_right():
    x = np.random.default_rng(0).normal(size=(3, 20000)).astype(np.float32)
    x[1, 7] = NAN
    found = jax.jit(lambda x: [lax.reduce_sum(x, (0,)), lax.reduce_max(x, (0,)), lax.reduce_min(x, (0,))])(x)
    np.testing.assert_allclose(found[0], x.astype(np.float64).sum(0), rtol=1e-5, atol=1e-6)
    equal(found[1], x.max(0))
    equal(found[2], x.min(0))


def test_maximal_entries_that_tie_share_the_gradient():
    gradient = jax.grad(lambda x: jnp.sum(lax.reduce_max(x, (1,)) * jnp.array([1.0, 2.0])))(np.array([[3, 1, 3], [0, 0, 0]], np.float32))
    np.testing.assert_allclose(gradient, [[0.5, 0, 0.5], [2 / 3, 2 / 3, 2 / 3]], rtol=1e-6)


def test_the_gradient_of_a_product_with_zeros_is_the_product_of_the_others():
    gradient, hessian = jax.jit(lambda x: (jax.grad(lambda x: lax.reduce_prod(x, (0,)))(x), jax.hessian(lambda x: lax.reduce_prod(x, (0,)))(x)))(
        np.array([2, 0, 3], np.float32))
    np.testing.assert_array_equal(gradient, [0, 6, 0])
    np.testing.assert_array_equal(hessian, [[0, 3, 0], [3, 0, 2], [0, 2, 0]])
    np.testing.assert_array_equal(jax.grad(lambda x: lax.reduce_prod(x, (0,)))(np.array([2, 0, 0], np.float32)), [0, 0, 0])


# --- reduce ------------------------------------------------------------------------------------------------------------------------

def test_a_known_monoid_becomes_its_own_reduction():
    x = np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 3)
    names = {name: str(jax.make_jaxpr(lambda x: lax.reduce(x, init, fun, (0,)))(x)) for name, fun, init in (
        ("reduce_sum", lax.add, 0.0), ("reduce_prod", lambda a, b: b * a, 1.0), ("reduce_max", lax.max, -INF), ("reduce_min", jnp.minimum, INF))}
    for name, text in names.items():
        assert name + "[" in text and "jaxpr=" not in text and " mul " not in text
    equal(lax.reduce(x, 10, lax.add, (0, 1)), np.float32(31))                # an init that is no identity counts too
    equal(jax.jit(lambda init: lax.reduce(x, init, lax.max, (1,)))(np.float32(4)), np.array([4, 6], np.float32))


def test_any_associative_function_reduces_trees_of_arrays():
    def first_greatest(a, b):
        keep = (a["value"] > b["value"]) | ((a["value"] == b["value"]) & (a["place"] < b["place"]))
        return jax.tree.map(lambda p, q: jnp.where(keep, p, q), a, b)

    x = np.array([[3, 1, 3, 2], [0, 5, 5, 1]], np.float32)
    places = np.broadcast_to(np.arange(4, dtype=np.int32), x.shape)
    reduced = jax.jit(lambda x, p: lax.reduce({"value": x, "place": p}, {"value": -np.inf, "place": 9}, first_greatest, [1]))(x, places)
    equal(reduced["value"], np.array([3, 5], np.float32))
    equal(reduced["place"], np.array([0, 1], np.int32))


def test_a_computation_may_close_over_known_scalars_only():
    two = jnp.float32(2)
    fun = lambda c: lambda a, b: (a + b) + (a * b) * c
    equal(lax.reduce(np.array([1, 2], np.float32), 0.0, fun(two), (0,)), np.float32(7))
    with pytest.raises(NotImplementedError, match="known scalars only"):
        jax.jit(lambda c: lax.reduce(np.array([1, 2], np.float32), 0.0, fun(c), (0,)))(two)


# --- cumulative operations ---------------------------------------------------------------------------------------------------------------

OPERATIONS = {lax.cumsum: np.cumsum, lax.cumprod: np.cumprod, lax.cummax: np.maximum.accumulate, lax.cummin: np.minimum.accumulate,
              lax.cumlogsumexp: np.logaddexp.accumulate}


@pytest.mark.parametrize("write", ["_loop", "_doubling"])
def test_every_way_of_writing_them_gives_the_same(write, monkeypatch):
    monkeypatch.setattr(lowering, "_loop", getattr(lowering, write))
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 1.5, (3, 5, 2)).astype(np.float32)
    rows = rng.uniform(0.5, 1.5, (2, 3, 70)).astype(np.float32)              # long enough for a step of their own
    cases = [(x, 0, True), (x, 1, False), (x, 2, True), (rows, 1, True)]
    found = jax.jit(lambda: [[f(a, axis, reverse) for a, axis, reverse in cases] for f in OPERATIONS])()
    for results, reference in zip(found, OPERATIONS.values()):
        for actual, (a, axis, reverse) in zip(results, cases):
            flip = np.flip if reverse else lambda a, axis: a
            np.testing.assert_allclose(actual, flip(reference(flip(a.astype(np.float64), axis), axis), axis), rtol=2e-6)


@pytest.mark.parametrize("write", ["_loop", "_doubling"])
def test_a_recurrence_starts_from_nothing_whatever_its_first_coefficient(write, monkeypatch):
    monkeypatch.setattr(lowering, "_loop", getattr(lowering, write))
    solve = jax.jit(lambda a, b: (recurrence(a, b, 0, False), recurrence(a[::-1], b, 0, True)))
    forward, backward = solve(np.array([INF, 2, 3], np.float32), np.array([1, 1, 1], np.float32))
    equal(forward, np.array([1, 3, 10], np.float32))
    equal(backward, np.array([10, 3, 1], np.float32))


def test_each_entry_of_a_cumulative_sum_is_right_to_its_last_bit():
    x = np.random.default_rng(0).uniform(size=100_000).astype(np.float32)
    equal(lax.cumsum(x), np.cumsum(x.astype(np.float64)).astype(np.float32))
    equal(lax.cumsum(np.ones(300, np.float16)), np.arange(1, 301).astype(np.float16))
    equal(lax.cumsum(np.full(3, 100, np.int8)), np.array([100, -56, 44], np.int8))


def test_cumulative_log_sum_exp_keeps_infinities_and_does_not_overflow():
    x = np.array([-INF, -INF, 1000, 1000, 5, INF, 1, NAN, 0], np.float32)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(lax.cumlogsumexp(x), np.logaddexp.accumulate(x.astype(np.float64)), rtol=1e-6)
    jacobian = jax.jacfwd(lax.cumlogsumexp)(np.array([-INF, 1, 2], np.float32))
    np.testing.assert_allclose(jacobian, [[1, 0, 0], [0, 1, 0], [0, 1 / (1 + np.e), np.e / (1 + np.e)]], rtol=1e-5)


def test_zero_sized_arrays_pass_through():
    for f in OPERATIONS:
        assert [f(np.zeros((2, 0), np.float32), axis).shape for axis in (0, 1)] == [(2, 0)] * 2


# --- errors ---------------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("error, words, call", [
    (ValueError, "out of bounds", lambda x: lax.reduce_max(x, (2,))),
    (ValueError, "negative", lambda x: lax.reduce_prod(x, (-1,))),
    (ValueError, "duplicate", lambda x: lax.reduce_min(x, (0, 0))),
    (TypeError, "bool, i16", lambda x: lax.reduce_and(x, (0,))),
    (TypeError, "booleans have no sum", lambda x: lax.reduce_sum(x > 0, (0,))),
    (TypeError, "bool", lambda x: lax.reduce_prod(x > 0, (0,))),
    (ValueError, r"argmax\(f32\[0,3\]\).*size is 0", lambda x: lax.argmax(x[:0], 0, np.int32)),
    (ValueError, "invalid axis -1", lambda x: lax.argmin(x, -1, np.int32)),
    (TypeError, "index_dtype must be an integer", lambda x: lax.argmax(x, 0, np.float32)),
    (TypeError, "no order", lambda x: lax.argmax(x + 1j, 0, np.int32)),
    (TypeError, "one shape", lambda x: lax.reduce((x, x[:1]), (0.0, 0.0), lambda a, b: a, (0,))),
    (ValueError, "one structure", lambda x: lax.reduce((x,), (0.0, 0.0), lambda a, b: a, (0,))),
    (TypeError, "structure of the operands", lambda x: lax.reduce((x,), (0.0,), lambda a, b: a[0], (0,))),
    (TypeError, "scalars of the operands' dtypes", lambda x: lax.reduce(x, 0.0, lambda a, b: a > b, (0,))),
    (TypeError, "dtype of its operand", lambda x: lax.reduce(x, np.int32(0), lambda a, b: a, (0,))),
    (ValueError, "negative", lambda x: lax.cumsum(x, -1)),
    (ValueError, "out of bounds", lambda x: lax.cummax(x, 2)),
    (TypeError, "bool", lambda x: lax.cumprod(x > 0)),
    (TypeError, "int32", lambda x: lax.cumlogsumexp(x.astype(np.int32))),
])
def test_errors_say_what_was_wrong(error, words, call):
    with pytest.raises(error, match=words):
        call(jnp.ones((2, 3)))
