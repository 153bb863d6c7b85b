"""custom_vmap: the user's batching rule under every transformation."""
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax.custom_batching import custom_vmap, sequential_vmap

X = np.array([0.3, -1.2, 2.0], np.float32)


def make():
    used = []

    @custom_vmap
    def f(x, y):
        return jnp.sin(x) * y

    @f.def_vmap
    def rule(axis_size, in_batched, x, y):
        used.append((axis_size, tuple(in_batched)))
        return jnp.sin(x) * y + 100.0, in_batched[0] or in_batched[1]
    return f, used


def test_vmap_uses_the_rule_and_nothing_else_does():
    f, used = make()
    np.testing.assert_allclose(f(X, 2.0), np.sin(X) * 2, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(f)(1.0, 2.0), 2 * np.cos(1.0), rtol=1e-6)
    assert not used
    np.testing.assert_allclose(jax.vmap(f, (0, None))(X, 2.0), np.sin(X) * 2 + 100, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.jit(f), (None, 0)))(0.5, X), np.sin(0.5) * X + 100, rtol=1e-6)
    assert used == [(3, (True, False)), (3, (False, True))]


def test_derivatives_through_the_rule():
    f, used = make()
    np.testing.assert_allclose(jax.vmap(jax.grad(f), (0, None))(X, 2.0), 2 * np.cos(X), rtol=1e-5)
    np.testing.assert_allclose(jax.grad(lambda x: jnp.sum(jax.vmap(f, (0, None))(x, 2.0)))(X), 2 * np.cos(X), rtol=1e-5)
    out, tangent = jax.vmap(lambda x: jax.jvp(lambda x: f(x, 2.0), (x,), (1.0,)))(X)
    np.testing.assert_allclose(out, np.sin(X) * 2 + 100, rtol=1e-6)
    np.testing.assert_allclose(tangent, 2 * np.cos(X), rtol=1e-5)


def test_sequential_vmap_is_a_loop():
    f = sequential_vmap(lambda p, x: p["w"] * jnp.sum(x))
    m = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(jax.vmap(f, (None, 0))({"w": 2.0}, m), 2 * m.sum(1))
    assert "while" in jax.jit(jax.vmap(f, (None, 0))).lower({"w": 2.0}, m).as_text()


def test_bad_rules_are_named():
    f = custom_vmap(lambda x: x)
    with pytest.raises(AttributeError, match="def_vmap"):
        f(1.0)
    f.def_vmap(lambda size, batched, x: x)
    with pytest.raises(TypeError, match="pair"):
        jax.vmap(f)(X)
    g = custom_vmap(lambda x: x)
    g.def_vmap(lambda size, batched, x: (jnp.ones(5), True))
    with pytest.raises(ValueError, match="size 3"):
        jax.vmap(g)(X)
