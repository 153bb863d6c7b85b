"""Loops and choices: running them, their gradients, the memory a gradient takes, and tracing."""
import numpy as np

from benchmarks.operations import _floats, _run
from benchmarks.registry import best, call, programs, workload


def _rnn(jax, w, h, xs):
    def step(h, x):
        h = jax.numpy.tanh(h @ w + x)
        return h, h
    return jax.lax.scan(step, h, xs)[1]


def _decay(jax, a, x, steps):
    return jax.lax.scan(lambda c, x: (a * c + jax.numpy.sin(x), c), 0.0, x)[1].sum()


@programs
def scans(jax):
    w, h, xs, line = _floats(64, 64) / 8, _floats(8, 64), _floats(1000, 8, 64), _floats(1000)
    rnn = lambda w, h, xs: _rnn(jax, w, h, xs).sum()
    decay = lambda a, x: _decay(jax, a, x, 1000)
    return {
        "scan of 1,000 steps, RNN": _run(jax, rnn, w, h, xs),
        "scan of 1,000 steps, RNN, gradient": _run(jax, jax.grad(rnn, (0, 1, 2)), w, h, xs),
        "scan of 1,000 steps, scalars": _run(jax, decay, np.float32(0.9), line),
        "scan of 1,000 steps, scalars, gradient": _run(jax, jax.grad(decay, (0, 1)), np.float32(0.9), line),
        "scan of 1,000 steps, RNN in checkpoint, gradient": _run(jax, jax.grad(jax.checkpoint(rnn)), w, h, xs),
    }


@programs
def loops(jax):
    jnp, lax = jax.numpy, jax.lax
    x, m, n = _floats(8), _floats(128, 128) / 12, np.int32(1000)
    small = lambda x: jnp.sin(x) * 0.9 + 0.1
    product = lambda y, m: jnp.tanh(y @ m)
    return {
        "while of 1,000 steps, 8 numbers": _run(jax, lambda x: lax.while_loop(lambda c: c[0] < 1000, lambda c: (c[0] + 1, small(c[1])), (0, x)), x),
        "fori of 1,000 steps, 8 numbers": _run(jax, lambda x: lax.fori_loop(0, 1000, lambda i, y: small(y), x), x),
        "fori of n = 1,000 steps, 8 numbers": _run(jax, lambda n, x: lax.fori_loop(0, n, lambda i, y: small(y), x), n, x),
        "fori of 200 steps, product 128 x 128": _run(jax, lambda m: lax.fori_loop(0, 200, lambda i, y: product(y, m), m), m),
        "fori of n = 200 steps, product 128 x 128": _run(jax, lambda n, m: lax.fori_loop(0, n, lambda i, y: product(y, m), m), np.int32(200), m),
        "fori of 200 steps, product 128 x 128, gradient": _run(jax, jax.grad(lambda m: lax.fori_loop(0, 200, lambda i, y: product(y, m), m).sum()), m),
        "cond in a loop of 1,000 steps": _run(jax, lambda x: lax.fori_loop(0, 1000, lambda i, y: lax.cond(y[0] > 0, small, jnp.cos, y), x), x),
        "associative_scan of 1,000 x 64 products": _run(jax, lambda x: lax.associative_scan(lax.mul, x), _floats(1000, 64)),
    }


@workload("gradient of a scan of 50 steps, carry of 1 MB")
def scan_memory(jax):
    jnp = jax.numpy

    def loss(x, w):
        def step(c, _):
            return jnp.sin(c * w) + jnp.exp(-c * c) * w, None
        return jax.lax.scan(step, x, None, length=50)[0].sum()
    return _run(jax, jax.grad(loss, (0, 1)), _floats(512, 512), _floats(512, 512))


# Tracing: new functions each time, so nothing is remembered

@call("tracing a scan", 0.25)
def trace_scan(jax):
    return best(lambda: jax.jit(lambda c, xs: jax.lax.scan(lambda c, x: (c * x, c), c, xs)).trace(np.float32(1), np.ones(10, np.float32)))


@call("tracing a scan and its gradient", 0.25)
def trace_scan_gradient(jax):
    f = lambda: jax.grad(lambda c, xs: jax.lax.scan(lambda c, x: (c * x, c), c, xs)[0])
    return best(lambda: jax.jit(f()).trace(np.float32(1), np.ones(10, np.float32)))


@call("tracing a cond", 0.25)
def trace_cond(jax):
    return best(lambda: jax.jit(lambda p, x: jax.lax.cond(p, lambda x: x + x, lambda x: x * x, x)).trace(True, np.float32(1)))


@call("tracing a while_loop", 0.25)
def trace_while(jax):
    return best(lambda: jax.jit(lambda x: jax.lax.while_loop(lambda x: x < 9, lambda x: x * x, x)).trace(np.float32(2)))


def _with_custom_vjp(jax):
    f = jax.custom_vjp(lambda x: x * x)
    f.defvjp(lambda x: (x * x, x), lambda x, ct: (ct * x,))
    return f


@call("tracing a custom_vjp call", 0.25)
def trace_custom_vjp(jax):
    return best(lambda: jax.jit(_with_custom_vjp(jax)).trace(np.float32(2)))


@call("tracing a custom_vjp call and its gradient", 0.25)
def trace_custom_vjp_gradient(jax):
    return best(lambda: jax.jit(jax.grad(_with_custom_vjp(jax))).trace(np.float32(2)))
