"""The small public functions around programs and values: make_jaxpr, eval_shape, device_put, block_until_ready and their like."""
from __future__ import annotations

import functools
from typing import Callable, Sequence

import numpy as np

from mini_jax.core.program import ClosedJaxpr, function_name
from mini_jax.core.pytree import broadcast_prefix
from mini_jax.core.refs import refuse_refs
from mini_jax.core.state import named_scope
from mini_jax.core.staging import without_staging
from mini_jax.core.trace import Tracer
from mini_jax.runtime import array, caches, processes, respreading, xla       # noqa: F401  (respreading says how arrays of several processes are moved)
from mini_jax.runtime.meshes import NamedSharding, PartitionSpec
from mini_jax.runtime.transfers import getting, putting
from mini_jax.transforms.arguments import keyable, resolve_positions
from mini_jax.transforms.jit import Options, record, take_apart
from mini_jax.transforms.shards import constrained, named
from mini_jax.transforms.stages import ShapeDtypeStruct

_flatten = xla.registry.flatten


def make_jaxpr(fun: Callable, static_argnums: int | Sequence[int] = (), axis_env: Sequence[tuple] | None = None,
               return_shape: bool = False, abstracted_axes=None) -> Callable:
    """The function that returns the program `fun` is for arguments like its own (arrays, numbers or ShapeDtypeStructs).

    return_shape: also return the structure of the result. axis_env: named axes in scope, as (name, size) pairs.
    """
    if not callable(fun):
        raise TypeError(f"make_jaxpr takes a function, got {fun!r:.200}")
    from mini_jax.core.state import named_axes
    fun = keyable(fun)
    options = Options(*resolve_positions(fun, static_argnums, (), "static"))

    def make(*args, **kwargs):
        with named_axes(dict(axis_env or ())):
            traced = record(fun, options, take_apart(fun, options, args, kwargs), "make_jaxpr")
        closed = ClosedJaxpr(traced.jaxpr, traced.consts)
        if not return_shape:
            return closed
        return closed, traced.out_tree.unflatten([ShapeDtypeStruct(t.shape, t.dtype, weak_type=t.weak_type) for t in closed.out_avals])
    make.__name__ = f"make_jaxpr({function_name(fun)})"
    return make


def eval_shape(fun: Callable, *args, **kwargs):
    """The structure of fun(*args, **kwargs) with a ShapeDtypeStruct for each array, without computing anything."""
    fun = keyable(fun)
    traced = record(fun, Options(), take_apart(fun, Options(), args, kwargs), "eval_shape")
    return traced.out_tree.unflatten([ShapeDtypeStruct(t.shape, t.dtype, weak_type=t.weak_type) for t in traced.jaxpr.out_types])


def device_put(x, device=None, *, src=None, donate=False, may_alias=None):
    """x, a pytree of arrays, on a device or sharding, or spread by a PartitionSpec over the mesh that is set (or a tree of them, a prefix of x).

    None: NumPy arrays and numbers go to the default device, arrays stay where they are. Inside traced functions it is the identity
    on traced values; with a NamedSharding, what lax.with_sharding_constraint is.
    """
    leaves, tree = _flatten(x)
    refuse_refs("device_put", leaves)
    places = [device] * len(leaves) if device is None or isinstance(device, (str, xla.Device, xla.Sharding, PartitionSpec)) else \
        broadcast_prefix(device, tree, lambda d: d is None or isinstance(d, PartitionSpec), "device_put device")
    places = [named(place) for place in places]
    if processes.joined is not None:
        for leaf, place in zip(leaves, places):
            _check_same(leaf, place)
    with putting:
        return tree.unflatten([constrained([leaf], [place])[0] if isinstance(leaf, Tracer) and isinstance(place, NamedSharding)
                               else leaf if isinstance(leaf, Tracer) else array.device_put(leaf, place) for leaf, place in zip(leaves, places)])


def _check_same(leaf, place) -> None:
    """What each process puts on devices of several must be the same for all."""
    if (isinstance(place, xla.Sharding) and not place.is_fully_addressable and not isinstance(leaf, Tracer)
            and not (type(leaf) is xla.ArrayImpl and not leaf.is_fully_addressable)):
        import zlib
        host = array.host_value(leaf)[0]
        processes.meet(f"device_put a {host.dtype}{list(host.shape)} of checksum {zlib.crc32(host.view(np.uint8) if host.ndim else host.tobytes()):08x}, which must be the same "
                       "for all (parts that differ: make_array_from_process_local_data)", {device.process_index for device in place.device_set})


def device_get(x):
    """x, a pytree of arrays, as NumPy arrays on the host."""
    leaves, tree = _flatten(copy_to_host_async(x))
    refuse_refs("device_get", leaves)
    with getting:
        return tree.unflatten([array.device_get(leaf) for leaf in leaves])


def copy_to_host_async(x):
    """x, a pytree, of whose arrays copies to the host have been started: a later np.asarray waits less."""
    for leaf in _flatten(x)[0]:
        if hasattr(leaf, "copy_to_host_async"):
            leaf.copy_to_host_async()
    return x


def block_until_ready(x):
    """x, a pytree, when all its arrays have been computed."""
    leaves = _flatten(x)[0]
    arrays = [leaf for leaf in leaves if type(leaf) is xla.ArrayImpl]
    xla.batched_block_until_ready(arrays)
    if len(arrays) < len(leaves):
        for leaf in leaves:
            if type(leaf) is not xla.ArrayImpl and hasattr(leaf, "block_until_ready"):
                leaf.block_until_ready()
    return x


def ensure_compile_time_eval():
    """A context in which operations on concrete values run at once, even while a function is being recorded."""
    return without_staging()


def named_call(fun: Callable, *, name: str | None = None) -> Callable:
    """`fun`, whose operations carry its name (or `name`) in their name stack."""
    label = name or function_name(fun)

    @functools.wraps(fun)
    def named(*args, **kwargs):
        with named_scope(label):
            return fun(*args, **kwargs)
    return named


def clear_caches() -> None:
    """Forget every recorded and compiled program."""
    caches.clear()


def live_arrays(platform: str | None = None) -> list:
    """All arrays alive on the devices of a platform."""
    return xla.client(platform).live_arrays()


def effects_barrier() -> None:
    """Wait until every program started so far has finished. Programs with effects have when the call of them returns."""
    for living in xla.client().live_arrays():
        if not living.is_deleted():
            living.block_until_ready()
