"""Operations that run by themselves are compiled fast, and give what they give within jit."""
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.runtime import quick, xla

OPTIMISED = {"xla_backend_optimization_level": 3}              # the tests run without otherwise (conftest)


def options_of(f, *args):
    return quick.options(jax.jit(f).lower(*args).as_text())


def floats(*shape, dtype=np.float32):
    return np.abs(np.random.default_rng(0).normal(size=shape)).astype(dtype) + dtype(0.01)


x, line = floats(8, 8), floats(64)


@pytest.mark.parametrize("operation", [
    lax.exp, lax.log, lax.sin, lax.cos, lax.sqrt, lax.erf, lax.round, lambda x: lax.pow(x, x), lambda x: lax.div(x, x[::-1]), lambda x: lax.rem(x, x[::-1]),
    lambda x: jnp.sum(x, 0), lambda x: jnp.max(x, 1), lambda x: jnp.where(x > 1, x, 0), lambda x: jnp.roll(x, 1, 0), lambda x: jax.nn.softmax(x),
    lambda x: x.astype(jnp.bfloat16)])
def test_what_is_not_optimised_gives_the_same_bits_as_optimised_code(operation):
    got = jax.jit(operation, compiler_options=quick._NO_LLVM)(x)
    assert options_of(operation, x) == quick._NO_LLVM
    assert np.asarray(got).tobytes() == np.asarray(jax.jit(operation, compiler_options=OPTIMISED)(x)).tobytes()


@pytest.mark.parametrize("operation", [lax.tanh, lax.rsqrt, lax.tan, lambda x: x * x + x, jax.nn.gelu, lambda x: lax.complex(x, x) * lax.complex(x, x), lambda x: x @ x, jnp.std])
def test_what_would_round_differently_is_optimised(operation):
    assert options_of(operation, x).get("xla_backend_optimization_level") is None


def test_large_arrays_are_computed_by_optimised_code():
    assert options_of(lax.exp, line) == quick._NO_LLVM
    for f, arg in ((lax.exp, floats(65)), (lax.exp, floats(4096)), (lax.add, (floats(1000, 1000),) * 2)):
        assert options_of(f, *(arg if type(arg) is tuple else (arg,))) == quick._NO_EMITTERS


@pytest.mark.parametrize("f, args", [
    (jax.nn.softmax, (floats(100, 100),)),                        # several operations in one loop
    (lambda x: jnp.cumsum(x, 0), (floats(100, 100),)),            # a loop
    (lambda x, i: x.at[i].add(1.0), (x, np.arange(4))),           # a scatter, of any size
    (lax.igamma, (x, x)),                                         # a loop of arithmetic, of any size
])
def test_loops_and_scatters_are_left_to_the_emitters(f, args):
    assert options_of(f, *args) == {}


def test_operations_that_run_by_themselves_are_compiled_so(monkeypatch):
    seen, compile_ = [], xla.compile
    monkeypatch.setattr(xla, "compile", lambda *args, options=None, **kwargs: (seen.append(options), compile_(*args, options=options, **kwargs))[1])
    a = jax.device_put(floats(3, 7))
    lax.exp(a), a + a, jnp.sum(a), jax.jit(lambda a: lax.exp(a) + 2)(a)
    assert seen == [quick._NO_LLVM] * 3 + [{}]


def test_reading_a_text_takes_microseconds():
    import time
    text = jax.jit(lax.exp).lower(x).as_text()
    times = []
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(20):
            quick.options(text)
        times.append((time.perf_counter() - began) / 20)
    assert min(times) < 100e-6
