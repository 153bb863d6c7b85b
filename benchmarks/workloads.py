"""Whole programs that work in steps: time to the first step, time of a step, peak memory."""
import types
from pathlib import Path

import numpy as np

from benchmarks.registry import workload


@workload("elementwise, 5000 x 5000", quick=True)
def elementwise(jax):
    f, x = jax.jit(lambda x: x * x + x * 2.0), jax.numpy.ones((5000, 5000))
    return lambda: f(x).block_until_ready()


@workload("matrix product, 1500 x 1500")
def matmul(jax):
    f, x = jax.jit(lambda x: x @ x), jax.device_put(_normal(1500, 1500))
    return lambda: f(x).block_until_ready()


@workload("MLP train step", quick=True)
def mlp(jax):
    jnp = jax.numpy
    sizes = (784, 512, 512, 10)
    params = [(_normal(m, n), np.zeros(n, np.float32)) for m, n in zip(sizes, sizes[1:])]
    images, labels = _normal(128, 784), np.arange(128) % 10

    def loss(params, images, labels):
        x = images
        for weights, bias in params[:-1]:
            x = jnp.tanh(x @ weights + bias)
        weights, bias = params[-1]
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(x @ weights + bias) * jax.nn.one_hot(labels, 10), axis=1))
    return _sgd(jax, loss, params, images, labels)


@workload("digits train step, pmap over 8 devices", quick=True, devices=8)
def digits(jax):
    example = _load_example(jax, "digits.py")
    data = [example.deal(array, 8) for array in example.load()]
    state = example.start(jax.random.key(0), 8)

    def step():
        nonlocal state
        state, value = example.step(state, *data)
        value.block_until_ready()
    return step


@workload("transformer of 2 layers, train step", quick=True)
def transformer_2(jax):
    return _transformer(jax, 2)


@workload("transformer of 12 layers, train step", first_step=0.25, step=0.75)
def transformer_12(jax):
    return _transformer(jax, 12)


@workload("transformer of 48 layers, train step", first_step=0.04, step=0.15, full_only=True)
def transformer_48(jax):
    return _transformer(jax, 48)


def _transformer(jax, depth, width=128, heads=4, letters=256, batch=4, length=64, train=None):
    """A decoder that predicts the next letter, its layers written one after the other by a Python loop. train(jax, loss, params, *data)."""
    jnp, nn = jax.numpy, jax.nn

    def layer():
        ones = np.ones(width, np.float32)
        return dict(scale1=ones, qkv=_normal(width, 3 * width), out=_normal(width, width),
                    scale2=ones, up=_normal(width, 4 * width), down=_normal(4 * width, width))
    params = dict(letters=_normal(letters, width), places=_normal(length, width), layers=[layer() for _ in range(depth)])
    text = np.random.default_rng(1).integers(letters, size=(batch, length + 1)).astype(np.int32)

    def normalize(x, scale):
        x = x - jnp.mean(x, axis=-1, keepdims=True)
        return x / jnp.sqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale

    def attend(x, p):
        q, k, v = jnp.split(x @ p["qkv"], 3, axis=-1)
        q, k, v = [a.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3) for a in (q, k, v)]
        scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(width // heads).astype(np.float32)
        past = jnp.tril(jnp.ones((length, length), bool))
        mixed = nn.softmax(jnp.where(past, scores, -1e9), axis=-1) @ v
        return mixed.transpose(0, 2, 1, 3).reshape(batch, length, width) @ p["out"]

    def loss(params, text):
        x = params["letters"][text[:, :-1]] + params["places"]
        for p in params["layers"]:
            x = x + attend(normalize(x, p["scale1"]), p)
            x = x + nn.gelu(normalize(x, p["scale2"]) @ p["up"]) @ p["down"]
        scores = nn.log_softmax(x @ params["letters"].T)
        return -jnp.mean(jnp.sum(scores * nn.one_hot(text[:, 1:], letters), axis=-1))
    return (train or _sgd)(jax, loss, params, text)


def _sgd(jax, loss, params, *data):
    """One step of gradient descent on `loss(params, *data)`, as a function that keeps the parameters to itself."""
    @jax.jit
    def update(params, *data):
        value, grads = jax.value_and_grad(loss)(params, *data)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), value

    params, data = jax.device_put((params, data))

    def step():
        nonlocal params
        params, value = update(params, *data)
        jax.block_until_ready((params, value))
    return step


def _normal(rows, columns):
    """Random numbers, scaled so that a product with them keeps the size of what it multiplies."""
    return (np.random.default_rng(0).normal(size=(rows, columns)) / np.sqrt(rows)).astype(np.float32)


def _load_example(jax, name):
    """The module that an example becomes with the framework in mini_jax's place: only its import lines change."""
    path = Path(__file__).parent.parent / "mini_jax" / "examples" / name
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    exec(compile(path.read_text().replace("mini_jax", jax.__name__), path, "exec"), module.__dict__)
    return module
