"""odeint: solutions known in closed form, conserved quantities, the adjoint against derivatives of the closed form, and bad input."""
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax.experimental.ode import odeint

T = np.array([0.0, 0.5, 0.7, 2.0])


@pytest.fixture(autouse=True)
def in_double_precision():
    with jax.enable_x64(True):
        yield


def growth(y, t, rate):
    return rate * y


def test_solutions_are_those_in_closed_form_to_the_tolerance_asked_for():
    turn = lambda y, t: {"x": y["v"], "v": -4 * y["x"] + 0 * t}
    found = odeint(turn, {"x": 1.0, "v": np.array([0.0])[0]}, T)
    np.testing.assert_allclose(found["x"], np.cos(2 * T), atol=1e-7), np.testing.assert_allclose(found["v"], -2 * np.sin(2 * T), atol=1e-7)
    error = lambda tol: np.abs(odeint(lambda y, t: jnp.cos(t) * y, 1.0, T, rtol=tol, atol=tol) - np.exp(np.sin(T))).max()
    assert error(1e-4) < 1e-3 and error(1e-10) < 1e-8 < 1e-6 < error(1e-3)
    spin = odeint(lambda z, t: 2j * z, 1.0 + 0j, T)
    np.testing.assert_allclose(spin, np.exp(2j * T), atol=1e-7)
    assert odeint(growth, 1, [0, 1], 0.0).tolist() == [1, 1] and odeint(growth, 3.0, T[:1], 1.0).tolist() == [3]


def test_time_may_be_dense_or_sparse_to_the_same_effect_and_steps_are_no_longer_than_hmax():
    ends = [odeint(growth, np.ones(2), np.linspace(0, 2, n), -1.0)[-1] for n in (2, 50)]
    np.testing.assert_allclose(ends, np.exp(-2.0), rtol=1e-7)
    spike = lambda y, t: jnp.where((t > 1.0) & (t < 1.1), 10.0, 0.0) + 0 * y                                   # easily stepped over
    assert abs(odeint(spike, 0.0, np.array([0.0, 2.0]), hmax=0.01, rtol=1e-4, atol=1e-4)[-1] - 1) < 0.02


def test_what_mxstep_steps_do_not_reach_is_nan():
    found = odeint(growth, 1.0, np.array([0.0, 1e-6, 50.0]), -1.0, mxstep=5)
    assert np.isfinite(found[:2]).all() and np.isnan(found[2])


def test_gradients_are_those_of_the_closed_form():
    def loss(solve):
        return lambda y0, t, rate: jnp.sum(solve(y0, t, rate) ** 2 * jnp.arange(1, 5))
    numeric, closed = loss(lambda y0, t, rate: odeint(growth, y0, t, rate)), loss(lambda y0, t, rate: y0 * jnp.exp(rate * (t - t[0])))
    for grad in (lambda f: jax.grad(f, (0, 1, 2)), lambda f: jax.jit(jax.grad(f, (0, 1, 2))), lambda f: jax.vmap(jax.grad(f, (0, 1, 2)), (None, None, 0))):
        rate = np.array([-0.5, 0.3]) if "vmap" in grad.__code__.co_names else -0.5
        for a, b in zip(grad(numeric)(1.3, T, rate), grad(closed)(1.3, T, rate)):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_what_func_captures_and_trees_of_arguments_get_gradients_too_and_integers_none():
    t = np.array([0.0, 1.0])
    def captured(w):
        return odeint(lambda y, t: w @ y, np.array([1.0, 0.0]), t)[-1, 0]
    w = np.array([[0.1, -1.0], [1.0, 0.1]])
    first, step = np.array([[1.0, 0.0], [0.0, 0.0]]), 1e-5
    slope = (captured(w + step * first) - captured(w - step * first)) / (2 * step)
    np.testing.assert_allclose(jax.grad(captured)(w)[0, 0], slope, rtol=1e-5)
    held = lambda p: odeint(lambda y, t, p: -p["rate"] * y ** p["power"], 1.0, t, p)[-1]
    got = jax.grad(held, allow_int=True)({"rate": 0.5, "power": np.int32(2)})
    np.testing.assert_allclose(got["rate"], -1 / 1.5 ** 2, rtol=1e-6)                        # y = 1 / (1 + rate t)
    assert got["power"].dtype == jax.float0


def test_second_derivatives():
    f = lambda rate: odeint(growth, 1.0, np.array([0.0, 1.0]), rate)[-1]
    np.testing.assert_allclose(jax.grad(jax.grad(f))(0.5), np.exp(0.5), rtol=1e-5)


@pytest.mark.parametrize("call, error, words", [
    (lambda: odeint(growth, 1.0, T, "fast"), TypeError, "fast"),
    (lambda: odeint(growth, 1.0, T.reshape(2, 2), 1.0), ValueError, "must be a vector, got f64.2,2."),
    (lambda: odeint(growth, 1.0, 0.0, 1.0), ValueError, "must be a vector"),
    (lambda: odeint(lambda y, t: (y, y), 1.0, T), TypeError, r"derivative like the state y0, f64\[\], but returns \('f64\[\]', 'f64\[\]'\)"),
    (lambda: odeint(lambda y, t: jnp.ones(3), 1.0, T), TypeError, r"derivative like the state.*but returns f64\[3\]"),
])
def test_bad_arguments_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()
