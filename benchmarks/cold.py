"""Cold starts: what real programs cost before their first step and after it, `python -m benchmarks cold`.

Of each program: its equations, the operations that XLA is given, seconds to trace, to lower and to compile it, to the first step's end, of a
step, and peak memory.
"""
import resource

import numpy as np

from benchmarks.registry import BENCHMARKS, Benchmark, elapsed, timed
from benchmarks.workloads import _normal, _transformer


def cold(what, *, first_step=0.6, step=1.0, memory=1.0, full_only=False):
    """Register a program: function(jax) returns a jitted function of one tree, which returns the tree for the next step, and the first tree."""
    names = {f"{what}: equations": None, f"{what}: operations": None, f"{what}: trace": None, f"{what}: lower": None, f"{what}: compile": None,
             f"{what}: first step": first_step, f"{what}: step": step, f"{what}: peak memory": memory}

    def register(function):
        def run(jax):
            jax.block_until_ready(jax.jit(lambda x: x + 1)(0))                  # what the first compilation of a process takes
            return dict(zip(names, _measured(jax, *function(jax))))
        BENCHMARKS[function.__name__] = Benchmark(function.__name__, names, run, False, 1, full_only)
        return function
    return register


def _measured(jax, update, state):
    state = jax.device_put(state)
    stages = []

    def stage(make):
        stages.append(None)
        stages[-1] = make()
    trace = elapsed(lambda: stage(lambda: update.trace(state)))
    lower = elapsed(lambda: stage(stages[-1].lower))
    compile_ = elapsed(lambda: stage(stages[-1].compile))
    compiled = stages[-1]

    def step():
        nonlocal state
        state = compiled(state)
        jax.block_until_ready(state)
    first = trace + lower + compile_ + elapsed(step)
    again = min(timed(lambda: elapsed(step), total=1.5))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return _equations(stages[0].jaxpr), _operations(stages[1].as_text()), trace, lower, compile_, first, again, peak


def _equations(program):
    """The equations of a program and of those in it."""
    count = 0
    for eqn in program.eqns:
        inner = [item for value in eqn.params.values() for item in (value if isinstance(value, (tuple, list)) else [value])]
        count += 1 + sum([_equations(item) for item in inner if hasattr(item, "eqns")])
    return count


def _operations(text):
    """The operations in the text of a program, each of its functions counted once."""
    return sum([" = " in line and not line.startswith(("#", "module")) for line in text.splitlines()])


def _descent(jax, loss, params, *data, rate=1e-3):
    """Gradient descent on `loss(params, *data)`."""
    def update(state):
        params, data = state
        grads = jax.grad(loss)(params, *data)
        return jax.tree.map(lambda p, g: p - rate * g, params, grads), data
    return jax.jit(update), (params, data)


# Transformers: `_transformer` hands its loss, parameters and data to the function given

def _transformer_program(jax, depth):
    return _transformer(jax, depth, train=_descent)


@cold("transformer of 2 layers")
def cold_transformer_2(jax):
    return _transformer_program(jax, 2)


@cold("transformer of 12 layers", first_step=0.25, step=0.75)
def cold_transformer_12(jax):
    return _transformer_program(jax, 12)


@cold("transformer of 48 layers", first_step=0.04, step=0.15, full_only=True)
def cold_transformer_48(jax):
    return _transformer_program(jax, 48)


@cold("recurrent network, 64 steps unrolled")
def cold_rnn(jax):
    """An LSTM over 64 letters, written out by a Python loop, with its gradient."""
    jnp, width, batch, steps = jax.numpy, 128, 16, 64
    params = dict(gates=_normal(2 * width, 4 * width), bias=np.zeros(4 * width, np.float32), out=_normal(width, width))
    xs = np.random.default_rng(1).normal(size=(steps, batch, width)).astype(np.float32)

    def loss(params, xs):
        h = c = jnp.zeros((batch, width))
        total = 0.0
        for t in range(steps):
            i, f, g, o = jnp.split(jnp.concatenate([xs[t], h], axis=1) @ params["gates"] + params["bias"], 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            total = total + jnp.mean((h @ params["out"] - xs[t]) ** 2)
        return total
    return _descent(jax, loss, params, xs)


@cold("MLP with Adam over 200 leaves")
def cold_adam(jax):
    """100 layers, each with weights and bias; the update written by tree.map, one quantity after the other."""
    jnp, width, layers = jax.numpy, 64, 100
    params = [dict(w=_normal(width, width), b=np.zeros(width, np.float32)) for _ in range(layers)]
    x = np.random.default_rng(1).normal(size=(32, width)).astype(np.float32)

    def loss(params, x):
        y = x
        for p in params:
            y = y + jnp.tanh(y @ p["w"] + p["b"])
        return jnp.mean((y - x) ** 2)

    def update(state):
        params, m, v, count, x = state
        grads, map_ = jax.grad(loss)(params, x), jax.tree.map
        count = count + 1
        m = map_(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = map_(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
        m_scale, v_scale = 1 / (1 - 0.9 ** count), 1 / (1 - 0.999 ** count)
        params = map_(lambda p, m, v: p - 1e-3 * (m * m_scale) / (jnp.sqrt(v * v_scale) + 1e-8), params, m, v)
        return params, m, v, count, x
    zeros = jax.tree.map(np.zeros_like, params)
    return jax.jit(update), (params, zeros, zeros, np.float32(0), x)


@cold("ODE solver, 50 steps unrolled")
def cold_ode(jax):
    """Runge-Kutta of order 4 over a small neural field, 50 steps by a Python loop, with the gradient through them."""
    jnp, width, batch = jax.numpy, 64, 32
    params = dict(w1=_normal(width, width), w2=_normal(width, width))
    x = np.random.default_rng(1).normal(size=(batch, width)).astype(np.float32)

    def loss(params, x):
        field = lambda y: jnp.tanh(y @ params["w1"]) @ params["w2"]
        y, h = x, 0.02
        for _ in range(50):
            k1 = field(y)
            k2 = field(y + 0.5 * h * k1)
            k3 = field(y + 0.5 * h * k2)
            k4 = field(y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return jnp.mean((y - x) ** 2)
    return _descent(jax, loss, params, x)


@cold("residual convolutional network")
def cold_resnet(jax):
    """12 residual blocks of two convolutions and a normalisation, in three widths."""
    jnp, lax = jax.numpy, jax.lax
    rng = np.random.default_rng(0)
    kernel = lambda i, o: (rng.normal(size=(3, 3, i, o)) / np.sqrt(9 * i)).astype(np.float32)
    widths = (16, 32, 64)
    params = dict(first=kernel(3, 16), blocks=[[dict(a=kernel(w, w), b=kernel(w, w), scale=np.ones(w, np.float32)) for _ in range(4)] for w in widths],
                  grow=[kernel(16, 32), kernel(32, 64)], last=_normal(64, 10))
    images = rng.normal(size=(8, 32, 32, 3)).astype(np.float32)

    def convolve(x, k, stride=1):
        return lax.conv_general_dilated(x, k, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def loss(params, images):
        x = convolve(images, params["first"])
        for stage, blocks in enumerate(params["blocks"]):
            if stage:
                x = convolve(x, params["grow"][stage - 1], 2)
            for p in blocks:
                y = jax.nn.relu(convolve(x, p["a"]))
                y = convolve(y, p["b"])
                y = (y - jnp.mean(y, (1, 2), keepdims=True)) / jnp.sqrt(jnp.var(y, (1, 2), keepdims=True) + 1e-5) * p["scale"]
                x = jax.nn.relu(x + y)
        return jnp.mean((jnp.mean(x, (1, 2)) @ params["last"]) ** 2)
    return _descent(jax, loss, params, images)


@cold("normalising flow, 16 couplings")
def cold_flow(jax):
    """Affine couplings (RealNVP), written out by a Python loop, each a network of two layers; the negative log-likelihood descends."""
    jnp, dims, width, batch = jax.numpy, 32, 128, 128
    coupling = lambda: dict(w1=_normal(dims // 2, width), b1=np.zeros(width, np.float32),
                            w2=_normal(width, dims) * np.float32(0.1), b2=np.zeros(dims, np.float32))
    params = [coupling() for _ in range(16)]
    x = np.random.default_rng(1).normal(size=(batch, dims)).astype(np.float32)

    def loss(params, x):
        volume = 0.0
        for p in params:
            kept, moved = jnp.split(x, 2, axis=1)
            scale, shift = jnp.split(jnp.tanh(kept @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"], 2, axis=1)
            scale = jnp.tanh(scale)
            x = jnp.concatenate([moved * jnp.exp(scale) + shift, kept], axis=1)
            volume = volume + jnp.sum(scale, axis=1)
        return jnp.mean(0.5 * jnp.sum(x ** 2, axis=1) - volume)
    return _descent(jax, loss, params, x)


@cold("N-body, 40 steps unrolled")
def cold_bodies(jax):
    """Leapfrog steps of 64 bodies, and the gradient of where they end in where they began."""
    jnp, count = jax.numpy, 64
    rng = np.random.default_rng(0)
    start = dict(x=rng.normal(size=(count, 3)).astype(np.float32), v=0.1 * rng.normal(size=(count, 3)).astype(np.float32))
    masses = rng.uniform(0.5, 1.5, count).astype(np.float32) / np.float32(count)

    def loss(start, masses):
        def pull(x):
            apart = x[None] - x[:, None]
            return jnp.sum(masses[None, :, None] * apart * (jnp.sum(apart ** 2, axis=-1, keepdims=True) + 0.05) ** -1.5, axis=1)
        x, v, h = start["x"], start["v"], 0.01
        for _ in range(40):
            v = v + 0.5 * h * pull(x)
            x = x + h * v
            v = v + 0.5 * h * pull(x)
        return jnp.mean(x ** 2)
    return _descent(jax, loss, start, masses)


@cold("VAE")
def cold_vae(jax):
    """A variational autoencoder of images of 784 pixels: encoder, a draw, decoder, and the bound."""
    jnp, nn, width, hidden = jax.numpy, jax.nn, 256, 16
    sizes = dict(e1=(784, width), e2=(width, width), mean=(width, hidden), spread=(width, hidden),
                 d1=(hidden, width), d2=(width, width), out=(width, 784))
    params = {name: dict(w=_normal(m, n), b=np.zeros(n, np.float32)) for name, (m, n) in sizes.items()}
    images = np.random.default_rng(1).uniform(size=(128, 784)).astype(np.float32)
    layer = lambda p, x: x @ p["w"] + p["b"]

    def loss(params, key, images):
        x = jnp.tanh(layer(params["e2"], jnp.tanh(layer(params["e1"], images))))
        mean, spread = layer(params["mean"], x), layer(params["spread"], x)
        z = mean + jnp.exp(0.5 * spread) * jax.random.normal(key, mean.shape)
        scores = layer(params["out"], jnp.tanh(layer(params["d2"], jnp.tanh(layer(params["d1"], z)))))
        fit = jnp.sum(images * nn.log_sigmoid(scores) + (1 - images) * nn.log_sigmoid(-scores), axis=1)
        return jnp.mean(0.5 * jnp.sum(jnp.exp(spread) + mean ** 2 - 1 - spread, axis=1) - fit)
    return _descent(jax, loss, params, np.array([0, 1], np.uint32), images)


@cold("language model by scan")
def cold_scan(jax):
    """A GRU over 64 letters, two layers, by lax.scan."""
    jnp, lax, width, letters, batch, steps = jax.numpy, jax.lax, 128, 64, 16, 64
    cell = lambda: dict(gates=_normal(2 * width, 2 * width), new=_normal(2 * width, width))
    params = dict(letters=_normal(letters, width), cells=[cell(), cell()], out=_normal(width, letters))
    text = np.random.default_rng(1).integers(letters, size=(steps + 1, batch)).astype(np.int32)

    def loss(params, text):
        def step(hs, x):
            new = []
            for p, h in zip(params["cells"], hs):
                reset, keep = jnp.split(jax.nn.sigmoid(jnp.concatenate([x, h], axis=1) @ p["gates"]), 2, axis=1)
                x = keep * h + (1 - keep) * jnp.tanh(jnp.concatenate([x, reset * h], axis=1) @ p["new"])
                new.append(x)
            return new, x @ params["out"]
        _, scores = lax.scan(step, [jnp.zeros((batch, width))] * 2, params["letters"][text[:-1]])
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(scores) * jax.nn.one_hot(text[1:], letters), axis=-1))
    return _descent(jax, loss, params, text)


@cold("a program with nothing repeated")
def cold_nothing_repeated(jax):
    """Forty layers, each of another width, with one of several nonlinearities each."""
    jnp = jax.numpy
    widths = [32 + 3 * i for i in range(41)]
    params = [dict(w=_normal(m, n), b=np.zeros(n, np.float32)) for m, n in zip(widths, widths[1:])]
    x = np.random.default_rng(1).normal(size=(16, widths[0])).astype(np.float32)
    shapes = (jnp.tanh, jax.nn.relu, jax.nn.softplus, jnp.sin, jax.nn.sigmoid)

    def loss(params, x):
        for i, p in enumerate(params):
            x = shapes[i % 5](x @ p["w"] + p["b"])
        return jnp.mean(x ** 2)
    return _descent(jax, loss, params, x)
