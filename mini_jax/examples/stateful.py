"""State in two ways: passed on as values, and written in place in refs. Both give the same numbers.

    python -m mini_jax.examples.stateful

A classifier of handwritten digits whose training has three kinds of state: running statistics of batch normalisation, what
Adam remembers of each parameter, and metrics (the loss, and which digit was taken for which). First every function takes state
and returns the next one. Then the same is written with refs: statistics and metrics are written where they arise, deep inside
of the loss, and nothing is handed through. What is alike in both is said once, in formulas on arrays.
"""
import dataclasses

import numpy as np

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax, random
from mini_jax.examples.digits import TRAIN, load

LAYERS, BATCH, STEPS = (64, 48, 48, 10), 240, 100
RATE, DECAY, DECAY2, MEMORY = 3e-3, 0.9, 0.999, 0.9


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Training:
    """All there is while training. A pytree, of arrays in the one way and of refs in the other."""
    params: list         # of each layer its weights, scale and shift
    stats: list          # of each hidden layer the running mean and variance
    adam: list           # of each parameter the mean of the gradient and of its square
    metrics: dict        # steps, the sum of losses, and how often digit i was taken for j


def init(key):
    params = [{"weights": random.normal(k, (m, n)) / jnp.sqrt(m), "scale": jnp.ones(n), "shift": jnp.zeros(n)}
              for k, m, n in zip(random.split(key, len(LAYERS) - 1), LAYERS, LAYERS[1:])]
    return Training(params, [{"mean": jnp.zeros(n), "var": jnp.ones(n)} for n in LAYERS[1:-1]],
                    [{"mean": jnp.zeros_like(p), "square": jnp.zeros_like(p)} for p in jax.tree.leaves(params)],
                    {"steps": jnp.int32(0), "loss": jnp.float32(0), "confusion": jnp.zeros((10, 10), jnp.int32)})


# Formulas

def blend(old, new):
    return MEMORY * old + (1 - MEMORY) * new


def standardized(x, mean, var):
    return (x - mean) * lax.rsqrt(var + 1e-5)


def surprise(scores, labels):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], axis=1))


def descended(p, mean, square, steps):
    """A parameter after Adam's step number `steps`, given the means after it."""
    return p - RATE * (mean / (1 - DECAY ** steps)) / (jnp.sqrt(square / (1 - DECAY2 ** steps)) + 1e-8)


# One way: state goes in, the next state comes out, through all functions in between

def normalize(x, stat):
    mean, var = x.mean(0), x.var(0)
    return standardized(x, mean, var), {"mean": blend(stat["mean"], mean), "var": blend(stat["var"], var)}


def predict(params, stats, x):
    after = []
    for layer, stat in zip(params, stats):
        x, stat = normalize(x @ layer["weights"], stat)
        after.append(stat)
        x = jax.nn.relu(x * layer["scale"] + layer["shift"])
    return x @ params[-1]["weights"] + params[-1]["shift"], after


def loss(params, stats, metrics, images, labels):
    scores, stats = predict(params, stats, images)
    value = surprise(scores, labels)
    confusion = metrics["confusion"].at[labels, jnp.argmax(scores, axis=1)].add(1)
    return value, (stats, {"steps": metrics["steps"] + 1, "loss": metrics["loss"] + value, "confusion": confusion})


@jax.jit
def step(t, images, labels):
    grads, (stats, metrics) = jax.grad(loss, has_aux=True)(t.params, t.stats, t.metrics, images, labels)
    leaves, tree = jax.tree.flatten(t.params)
    params, adam = [], []
    for p, g, seen in zip(leaves, jax.tree.leaves(grads), t.adam):
        mean, square = DECAY * seen["mean"] + (1 - DECAY) * g, DECAY2 * seen["square"] + (1 - DECAY2) * g * g
        params.append(descended(p, mean, square, metrics["steps"]))
        adam.append({"mean": mean, "square": square})
    return Training(tree.unflatten(params), stats, adam, metrics)


# The other: what has state writes it

def normalize_in_place(x, stat):
    mean, var = x.mean(0), x.var(0)
    stat["mean"][...] = blend(stat["mean"][...], lax.stop_gradient(mean))
    stat["var"][...] = blend(stat["var"][...], lax.stop_gradient(var))
    return standardized(x, mean, var)


def predict_in_place(params, stats, x):
    for layer, stat in zip(params, stats):
        x = jax.nn.relu(normalize_in_place(x @ layer["weights"], stat) * layer["scale"] + layer["shift"])
    return x @ params[-1]["weights"] + params[-1]["shift"]


def loss_in_place(params, stats, metrics, images, labels):
    scores = predict_in_place(params, stats, images)
    value = surprise(scores, labels)
    metrics["steps"][...] += 1
    metrics["loss"][...] += lax.stop_gradient(value)
    jax.ref.addupdate(metrics["confusion"], (labels, jnp.argmax(scores, axis=1)), 1)
    return value


@jax.jit
def step_in_place(t, images, labels):
    grads = jax.grad(loss_in_place)(jax.tree.map(lambda ref: ref[...], t.params), t.stats, t.metrics, images, labels)
    for p, g, seen in zip(jax.tree.leaves(t.params), jax.tree.leaves(grads), t.adam):
        seen["mean"][...] = DECAY * seen["mean"][...] + (1 - DECAY) * g
        seen["square"][...] = DECAY2 * seen["square"][...] + (1 - DECAY2) * g * g
        p[...] = descended(p[...], seen["mean"][...], seen["square"][...], t.metrics["steps"][...])


def accuracy(t, images, labels):
    """The share of digits read rightly, with the running statistics in place of a batch's."""
    x = images
    for layer, stat in zip(t.params, t.stats):
        x = jax.nn.relu(standardized(x @ layer["weights"], **stat) * layer["scale"] + layer["shift"])
    return jnp.mean(jnp.argmax(x @ t.params[-1]["weights"] + t.params[-1]["shift"], axis=1) == labels)


def main():
    images, labels = load()
    batches = [(images[i:i + BATCH], labels[i:i + BATCH]) for i in range(0, TRAIN, BATCH)]
    values = init(random.key(0))
    refs = jax.tree.map(jax.new_ref, values)
    for i in range(STEPS):
        values = step(values, *batches[i % len(batches)])
        step_in_place(refs, *batches[i % len(batches)])
        if i % 25 == 24:
            means = [m["loss"][...] / m["steps"][...] for m in (values.metrics, refs.metrics)]
            print(f"  step {i + 1:4}  mean loss so far {means[0]:.6f} with values, {means[1]:.6f} with refs")

    refs = jax.tree.map(jax.freeze, refs)                # what they hold, as arrays
    apart = {}
    for name in ("params", "stats", "adam", "metrics"):
        pairs = list(zip(*[jax.tree.leaves(getattr(t, name)) for t in (values, refs)]))
        apart[name] = max(float(np.max(np.abs(np.asarray(a - b)))) for a, b in pairs)
        print(f"  {name:8} {len(pairs):2} arrays, differ by {apart[name]:.1e} at most")
    right = [accuracy(t, images[TRAIN:], labels[TRAIN:]) for t in (values, refs)]
    print(f"Done: {right[0]:.1%} of unseen digits read rightly with values, {right[1]:.1%} with refs.")
    return 0 if max(apart.values()) < 1e-4 else "FAILED: the two ways disagree"


if __name__ == "__main__":
    raise SystemExit(main())
