"""Options that watch: debug_nans and debug_infs, log_compiles, explain_cache_misses, checking_leaks."""
import logging

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax


def log_of(x):
    return jnp.log(x)


@pytest.mark.parametrize("transformed", [lambda f: f, jax.jit, jax.checkpoint, lambda f: jax.vmap(lambda x: f(x) + 1),
                                         lambda f: jax.jit(lambda x: jax.jit(f)(x) * 2),
                                         lambda f: jax.jit(lambda x: lax.scan(lambda c, x: (c + 1, f(x)), 0.0, x)[1]),
                                         lambda f: lambda x: lax.cond(True, f, lambda x: x, x),
                                         lambda f: lambda x: lax.fori_loop(0, jnp.asarray(2), lambda i, c: f(x), x)])
def test_debug_nans_names_the_operation_and_the_line(transformed):
    g, good, bad = transformed(log_of), jnp.array([1.0, 2.0]), jnp.array([1.0, -1.0])
    np.testing.assert_array_equal(np.isnan(np.asarray(g(bad))).any(), True)
    with jax.debug_nans(True):
        g(good)
        for _ in range(2):
            with pytest.raises(FloatingPointError, match=r"invalid value \(nan\) encountered in log at .*test_debugging.py:\d+ \(log_of\)"):
                g(bad)
    assert np.isnan(np.asarray(g(bad))).any()


def test_debug_infs_and_gradients():
    with jax.debug_infs(True):
        with pytest.raises(FloatingPointError, match=r"\(inf\) encountered in div"):
            jax.jit(lambda x: 1.0 / x)(jnp.zeros(2))
        jnp.asarray(jnp.nan) + 1
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="nan"):
        jax.grad(lambda x: jnp.sqrt(x) * 0.0)(0.0)


def test_the_options_are_looked_at_by_calls_that_are_fast_already():
    f = jax.jit(lambda x: x / x)
    for x in (1.0, 1.0, 0.0):
        f(jnp.float32(x))
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="div"):
        f(jnp.float32(0))
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="sub"):
        jnp.float32(np.inf) * 1 - jnp.float32(np.inf)
    assert np.isnan(f(jnp.float32(0)))
