"""Respreading: an array that has parts on other processes' devices, spread over the same devices in another way, by a program of all of them."""
from __future__ import annotations

from mini_jax.core import staging
from mini_jax.core.program import Kept
from mini_jax.core.trace import typeof
from mini_jax.runtime import caches, dispatch
from mini_jax.runtime.array import ArrayImpl, set_respreader
from mini_jax.runtime.meshes import NamedSharding

_programs = Kept()


def respread(array: ArrayImpl, sharding) -> ArrayImpl:
    """The array, spread by another NamedSharding over its devices. All processes must call it. ValueError for other devices."""
    if type(sharding) is not NamedSharding or array._sharding.device_set != sharding.device_set:
        raise ValueError(f"{array!r}, spread by {array._sharding}, can't be moved to {sharding}: other processes have parts of it. What can be had of it is another "
                         "NamedSharding over the same devices, this process's parts (addressable_shards), or all (experimental.multihost_utils.process_allgather)")
    at = dispatch.placement([array], sharding.mesh)
    program = caches.executables.once(_programs, (typeof(array), at, sharding), lambda: dispatch.load(
        *staging.stage(lambda x: [x], (typeof(array),)), at, name="device_put", out_shardings=(sharding,)))
    return program([array])[0]


set_respreader(respread)
