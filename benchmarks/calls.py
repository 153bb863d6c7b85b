"""What one waits for in small: importing, calls, eager operations, tracing and lowering."""
import statistics
import subprocess
import sys

import numpy as np

from benchmarks.registry import best, call, elapsed, per_call, timed


@call("import", 0.45, quick=True)
def importing(jax):
    program = f"import time; t = time.perf_counter(); import {jax.__name__}.numpy; print(time.perf_counter() - t)"
    return min(float(_run(program)) for _ in range(3))


@call("import, one array made and one sum printed")
def hello(jax):
    program = f"import {jax.__name__}.numpy as jnp; print(jnp.arange(3.0).sum())"
    return min(elapsed(lambda: _run(program)) for _ in range(3))


def _run(program):
    return subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, check=True).stdout


# Calls of compiled functions

@call("jit call, one array", 1.0, quick=True)
def jit_call(jax):
    f, x = jax.jit(lambda x: x + 1), jax.numpy.ones(4)
    return per_call(lambda: f(x), jax.block_until_ready)


@call("jit call, tree of 100 arrays", 1.0, quick=True)
def jit_call_tree(jax):
    f = jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree))
    tree = {f"layer{i}": {"weights": jax.numpy.ones(4), "bias": jax.numpy.ones(4)} for i in range(50)}
    return per_call(lambda: f(tree), jax.block_until_ready)


def _replicated_call(jax, function):
    f = jax.pmap(function, axis_name="i")
    x = f(np.ones((8, 4), np.float32))             # an output of pmap lies on the devices, where the next call wants it
    return per_call(lambda: f(x).block_until_ready())


@call("pmap call, 8 devices", 1.0, quick=True, devices=8)
def pmap_call(jax):
    return _replicated_call(jax, lambda x: x + 1)


@call("pmap call, 8 devices, psum", 1.0, devices=8)
def pmap_call_psum(jax):
    return _replicated_call(jax, lambda x: x / jax.lax.psum(x, "i"))


# Eager operations

def _eager(jax, operation, shape=(8,)):
    x = jax.numpy.ones(shape)
    return per_call(lambda: operation(x), jax.block_until_ready)


@call("eager x + x", 0.7, quick=True)
def eager_add(jax):
    return _eager(jax, lambda x: x + x)


@call("eager x + 1.0", 0.7)
def eager_add_scalar(jax):
    return _eager(jax, lambda x: x + 1.0)


@call("eager jnp.sin(x)", 1.0, quick=True)
def eager_sin(jax):
    return _eager(jax, jax.numpy.sin)


@call("eager x[0]", 0.2, quick=True)
def eager_index(jax):
    return _eager(jax, lambda x: x[0])


@call("eager x[1:]", 0.2)
def eager_slice(jax):
    return _eager(jax, lambda x: x[1:])


@call("eager grad of sum(sin(x) * x)", 0.15, quick=True)
def eager_grad(jax):
    return _eager(jax, jax.grad(lambda x: jax.numpy.sum(jax.numpy.sin(x) * x)))


@call("eager vmap of sin(x) * x", 0.15, quick=True)
def eager_vmap(jax):
    return _eager(jax, jax.vmap(lambda x: jax.numpy.sin(x) * x), (8, 4))


@call("first eager x + x of a new shape")
def eager_new_shape(jax):
    fresh = [jax.device_put(np.ones(n, np.float32)) for n in range(100, 112)]
    return statistics.median(elapsed(lambda: (x + x).block_until_ready()) for x in fresh)


# Tracing and lowering, for each operation that the program spells out

def _elementwise(jax, x, w, rounds=60):
    for _ in range(rounds):
        y = jax.numpy.sin(x)
        x = y * x + y - 0.5 * x
    return x


def _mixed(jax, x, w, rounds=25):
    jnp = jax.numpy
    for _ in range(rounds):
        y = x @ w
        y = y - jnp.max(y, axis=1, keepdims=True)
        y = jnp.where(y > -1, y, 0.1 * y)
        y = jnp.concatenate([y[:, 8:], y[:, :8]], axis=1)
        x = jnp.tanh(y.T.reshape(8, 16)) * x
    return x


OPERATIONS = {_elementwise: 60 * 5, _mixed: 25 * 13}
_X, _W = np.ones((8, 16), np.float32), np.ones((16, 16), np.float32)


def _trace(jax, program):
    return jax.jit(lambda x, w: program(jax, x, w)).trace(_X, _W)        # a new function each time: nothing is remembered


def _traced(jax, program):
    _trace(jax, program)
    return best(lambda: _trace(jax, program)) / OPERATIONS[program]


def _lowered(jax, program):
    _trace(jax, program).lower()
    return min(timed(lambda: elapsed(_trace(jax, program).lower), total=0.4)) / OPERATIONS[program]


@call("tracing an equation, elementwise", 0.2, quick=True)
def trace_elementwise(jax):
    return _traced(jax, _elementwise)


@call("tracing an equation, mixed", 0.2)
def trace_mixed(jax):
    return _traced(jax, _mixed)


@call("lowering an equation, elementwise", 0.3, quick=True)
def lower_elementwise(jax):
    return _lowered(jax, _elementwise)


@call("lowering an equation, mixed", 0.3)
def lower_mixed(jax):
    return _lowered(jax, _mixed)
