"""One training, run in ever more places: on one device, on eight, on two times four, and on those of two processes.

    python -m mini_jax.examples.one_to_many [--steps 20]

The network that reads digits (mini_jax.examples.digits) is trained for a few steps in each of these ways. The step is always the same function;
what changes is who holds which images, and along which axes gradients are averaged. So the losses must be the same, but for
rounding: sums are added up in another order.
"""
import argparse
import json
import os
import re
import subprocess
import sys
from functools import partial

import numpy as np

import mini_jax as jax
from mini_jax import lax
from mini_jax.examples.digits import BATCH, RATE, TRAIN, init, load, loss
from mini_jax.sharding import Mesh, PartitionSpec as P

DEVICES = 8
TOLERANCE = 2e-5


def step(params, images, labels, axes=()):
    """Gradient descent on these images, together with all who are along the named axes: the new parameters, and the loss."""
    value, grads = jax.value_and_grad(loss)(params, images, labels)
    if axes:
        value, grads = lax.pmean((value, grads), axes)
    return jax.tree.map(lambda p, g: p - RATE * g, params, grads), value


def train(update, steps, deal):
    """The loss at each step. deal: what becomes of the images, or labels, of a batch before they are given to update."""
    params = init(jax.random.key(0))
    images, labels = [array[:TRAIN].reshape(TRAIN // BATCH, BATCH, *array.shape[1:]) for array in load()]
    losses = []
    for i in range(steps):
        batch = i % len(images)
        params, value = update(params, deal(images[batch]), deal(labels[batch]))
        losses.append(value)
    return [float(value) for value in losses]


def one_device(steps):
    return train(jax.jit(step), steps, lambda batch: batch)


def pmapped(steps):
    """A part of the batch on each device; the parameters on all."""
    update = jax.pmap(partial(step, axes="devices"), "devices", in_axes=(None, 0, 0), out_axes=None)
    return train(update, steps, lambda batch: batch.reshape(DEVICES, -1, *batch.shape[1:]))


def nested(steps):
    """A pmap of a pmap: two groups of four devices."""
    inner = jax.pmap(partial(step, axes=("groups", "members")), "members", in_axes=(None, 0, 0), out_axes=None)
    update = jax.pmap(inner, "groups", in_axes=(None, 0, 0), out_axes=None)
    return train(update, steps, lambda batch: batch.reshape(2, DEVICES // 2, -1, *batch.shape[1:]))


def sharded(steps):
    """The same over a mesh: arrays are whole, and the specs say how they are cut. Without check_vma each device has the gradient of its own
    loss, as with pmap."""
    mesh, cut = Mesh(np.array(jax.devices()), ("devices",)), P("devices")
    update = jax.shard_map(partial(step, axes="devices"), mesh=mesh, in_specs=(P(), cut, cut), out_specs=P(), check_vma=False)
    return train(jax.jit(update), steps, lambda batch: batch)


def among_processes(steps):
    """In each of several processes: pmap over the devices of all, given this process's part of the batch."""
    jax.distributed.initialize()
    local = lambda batch: np.array_split(batch, jax.process_count())[jax.process_index()]
    update = jax.pmap(partial(step, axes="devices"), "devices", in_axes=(None, 0, 0), out_axes=None)
    return train(update, steps, lambda batch: local(batch).reshape(jax.local_device_count(), -1, *batch.shape[1:]))


def launched(steps):
    """Two processes with four devices each, started by the launcher."""
    script = ["-m", "mini_jax.examples.one_to_many", "--steps", str(steps), "--one-of-several"]
    command = [sys.executable, "-m", "mini_jax", "launch", "-n", "2", "--devices", str(DEVICES // 2), *script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"the launcher ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    found = [json.loads(line) for line in re.findall(r"^\[\d\] (\[.*\])$", done.stdout, re.MULTILINE)]
    if len(found) != 2 or found[0] != found[1]:
        raise RuntimeError(f"the processes don't agree:\n{done.stdout}")
    return found[0]


WAYS = {"1 device": one_device, "8 by pmap": pmapped, "2 x 4 nested pmap": nested, "8 by shard_map": sharded, "2 processes x 4": launched}


def main():
    parser = argparse.ArgumentParser(prog="python -m mini_jax.examples.one_to_many", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="gradient steps (20)")
    parser.add_argument("--one-of-several", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.steps < 1:
        parser.error("--steps: at least 1")
    if args.one_of_several:
        print(json.dumps(among_processes(args.steps)))
        return 0
    flag = "--xla_force_host_platform_device_count"
    if flag not in os.environ.get("XLA_FLAGS", ""):         # XLA reads it when the first device is asked for
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}={DEVICES}".strip()
    losses = {name: way(args.steps) for name, way in WAYS.items()}
    print("  step  " + "".join([f"{name:>20}" for name in losses]))
    for i in range(args.steps):
        print(f"{i + 1:6}  " + "".join([f"{values[i]:20.6f}" for values in losses.values()]))
    apart = max([abs(a - b) for values in losses.values() for a, b in zip(values, losses["1 device"])])
    print(f"They differ by {apart:.1e} at most. {'Done.' if apart < TOLERANCE else 'FAILED.'}")
    return 0 if apart < TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
