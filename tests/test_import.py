"""Importing mini_jax, and the first call, load nothing that they don't need."""
import subprocess
import sys

import pytest

# What no module of ours may load by being imported: of the standard library, beyond what NumPy and jaxlib load themselves; of jaxlib; of ours.
NOT_NEEDED = """logging traceback json email importlib.metadata importlib.resources zipfile tempfile shutil socket hashlib _hashlib subprocess pkgutil
    zlib inspect asyncio concurrent.futures unittest urllib http xml multiprocessing difflib argparse
    jaxlib.mlir jaxlib.xla_client jaxlib.lapack jaxlib.cpu._lapack jaxlib._profiler jaxlib._profile_data scipy
    mini_jax.random mini_jax.nn mini_jax.scipy mini_jax.experimental mini_jax.examples mini_jax.explain mini_jax.launch mini_jax.profiler
    mini_jax.distributed mini_jax.test_util mini_jax.image mini_jax.debug mini_jax.runtime.watch mini_jax.runtime.clusters
    mini_jax.transforms.control.loops mini_jax.transforms.control.branches mini_jax.transforms.shard_map mini_jax.transforms.pmap
    mini_jax.transforms.callbacks mini_jax.transforms.checkpoint mini_jax.transforms.custom_derivatives mini_jax.numpy.linalg mini_jax.numpy.fft""".split()
SCRIPT = """
import sys
import numpy, ml_dtypes
from jaxlib import _hlo, _jax
before = set(sys.modules)
import mini_jax as jax
import mini_jax.numpy as jnp
{call}
print(*sorted(set(sys.modules) - before))
"""


@pytest.mark.parametrize("call", ["", "print(jnp.sum(jnp.ones((2, 2)) + 1)); f = jax.jit(lambda x: jnp.tanh(x) ** 2); f(1.0), jax.grad(f)(1.0), jax.vmap(f)(jnp.ones(2))"],
                         ids=["import", "first calls"])
def test_what_is_not_loaded(call):
    run = subprocess.run([sys.executable, "-c", SCRIPT.format(call=call)], capture_output=True, text=True, check=True)
    loaded = run.stdout.splitlines()[-1].split()
    assert "mini_jax.core.config" in loaded
    needless = [name for name in loaded for prefix in NOT_NEEDED if name == prefix or name.startswith(prefix + ".")]
    assert not needless, f"loaded without need: {needless}"
