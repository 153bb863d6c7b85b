"""`jax.experimental.shard_map`: shard_map with the arguments that it had first."""
from __future__ import annotations

from typing import Callable

from mini_jax.runtime.meshes import Mesh
from mini_jax.transforms import shard_map as _module

__all__ = ["shard_map"]


def shard_map(f: Callable, mesh: Mesh, in_specs, out_specs, check_rep: bool = True, auto=frozenset()) -> Callable:
    """mini_jax.shard_map(f, mesh=mesh, …), where check_rep is check_vma, and `auto` names the axes that `f` does not see."""
    return _module.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=check_rep,
                             axis_names=frozenset(mesh.axis_names) - frozenset(auto))
