"""Recognising handwritten digits on eight devices, from scratch, with nothing but this package.

    python -m mini_jax.examples.digits [--steps 300] [--devices 8] [--seed 0] [--out out/digits]

A multi-layer perceptron learns to read 8 x 8 images of digits. It is a single program over multiple data (SPMD): every
device holds the whole network and a share of the images, computes the gradient on its share, and averages gradients with
the others, so that all devices take the same step. Afterwards the same training runs on one device and must give the same.
"""
import argparse
import os
import time
from functools import partial
from pathlib import Path

import numpy as np

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax, random

DATA = Path(__file__).parent / "data" / "digits.csv.gz"   # 1797 digits; data/digits.txt says whose they are
LAYERS = (64, 128, 64, 10)          # pixels in, two hidden layers, one score for each digit out
TRAIN, BATCH = 1440, 240            # the other 357 digits are held out; a step looks at 240 at once
RATE, MOMENTUM = 0.1, 0.9


# The network, written for one image. `vmap` makes it one for many.

def init(key):
    """Random weights, scaled so that each layer keeps the size of what goes through it, and zero biases."""
    keys = random.split(key, len(LAYERS) - 1)
    return [(random.normal(k, (m, n)) * jnp.sqrt(2.0 / m), jnp.zeros(n)) for k, m, n in zip(keys, LAYERS, LAYERS[1:])]


def predict(params, image):
    """The log probability of each of the ten digits."""
    x = image
    for weights, bias in params[:-1]:
        x = jax.nn.relu(x @ weights + bias)
    weights, bias = params[-1]
    return jax.nn.log_softmax(x @ weights + bias)


def loss(params, images, labels):
    """How surprised the network is by the right answers, on average."""
    surprise = lambda image, label: -predict(params, image)[label]
    return jnp.mean(jax.vmap(surprise)(images, labels))


@jax.jit
def accuracy(params, images, labels):
    """The share of digits read rightly."""
    scores = jax.vmap(predict, in_axes=(None, 0))(params, images)
    return jnp.mean(jnp.argmax(scores, axis=1) == labels)


# One step of training. `pmap` compiles it once and runs it on all devices together.

@partial(jax.pmap, axis_name="devices")
def step(state, images, labels):
    """Gradient descent with momentum on the next batch of this device's (batches, size, 64) images."""
    count, params, velocity = state
    batch = count % images.shape[0]
    value, grads = jax.value_and_grad(loss)(params, images[batch], labels[batch])
    value, grads = lax.pmean((value, grads), "devices")       # the one place where devices talk to each other
    velocity = jax.tree.map(lambda v, g: MOMENTUM * v - RATE * g, velocity, grads)
    params = jax.tree.map(lambda p, v: p + v, params, velocity)
    return (count + 1, params, velocity), value


def start(key, devices):
    """The state of every device before the first step: the same key everywhere makes the same weights everywhere."""
    def fresh(device, key):
        params = init(key)
        return jnp.int32(0), params, jax.tree.map(jnp.zeros_like, params)
    return jax.pmap(fresh, in_axes=(0, None))(jnp.arange(devices), key)


def load():
    """Images as numbers from 0 to 1 and their labels, shuffled once and for all."""
    table = np.loadtxt(DATA, delimiter=",", dtype=np.int32)
    table = table[np.asarray(random.permutation(random.key(0), len(table)))]
    return (table[:, :64] / 16).astype(np.float32), table[:, 64]


def deal(array, devices):
    """Cut the training part into batches and lay each batch out over the devices: (devices, batches, size, ...)."""
    batches = array[:TRAIN].reshape(TRAIN // BATCH, devices, BATCH // devices, *array.shape[1:])
    return jax.pmap(lambda x: x)(np.swapaxes(batches, 0, 1))  # from here on each device keeps its share


def one(tree):
    """What the first device holds of a replicated tree."""
    return jax.tree.map(lambda leaf: leaf[0], tree)


def train(key, digits, devices, steps, report):
    """Train from scratch; return the trained parameters, the loss at every step and the accuracy on held-out digits."""
    held_out = [array[TRAIN:] for array in digits]
    images, labels = [deal(array, devices) for array in digits]
    state, losses, began = start(key, devices), [], time.perf_counter()
    for i in range(steps):
        state, value = step(state, images, labels)            # nothing is gathered: state stays where it is
        losses.append(value)
        if report and (i % 25 == 24 or i in (0, steps - 1)):
            print(f"  step {i + 1:4}  loss {value[0]:.4f}  held-out accuracy {accuracy(one(state[1]), *held_out):6.1%}"
                  f"  {time.perf_counter() - began:5.1f} s", flush=True)
    params, losses = jax.device_get((one(state[1]), losses))
    return params, np.stack(losses)[:, 0], accuracy(params, *held_out)


def write_programs(folder, key, digits, devices):
    """Write what the train step becomes on its way to the machine, for reading."""
    args = start(key, devices), *[deal(array, devices) for array in digits]
    lowered = step.lower(*args)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in [("step.jaxpr.txt", str(jax.make_jaxpr(step)(*args))), ("step.stablehlo.mlir", lowered.as_text()),
                       ("step.hlo.txt", lowered.compile().as_text())]:
        (folder / name).write_text(text + "\n")
        print(f"  {folder / name}  ({len(text.splitlines())} lines)")


def main():
    parser = argparse.ArgumentParser(prog="python -m mini_jax.examples.digits", description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--devices", type=int, default=8, help=f"how many; must divide the batch of {BATCH}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/digits"), help="folder for the lowered programs")
    args = parser.parse_args()
    if args.devices < 1 or BATCH % args.devices:
        parser.error(f"--devices {args.devices}: must divide the batch of {BATCH} digits")
    if args.steps < 1:
        parser.error(f"--steps {args.steps}: at least 1")
    # A CPU stands in for several devices when XLA is told so before the first array is made.
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + f" --xla_force_host_platform_device_count={args.devices}"
    key, digits = random.key(args.seed), load()

    print(f"Training on {args.devices} of {jax.device_count()} devices: {TRAIN} digits, batches of {BATCH}")
    params, losses, read = train(key, digits, args.devices, args.steps, report=True)
    print("The train step, as compiled for these devices:")
    write_programs(args.out, key, digits, args.devices)

    print("The same training on one device:")
    params1, losses1, read1 = train(key, digits, 1, args.steps, report=False)
    apart = max(np.max(np.abs(a - b)) for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(params1)))
    losses_apart = np.max(np.abs(losses - losses1))
    print(f"  held-out accuracy {read1:.1%}; parameters differ by {apart:.1e} at most, losses by {losses_apart:.1e}")

    failures = [what for what, bad in [("held-out accuracy is under 95 %", not read >= 0.95),
                                       ("one device and several disagree", not (apart < 1e-4 and losses_apart < 1e-4))] if bad]
    print("FAILED: " + "; ".join(failures) if failures else f"Done: {read:.1%} of unseen digits read rightly.")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
