"""A tour of the four transformations: grad, jit, vmap and pmap. Read it top to bottom; run it to see each value checked.

    python docs/tour/transformations.py           smaller matrices where size does not matter, a few seconds
    python docs/tour/transformations.py --full    matrices of 5000 x 6000 numbers: about 4 GB of memory, a minute

Every result is compared with an expected one: worked out by hand, or computed by NumPy in double precision.
"""
import os
import sys
import textwrap
import time

# A program over eight devices, on a machine that has one: XLA counts the CPU as eight if it is told so before it starts.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
FULL = "--full" in sys.argv[1:]

import numpy as np

np.random.seed(0)


def check(what, value, expected, tolerance=1e-5):
    """Print a value and fail unless it is as expected, relative to the size of what is expected."""
    value, expected = np.asarray(value), np.asarray(expected)
    shown = np.array2string(value, precision=7, separator=", ") if value.size <= 16 else f"array of shape {value.shape}"
    print(f"{what}:\n{textwrap.indent(shown, '    ')}")
    assert value.shape == expected.shape, f"{what}: shape {value.shape}, expected {expected.shape}"
    np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance * np.max(np.abs(expected)), err_msg=what)


def section(title):
    print(f"\n{title}\n{'-' * len(title)}")


section("grad: derivatives")
# `grad` takes a function that returns one number, and gives the function that returns its derivative.

from mini_jax import grad
import mini_jax.numpy as jnp


def tanh(x):
    y = jnp.exp(-2.0 * x)
    return (1.0 - y) / (1.0 + y)


t = np.tanh(1.0)
slope = 1 - t * t                      # calculus: tanh' = 1 - tanh^2
grad_tanh = grad(tanh)
check("tanh'(1)", grad_tanh(1.0), slope)

# What comes out is a function like any other, so there is no limit to the order.
check("tanh'''(1)", grad(grad(grad(tanh)))(1.0), 4 * t * t * slope - 2 * slope * slope)

# Two more basic pieces are jvp, which pushes a direction forward through a function, and vjp, which pulls a covector back.
# They agree: the number below is reached both ways.
from mini_jax import jvp, vjp


def rotate(v):
    return jnp.stack([jnp.cos(v[0]) * v[1], jnp.sin(v[0]) * v[1]])


point, direction, covector = jnp.array([0.3, 2.0]), jnp.array([1.0, 0.5]), jnp.array([0.2, -1.0])
J = np.array([[-np.sin(0.3) * 2, np.cos(0.3)], [np.cos(0.3) * 2, np.sin(0.3)]])
check("forward: covector . (J direction)", covector @ jvp(rotate, (point,), (direction,))[1], [0.2, -1.0] @ J @ [1.0, 0.5])
check("reverse: (covector J) . direction", vjp(rotate, point)[1](covector)[0] @ direction, [0.2, -1.0] @ J @ [1.0, 0.5])

# Forward over reverse is the cheap way to second derivatives.
from mini_jax import jit, jacfwd, jacrev


def hessian(fun):
    return jit(jacfwd(jacrev(fun)))


x = np.array([0.5, -1.0, 2.0])
check("hessian of sum(sin x) * sum(x^2)", hessian(lambda x: jnp.sum(jnp.sin(x)) * jnp.sum(x ** 2))(x.astype(np.float32)),
      -np.diag(np.sin(x)) * np.sum(x ** 2) + 2 * np.outer(np.cos(x), x) + 2 * np.outer(x, np.cos(x)) + 2 * np.eye(3) * np.sum(np.sin(x)))


# Python decides as usual: the value is there while `grad` runs the function.
def abs_val(x):
    if x > 0:
        return x
    else:
        return -x


abs_val_grad = grad(abs_val)
check("|x|' at 1", abs_val_grad(1.0), 1.0)
check("|x|' at -1", abs_val_grad(-1.0), -1.0)


section("jit: compiling")
# `jit` hands the whole function to the XLA compiler, which makes one pass over memory of what would have been three.

def slow_f(x):
    return x * x + x * 2.0


fast_f = jit(slow_f)
x = jnp.ones((5000, 5000) if FULL else (1000, 1000))


def seconds(f):
    f(x).block_until_ready()           # once for the compiler
    began = time.perf_counter()
    for _ in range(5):
        f(x).block_until_ready()
    return (time.perf_counter() - began) / 5


assert jnp.allclose(slow_f(x), fast_f(x))
check("3 everywhere: smallest and largest entry", jnp.stack([fast_f(x).min(), fast_f(x).max()]), [3.0, 3.0])
print(f"{x.shape[0]} x {x.shape[1]}: {seconds(slow_f) * 1e3:.2f} ms one operation at a time, {seconds(fast_f) * 1e3:.2f} ms compiled")


section("vmap: many at once")
# Written for one input vector, without a thought of batches:

def predict(params, input_vec):
    assert input_vec.ndim == 1
    activations = input_vec
    for W, b in params:
        outputs = jnp.dot(W, activations) + b
        activations = jnp.tanh(outputs)
    return outputs                     # no activation on the last layer


k, N = 10, 5
input_batch = np.random.rand(k, N)
params = [
    (np.random.rand(N, N), np.random.rand(N)),
    (np.random.rand(N, N), np.random.rand(N)),
]

# A loop calls it once for each vector. `vmap` turns the whole function into one for a batch: matrix times matrix, no loop.
from functools import partial
from mini_jax import vmap

(W1, b1), (W2, b2) = params
hidden = np.tanh(input_batch @ W1.T + b1)
expected = hidden @ W2.T + b2
check("predictions by a loop", jnp.stack(list(map(partial(predict, params), input_batch))), expected)
check("predictions by vmap", vmap(partial(predict, params))(input_batch), expected)
check("the same, saying which argument has the batch", vmap(predict, in_axes=(None, 0))(params, input_batch), expected)


# A gradient for every example alone, which batched code by hand hardly gives:
def loss(params, x, y0):
    y = predict(params, x)
    return jnp.sum((y - y0) ** 2)


inputs, targets = np.random.rand(k, N), np.random.rand(k, N)
per_example_gradients = vmap(partial(grad(loss), params))(inputs, targets)

hidden = np.tanh(inputs @ W1.T + b1)   # the chain rule, by hand
d_out = 2 * (hidden @ W2.T + b2 - targets)
d_hidden = d_out @ W2 * (1 - hidden ** 2)
(gW1, gb1), (gW2, gb2) = per_example_gradients
check("first layer, weights", gW1, np.einsum("ki,kj->kij", d_hidden, inputs))
check("first layer, biases", gb1, d_hidden)
check("second layer, weights", gW2, np.einsum("ki,kj->kij", d_out, hidden))
check("second layer, biases", gb2, d_out)


section("pmap: many devices")
# `pmap` compiles one program and runs a copy of it on every device, each on its own slice of the data. Results stay where
# they were made: the matrices below are born on eight devices and multiplied there.

from mini_jax import random, pmap

rows, columns = (5000, 6000) if FULL else (500, 600)
keys = random.split(random.PRNGKey(0), 8)
mats = pmap(lambda key: random.normal(key, (rows, columns)))(keys)
result = pmap(lambda x: jnp.dot(x, x.T))(mats)
assert result.shape == (8, rows, rows) and len(result.sharding.device_set) == 8

# The mean of X X^T is the squared length of X's column sums over the number of entries.
column_sums = np.stack([np.asarray(mats[i]).sum(0, dtype=np.float64) for i in range(8)])
check("mean of each device's product", pmap(jnp.mean)(result), (column_sums ** 2).sum(1) / rows ** 2, tolerance=1e-4)
check("the first number of each matrix, as JAX draws it", mats[:, 0, 0],
      [1.0040143, -2.4424558, 1.2956359, -0.6219436, -1.0208853, 0.6373771, 1.1634994, -0.0625905])

# With a name for the axis, devices talk to each other.
from mini_jax import lax


@partial(pmap, axis_name="i")
def normalize(x):
    return x / lax.psum(x, "i")


check("normalize", normalize(jnp.arange(4.0)), [0, 1 / 6, 2 / 6, 3 / 6])


# A pmap within a pmap makes a grid of devices; a collective runs along the rows, along the columns, or over all of them.
@partial(pmap, axis_name="rows")
@partial(pmap, axis_name="columns")
def shares(x):
    return x / lax.psum(x, "columns"), x / lax.psum(x, "rows"), x / lax.psum(x, ("rows", "columns"))


grid = np.arange(1.0, 9.0).reshape(2, 4)
for what, value, whole in zip(["of its row", "of its column", "of everything"], shares(jnp.array(grid)),
                              [grid.sum(1, keepdims=True), grid.sum(0, keepdims=True), grid.sum()]):
    check(f"each number's share {what}", value, grid / whole)


# It all composes. Here is a parallel function, with a parallel function inside, whose gradient it takes, and then the
# gradient of all of that: eight devices work on each, forwards and backwards.
@pmap
def f(x):
    y = jnp.sin(x)
    @pmap
    def g(z):
        return jnp.cos(z) * jnp.tan(y.sum()) * jnp.tanh(x).sum()
    return grad(lambda w: jnp.sum(g(w)))(x)


x = jnp.arange(8.0).reshape(2, 4)

X = np.arange(8.0).reshape(2, 4)       # the same by hand: row by row, -sin(x) T S with T and S as here
sin, cos = np.sin(X), np.cos(X)
T, S = np.tan(sin.sum(1, keepdims=True)), np.tanh(X).sum(1, keepdims=True)
check("f(x)", f(x), -sin * T * S)
total = sin.sum(1, keepdims=True)
check("the gradient of its sum", grad(lambda x: f(x).sum())(x),
      -cos * T * S - total * (1 + T ** 2) * cos * S - total * T * (1 - np.tanh(X) ** 2), tolerance=1e-4)

print("\nEverything is as it should be.")
