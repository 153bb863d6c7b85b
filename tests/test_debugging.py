"""Options that watch: debug_nans and debug_infs, log_compiles, explain_cache_misses, checking_leaks."""
import re

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


@pytest.mark.parametrize("transformed", [
    jax.pmap, lambda f: jax.jit(lambda x: jax.pmap(f)(x + 0)), lambda f: jax.pmap(lambda x: f(x) + lax.psum(x, "i"), axis_name="i"),
    lambda f: lambda x: jax.pmap(jax.pmap(f))(x.reshape(2, 1)), lambda f: jax.pmap(lambda _, x: f(x), in_axes=(None, 0)).__get__(0),
    lambda f: jax.jit(lambda key, x: f(x * jax.random.uniform(key))).__get__(jax.random.key(0))],
    ids=["pmap", "pmap in jit", "collective", "nested", "unused argument", "typed key"])
def test_debug_nans_names_the_line_inside_pmap_and_beside_keys(transformed):
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match=r"in log at .*test_debugging.py:\d+ \(log_of\)"):
        transformed(log_of)(jnp.array([1.0, -1.0]))


@pytest.mark.parametrize("transformed", [jax.jit, jax.pmap])
def test_debug_nans_names_the_line_where_an_argument_is_donated(transformed):
    f, x = transformed(log_of, donate_argnums=0), transformed(lambda x: x + 1)(jnp.array([1.0, 2.0]))
    with jax.debug_nans(True):
        with pytest.raises(FloatingPointError, match=r"in log at .*\(log_of\)"):
            f(-x)
        y = transformed(lambda x: x + 1)(x)
        f(y)
        assert y.is_deleted() and not x.is_deleted()
    f(x)
    assert x.is_deleted()


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


def test_checking_leaks_finds_where_a_traced_value_escapes():
    kept = []

    def leaky(x):
        kept.append(jnp.sin(x))
        return x
    with jax.checking_leaks(True):
        for f in (jax.jit(leaky), lambda x: lax.scan(lambda c, _: (leaky(c), None), x, None, length=2)):
            with pytest.raises(jax.errors.UnexpectedTracerError, match=r"sin at .*test_debugging.py:\d+ \(.*leaky\)"):
                f(1.0)
            kept.clear()

        @jax.jit
        def clean(x):
            y, _ = lax.scan(lambda c, x: (c * x, None), x, jnp.arange(3.0))
            return jax.grad(lambda x: lax.cond(x > 0, jnp.sin, jnp.cos, x * y))(x)
        clean(1.0), jax.vmap(jax.jit(jax.grad(clean)))(jnp.arange(2.0))
    jax.jit(leaky)(2.0)


def test_log_compiles_says_one_line_for_each_compilation(caplog):
    def double(x):
        return jnp.sin(x) * 2
    f = jax.jit(double)
    with jax.log_compiles(True):
        f(1.0), f(2.0)
    lines = [r.getMessage() for r in caplog.records if r.name == "mini_jax"]
    assert len([line for line in lines if "double" in line]) == 1
    assert re.fullmatch(r"compiled jit_double \(.*test_debugging.py:\d+\): traced in \d\.\d+ s, lowered in \d\.\d+ s, "
                        r"compiled in \d\.\d+ s, \d+ equations", lines[-1])
    caplog.clear()
    f(np.ones(7, np.float32))
    assert not caplog.records


def test_explain_cache_misses_says_which_argument_differed_and_how(caplog):
    def g(params, n):
        return params["w"][0] * n

    def told(call):
        caplog.clear()
        with jax.explain_cache_misses(True):
            call()
        return [r.getMessage().split("): ", 1)[1] for r in caplog.records]
    f = jax.jit(g, static_argnames="n")
    x = jnp.ones((3, 2))
    assert told(lambda: f({"w": x}, n=2)) == ["it is called for the first time"]
    assert told(lambda: f({"w": x}, n=2)) == []
    assert told(lambda: f({"w": x[:2]}, n=2)) == ["argument params['w'] was f32[3,2] and is f32[2,2]"]
    assert told(lambda: f({"w": x[:2]}, n=3)) == ["static argument n was 2 and is 3"]
    assert "structure" in told(lambda: f({"w": x, "b": x}, n=3))[0]
    with jax.debug_nans(True):
        assert told(lambda: f({"w": x}, n=2)) == ["the option debug_nans was False and is True"]
    h = jax.jit(lambda x: x)
    h(1.0)
    assert told(lambda: h(jnp.float32(1))) == ["argument x was f32[] (weakly typed) and is f32[] (not weakly typed)"]
    make = lambda: jax.jit(lambda x: x + 1)
    first = make()
    first(1.0)
    assert told(lambda: make()(1.0))[0].startswith("it is a new function object")
