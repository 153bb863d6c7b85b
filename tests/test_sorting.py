"""Laws of sort and top_k, for each of the ways in which they are written."""
import ml_dtypes
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from lowering.rules import sorting as lowering
from mini_jax import lax

NAN, INF = np.nan, np.inf
QUICK = {"xla_backend_optimization_level": 0}                   # compile fast, run slowly


@pytest.fixture(params=["together", "by digits"])
def way(request, monkeypatch):
    """Small arrays are sorted by a comparison of keys, large ones by digits; here all go one way."""
    monkeypatch.setattr(lowering, "_FEW", 0 if request.param == "by digits" else 1 << 30)


def equal(actual, expected):
    """Equal values, NaN to NaN and -0 to -0, shape and dtype."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    if actual.dtype.kind in "fc":
        nan = np.isnan(expected)
        assert np.array_equal(np.isnan(actual), nan) and np.array_equal(np.signbit(actual.real[~nan]), np.signbit(expected.real[~nan]))
    assert np.array_equal(actual, expected, equal_nan=actual.dtype.kind in "fc"), (actual, expected)


def test_nan_comes_last_and_zeros_are_equal_and_keep_their_order(way):
    x = np.array([3, NAN, -0.0, 0.0, -0.0, -NAN, -INF, 1, INF], np.float32)
    single, (keys, places) = jax.jit(lambda x, i: (lax.sort(x), lax.sort((x, i))))(x, np.arange(9))
    expected = np.array([-INF, -0.0, 0.0, -0.0, 1, 3, INF, NAN, NAN], np.float32)
    equal(single, expected)
    equal(keys, expected)
    assert places.tolist() == [6, 2, 3, 4, 7, 0, 8, 1, 5]


def test_complex_numbers_go_by_the_real_then_by_the_imaginary_part(way):
    x = np.array([1 + 2j, 1 - 1j, 0 + 5j, complex(1, NAN), complex(NAN, 0)], np.complex64)
    equal(jax.jit(lax.sort)(x), x[[2, 1, 0, 3, 4]])


def test_the_first_keys_decide_and_the_rest_follows(way):
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 3, (4, 25)).astype(np.int8), rng.integers(0, 3, (4, 25)).astype(np.float16)
    value = rng.normal(size=(4, 25)).astype(np.float32)
    found = jax.jit(lambda *xs: (lax.sort(xs, num_keys=2), lax.sort(xs, dimension=0), lax.sort_key_val(xs[1], xs[2], 0)))(first, second, value)
    both, one = np.lexsort((second, first), axis=1), np.argsort(first, axis=0, kind="stable")
    other = np.argsort(second, axis=0, kind="stable")
    for actual, x in zip(found[0], (first, second, value)):
        equal(actual, np.take_along_axis(x, both, 1))
    for actual, x in zip(found[1], (first, second, value)):
        equal(actual, np.take_along_axis(x, one, 0))
    equal(found[2][1], np.take_along_axis(value, other, 0))


def test_every_integer_and_its_extremes(way):
    kinds = [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.bool_, ml_dtypes.int4, ml_dtypes.uint4]

    def drawn(kind):
        limits = (0, 1) if kind is np.bool_ else (int(ml_dtypes.iinfo(kind).min), int(ml_dtypes.iinfo(kind).max))
        return np.array([limits[1], 0, limits[0], 1, limits[1]], object).astype(kind)
    with jax.enable_x64(True):
        xs = [drawn(kind) for kind in kinds]
        found = jax.jit(lambda xs: [(lax.sort(x), *lax.sort((x, np.arange(5)))) for x in xs], compiler_options=QUICK)(xs)
    for x, (alone, keys, places) in zip(xs, found):
        order = np.argsort(x.astype(np.uint64 if x.dtype == np.uint64 else np.int64), kind="stable")
        equal(alone, x[order])
        equal(keys, x[order])
        assert places.tolist() == order.tolist()


def test_doubles_are_sorted_by_all_their_bits(way):
    with jax.enable_x64(True):
        x = 1 + np.array([3, 1, 2, -1, 1]) * 2.0 ** -50
        x = np.concatenate([x, -x, [NAN, 1e300, -1e-300, 0.0, -0.0]])
        keys, places = jax.jit(lambda x: lax.sort((x, np.arange(15))))(x)
    order = np.argsort(x, kind="stable")
    equal(keys, x[order])
    assert places.tolist() == order.tolist()


def test_the_gradient_goes_where_the_values_came_from(way):
    x, v = np.array([[3, 1, 2], [0, 2, 1]], np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    weights = np.array([1, 10, 100], np.float32)
    by_key, by_value = jax.jit(jax.grad(lambda x, v: jnp.sum(weights * (lax.sort(x) + lax.sort_key_val(x, v)[1])), (0, 1)))(x, v)
    equal(by_key, np.array([[100, 1, 10], [1, 100, 10]], np.float32))
    equal(by_value, np.array([[100, 1, 10], [1, 100, 10]], np.float32))
    equal(jax.grad(lambda v: jnp.sum(weights * lax.sort((x.astype(np.int32), v))[1]))(v), np.asarray(by_value))


def test_empty_and_single_entries(way):
    found = jax.jit(lambda a, b: (lax.sort(a), lax.sort((b, b), dimension=0), lax.top_k(a, 0)))(np.zeros((2, 0), np.float32), np.ones((1, 2)))
    assert [y.shape for y in jax.tree.leaves(found)] == [(2, 0), (1, 2), (1, 2), (2, 0), (2, 0)]


# --- top_k -----------------------------------------------------------------------------------------------------------------------------

def test_top_k_takes_the_first_of_equals_and_orders_totally():
    values, indices = lax.top_k(np.array([3, NAN, -0.0, 0.0, -INF, 3, -NAN], np.float32), 7)
    equal(values, np.array([NAN, 3, 3, 0.0, -0.0, -INF, NAN], np.float32))
    assert indices.dtype == np.int32 and indices.tolist() == [1, 0, 5, 3, 2, 4, 6]


def test_top_k_of_every_width_along_any_axis():
    rng = np.random.default_rng(0)
    kinds = [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.bool_, np.float16, ml_dtypes.bfloat16, np.float64]

    def drawn(kind):
        x = rng.integers(0, 2 ** 63, (5, 6), np.uint64)
        return (x / 2.0 ** 50 - 4096).astype(kind) if kind in (np.float16, ml_dtypes.bfloat16, np.float64) else x.view(np.int64).astype(kind)
    with jax.enable_x64(True):
        xs = [drawn(kind) for kind in kinds]
        found = jax.jit(lambda xs: [lax.top_k(x, 3, axis=0) for x in xs], compiler_options=QUICK)(xs)
    for x, (values, indices) in zip(xs, found):
        order = np.argsort(-x.astype(object if x.dtype.kind in "iub" else np.float64), axis=0, kind="stable")[:3]
        assert np.array_equal(indices, order), x.dtype
        equal(values, np.take_along_axis(x, order, 0))


def test_the_gradient_of_top_k_goes_to_the_chosen_entries():
    gradient = jax.grad(lambda x: jnp.sum(lax.top_k(x, 2)[0] * jnp.array([1.0, 2.0])))(np.array([5, 1, 7, 3], np.float32))
    equal(gradient, np.array([2, 0, 1, 0], np.float32))


@pytest.mark.parametrize("error, words, call", [
    (TypeError, "no operand", lambda x: lax.sort(())),
    (TypeError, r"one shape, got f32\[2,3\], f32\[3\]", lambda x: lax.sort((x, x[0]))),
    (ValueError, "out of bounds", lambda x: lax.sort(x, 2)),
    (ValueError, "out of bounds", lambda x: lax.sort(1.0)),
    (ValueError, "num_keys=2 must lie between 1", lambda x: lax.sort((x,), num_keys=2)),
    (ValueError, "num_keys=0 must lie between 1", lambda x: lax.sort((x,), num_keys=0)),
    (ValueError, "k=4 is more than there is along axis 1", lambda x: lax.top_k(x, 4)),
    (ValueError, "not be negative", lambda x: lax.top_k(x, -1)),
    (ValueError, "out of bounds", lambda x: lax.top_k(x, 1, axis=2)),
    (ValueError, "complex numbers have no order", lambda x: lax.top_k(x + 1j, 1)),
    (TypeError, "integer", lambda x: lax.top_k(x, 1.5)),
])
def test_errors_say_what_was_wrong(error, words, call):
    with pytest.raises(error, match=words):
        call(jnp.ones((2, 3)))
