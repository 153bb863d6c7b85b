"""First operations: what an operation costs the first time that it meets a shape, when it is traced and compiled: small arrays and large ones."""
import statistics

import numpy as np

from benchmarks.registry import BENCHMARKS, Benchmark, elapsed

_RNG = np.random.default_rng(0)


def _floats(*shape):
    return _RNG.standard_normal(shape, np.float32)


_OPERATIONS = {
    "x + x": lambda jax, x: x + x,
    "sin": lambda jax, x: jax.numpy.sin(x),
    "tanh": lambda jax, x: jax.numpy.tanh(x),
    "where": lambda jax, x: jax.numpy.where(x > 0, x, 1.0),
    "x[1:]": lambda jax, x: x[1:],
    "sum": lambda jax, x: jax.numpy.sum(x, axis=0),
    "std": lambda jax, x: jax.numpy.std(x),
    "softmax": lambda jax, x: jax.nn.softmax(x),
    "x @ x": lambda jax, x: x.T @ x,
    "sort": lambda jax, x: jax.numpy.sort(x, axis=0),
    "inv": lambda jax, x: jax.numpy.linalg.inv(x[:3, :3]),
    "random.bits": lambda jax, x: jax.random.bits(jax.random.key(0), x.shape),
    "random.normal": lambda jax, x: jax.random.normal(jax.random.key(0), x.shape),
}
_SHAPES = {"small": [(n, 7) for n in range(4, 9)], "large": [(n, 50) for n in range(1001, 1006)]}


def _first_operations(jax):
    """The median over five shapes, after one more for what is loaded once a process."""
    result = {}
    for size, shapes in _SHAPES.items():
        for name, operation in _OPERATIONS.items():
            def first(shape):
                x = jax.device_put(_floats(*shape))
                return elapsed(lambda: jax.block_until_ready(operation(jax, x)))
            first((shapes[0][0] - 1, shapes[0][1]))
            result[_what(name, size)] = statistics.median(map(first, shapes))
    return result


def _what(name, size):
    return f"first {name} of a {size} shape"


# Products are a library's, and there is little to be saved. A sort of many is a longer program than jax's, since that runs five times as fast.
_BUDGETS = {("x @ x", "small"): 1.0, ("x @ x", "large"): 1.0, ("sort", "small"): 1.0, ("sort", "large"): None}
BENCHMARKS["first_operations"] = Benchmark(
    "first_operations", {_what(name, size): _BUDGETS.get((name, size), 0.75) for size in _SHAPES for name in _OPERATIONS}, _first_operations, False, 1)
