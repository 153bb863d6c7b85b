"""Second starts: a program that another process has run before, with a cache of compiled programs on disk, `python -m benchmarks warm`.

Each measurement fills a cache of its own by running the program in a process, and then runs it in a second one. Measured is the time until the
first step is done (of a script, until it ends), import and data made before; and the whole second process, from its start to its end.
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import cold
from benchmarks.registry import BENCHMARKS, Benchmark, elapsed

CACHE = "BENCHMARKS_WARM_CACHE"                 # the environment's name for the cache of a process that another one has started


def warm(what, at_most=0.3):
    """Register a program: function(jax) returns a function without arguments that runs it and waits."""
    names = {f"{what}, second start": at_most, f"{what}, second start: whole process": None}

    def register(function):
        def run(jax):
            directory = os.environ.get(CACHE)
            if directory:                                                   # somebody else measures
                _ready(jax, directory, function)()
                return {}
            with tempfile.TemporaryDirectory() as directory:
                again = lambda: subprocess.run([sys.executable, "-m", "benchmarks.worker", jax.__name__, function.__name__], check=True,
                                               env=os.environ | {CACHE: directory}, cwd=Path(__file__).parent.parent, stdout=subprocess.DEVNULL)
                again()
                return dict(zip(names, [elapsed(_ready(jax, directory, function)), elapsed(again)]))
        BENCHMARKS[function.__name__] = Benchmark(function.__name__, names, run, False, 1)
        return function
    return register


def _ready(jax, directory, function):
    """The program, ready to run with this cache."""
    jax.config.update("jax_compilation_cache_dir", directory)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.block_until_ready(jax.jit(lambda x: x + 1)(0))                      # what the first program of a process takes
    return function(jax)


def _first_step(jax, update, state):
    state = jax.block_until_ready(jax.device_put(state))
    return lambda: jax.block_until_ready(update(state))


@warm("transformer of 12 layers")
def warm_transformer_12(jax):
    return _first_step(jax, *cold.cold_transformer_12(jax))


@warm("MLP with Adam over 200 leaves")
def warm_adam(jax):
    return _first_step(jax, *cold.cold_adam(jax))


@warm("script of 60 operations outside of jit")
def warm_script(jax):
    """What one types at a prompt: every operation is a program of its own."""
    jnp, random, linalg = jax.numpy, jax.random, jax.numpy.linalg
    table = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)

    def script():
        x = jnp.asarray(table)
        y = (x - x.mean(0)) / (x.std(0) + 1e-6)
        scores = y @ y.T
        weights = jax.nn.softmax(scores / jnp.sqrt(6.0), axis=-1)
        mixed = weights @ y
        key = random.key(0)
        noise = random.normal(key, x.shape) * 0.1 + random.uniform(random.fold_in(key, 1), x.shape)
        order = jnp.argsort(mixed[:, 0])
        picked = jnp.take(mixed, order[:10], axis=0)
        parts = [jnp.sin(x), jnp.cos(x), jnp.exp(-x), jnp.tanh(x), jnp.abs(x), jnp.log1p(x * x), jnp.maximum(x, 0), jnp.clip(x, -1, 1), x ** 3, x > 0]
        stacked = jnp.stack([p.astype(jnp.float32) for p in parts])
        ends = [stacked.sum(0), stacked.max((1, 2)), stacked.min(), stacked.argmax(0), jnp.cumsum(x, 0), jnp.prod(x[:3]), jnp.median(x), jnp.var(x, 1),
                jnp.where(x > 0, x, -x), jnp.concatenate([x, picked]), jnp.reshape(x, (6, 40)).T, jnp.sort(x, 1), jnp.einsum("ij,kj->ik", x, y),
                jnp.linspace(0, 1, 17), jnp.arange(9) % 4, jnp.outer(x[0], x[1]), x[::2], x[5], x[:, 2:4], x.at[3].set(0), x.at[:, 1].add(2.0), jnp.eye(5),
                linalg.norm(x), jnp.round(x, 2), jnp.isnan(x).any(), jnp.unique(jnp.arange(12) % 5, size=5), jax.nn.relu(x), jax.nn.one_hot(order, 40),
                jax.grad(lambda w: jnp.mean((y @ w) ** 2))(jnp.ones(6)), jax.vmap(jnp.dot)(x, y), noise]
        jax.block_until_ready(ends)
    return script
