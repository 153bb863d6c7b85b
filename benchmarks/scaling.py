"""Scaling: a pmapped training step and sums over 1 to 8 forced devices of one process, and over 1 to 4 processes of one device each.

Strong scaling: a batch of 512 in all, so that more devices have less to do each. Weak: 128 for each device. Forced devices are threads, and
processes of one machine share it too: on c cores nothing gets faster by more than a factor of c, and of n devices each that has 128 examples
takes n / c times as long together as alone. What the rows compare is mini_jax and jax under the same conditions.

Of several processes, process 0 measures: `python -m benchmarks.scaling mini_jax|jax ADDRESS COUNT NUMBER` is one of them.
"""
import importlib
import json
import os
import socket
import subprocess
import sys

import numpy as np

from benchmarks.registry import BENCHMARKS, Benchmark, elapsed, timed

DEVICES, PROCESSES = (1, 2, 4, 8), (1, 2, 4)
WIDTH, STRONG, WEAK = 256, 512, 128
SIZES = {"4 kB": 1 << 10, "4 MB": 1 << 20}


def _step(jax, devices, own, rows):
    """A function that does a step of gradient descent of a perceptron over `devices`, of which this process has `own`, `rows` examples on each."""
    jnp, lax, rng = jax.numpy, jax.lax, np.random.default_rng(0)
    params = [rng.normal(size=(WIDTH, WIDTH)).astype("f4") / WIDTH ** 0.5 for _ in range(4)]

    def loss(params, x):
        y = x
        for w in params:
            y = jnp.tanh(y @ w)
        return jnp.mean((y - x) ** 2)

    def step(params, x):
        value, grads = lax.pmean(jax.value_and_grad(loss)(params, x), "i")
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value
    step = jax.pmap(step, axis_name="i", devices=devices)
    place = jax.pmap(lambda x: x, devices=devices)
    state = place([np.broadcast_to(w, (own, *w.shape)) for w in params])
    x = place(rng.normal(size=(own, rows, WIDTH)).astype("f4"))

    def once():
        nonlocal state
        state, value = step(state, x)
        value.block_until_ready()
    return once


def _measured(jax, devices, own):
    """Seconds of each thing over these devices. (As many calls in each process: none may wait for one that doesn't come.)"""
    programs = {"step, strong": _step(jax, devices, own, STRONG // len(devices)), "step, weak": _step(jax, devices, own, WEAK)}
    for name, count in SIZES.items():
        psum, x = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i", devices=devices), np.ones((own, count), np.float32)
        x = jax.pmap(lambda x: x, devices=devices)(x)
        programs[f"psum of {name}"] = lambda psum=psum, x=x: psum(x).block_until_ready()
    values = {}
    for name, program in programs.items():
        program()
        values[name] = min(timed(lambda: elapsed(program), total=0, at_least=60))
    return values


def scaling_devices(jax):
    values = {}
    for count in DEVICES:
        for name, seconds in _measured(jax, jax.devices()[:count], count).items():
            values[f"{name}, {count} of 8 devices"] = seconds
    return values


def scaling_processes(jax):
    values = {}
    for count in PROCESSES:
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
        running = [subprocess.Popen([sys.executable, "-m", "benchmarks.scaling", jax.__name__, address, str(count), str(i)], env=environment, text=True,
                                    stdout=subprocess.PIPE, stderr=None if i == 0 else subprocess.DEVNULL) for i in range(count)]
        try:
            said, *_ = [process.communicate(timeout=240)[0] for process in running]
        finally:
            for process in running:
                process.kill()
        if any([process.returncode for process in running]):
            raise RuntimeError(f"{count} processes ended with {[process.returncode for process in running]}")
        for name, seconds in json.loads(said.splitlines()[-1]).items():
            values[f"{name}, {count} process{'es' * (count > 1)}"] = seconds
    return values


def _one_process(framework, address, count, number):
    jax = importlib.import_module(framework)
    jax.distributed.initialize(address, int(count), int(number))
    found = _measured(jax, jax.devices(), jax.local_device_count())
    if int(number) == 0:
        print("\n" + json.dumps(found), flush=True)


for _run, _devices in ((scaling_devices, 8), (scaling_processes, 1)):
    BENCHMARKS[_run.__name__] = Benchmark(_run.__name__, {}, _run, False, _devices)

if __name__ == "__main__":
    _one_process(*sys.argv[1:])
