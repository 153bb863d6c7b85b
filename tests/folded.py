"""Programs that are run once: their arguments are written into their text, so that XLA evaluates them while it simplifies, and
makes no machine code for what it has evaluated.

A kernel costs XLA 5 ms to make with jaxlib 0.10 and 17 ms with jaxlib 0.12, and a program of a test has dozens. What is tested is the
same: the program that mini_jax has traced, transformed and written. What XLA can't evaluate (a loop, LAPACK) is compiled as always.
"""
import re

import numpy as np

import mini_jax as jax
from lowering.program import lower
from mini_jax.core import dtypes
from mini_jax.runtime import xla
from mini_jax.runtime.array import host_value
from mini_jax.runtime.executable import Executable
from mini_jax.runtime.sharding import on_device


def folded(fun):
    """What jit(fun) returns, for arrays and trees of them."""
    def call(*args):
        closed, shapes = jax.make_jaxpr(fun, return_shape=True)(*args)
        lowered = lower(closed.jaxpr, closed.consts, name="folded")
        values = [*lowered.consts, *[host_value(x)[0] for x, kept in zip(jax.tree.leaves(args), lowered.kept, strict=True) if kept]]
        assert not lowered.callbacks and lowered.num_replicas == 1
        device = jax.devices()[0]
        loaded = xla.compile(with_arguments(lowered.text, values), [device])
        out = Executable(loaded, (), lowered.out_types, (), [on_device(device)] * len(lowered.out_types), devices=[device])([])
        return jax.tree.unflatten(jax.tree.structure(shapes), out)
    return call


def with_arguments(text: str, values) -> str:
    """The module whose main function has these arguments for its own."""
    found = re.search(r"func\.func public @main\((.*?)\) -> \(.*", text)
    types = [part.rstrip(", ") for part in re.split(r"%arg\d+: ", found[1])[1:]]
    constants = [f"\n    %arg{i} = stablehlo.constant dense<{entries(np.asarray(x))}> : {type_}"
                 for i, (type_, x) in enumerate(zip(types, values, strict=True))]
    return text[:found.start(1)] + text[found.end(1):found.end()] + "".join(constants) + text[found.end():]


def entries(x: np.ndarray) -> str:
    """The entries of an array, as MLIR writes them."""
    if not x.size:
        return ""
    if dtypes.is_bool(x.dtype):
        return str(x.tolist()).lower()
    if dtypes.itemsize_bits(x.dtype) < 8:
        return str(x.astype(np.float64 if dtypes.is_floating(x.dtype) else np.int64).tolist())
    return f'"0x{x.tobytes().hex().upper()}"'
