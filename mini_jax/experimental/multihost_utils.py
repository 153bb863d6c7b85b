"""`jax.experimental.multihost_utils`: what all processes do together: waiting, comparing, sending values from one to all or from all to all.

Every function must be called by all processes, in the same order. Whole trees travel as bytes, in one message, so that what arrives is
what was sent, to the bit; that structures, shapes and dtypes are the same everywhere is seen to before. For a process alone all is as if sent to itself.
"""
from __future__ import annotations

import functools
import zlib
from typing import Any, Sequence

import numpy as np

from mini_jax.core.pytree import broadcast_prefix, flatten
from mini_jax.runtime import processes
from mini_jax.runtime.array import ArrayImpl, device_put, host_value
from mini_jax.runtime.devices import local_devices, process_count, process_index
from mini_jax.runtime.making import make_array_from_process_local_data, make_array_from_single_device_arrays
from mini_jax.runtime.meshes import Mesh, NamedSharding, PartitionSpec, entry_names, replicated_over
from mini_jax.transforms.api import block_until_ready
from mini_jax.transforms.jit import jit

__all__ = ["assert_equal", "broadcast_one_to_all", "global_array_to_host_local_array", "host_local_array_to_global_array", "process_allgather",
           "sync_global_devices"]


def sync_global_devices(name: str) -> None:
    """Wait until all processes have come here, with the same name, and their devices have done what they were told before.

    Raises AssertionError where names differ, and TimeoutError, naming them, for processes that don't come (distributed.initialize says how long).
    """
    processes.meet(f"sync_global_devices {name!r}", error=AssertionError)
    block_until_ready(_gathered(np.zeros(1, np.uint8)))


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The tree that one process has, in all of them, as NumPy arrays. is_source: is it this one? None: it is process 0.

    The other processes' trees must have the same structure, shapes and dtypes (RuntimeError). ValueError where not exactly one is the source.
    """
    leaves, tree = _hosts("broadcast_one_to_all", in_tree)
    source = process_index() == 0 if is_source is None else bool(is_source)
    rows = _gathered(np.concatenate([np.array([source], np.uint8), _packed(leaves) if source else np.zeros_like(_packed(leaves))]))
    sources = [i for i, row in enumerate(rows) if row[0]]
    if len(sources) != 1:
        raise ValueError(f"broadcast_one_to_all: one process must be the source, but is_source is true in {processes.named(sources) if sources else 'none'}")
    return tree.unflatten(_unpacked(rows[sources[0]][1:], leaves))


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The trees of all processes, in each of them, as NumPy arrays: each leaf stacked along a new first axis, or tiled, put together along its
    first axis (numbers are stacked then, too).

    Of an array that several processes have parts of, all of it; tiled must be True then (ValueError), and only such arrays may stand beside.
    Structures, shapes and dtypes must be the same in all processes (RuntimeError).
    """
    leaves, tree = flatten(in_tree)
    spread = [isinstance(leaf, ArrayImpl) and not leaf.is_fully_addressable for leaf in leaves]
    if any(spread):
        if not all(spread):
            raise ValueError("process_allgather: arrays that several processes have parts of, and others, in one tree: gather them one after the other")
        if not tiled:
            raise ValueError("process_allgather of an array that several processes have parts of gives the whole of it: say tiled=True")
        return tree.unflatten([np.asarray(device_put(leaf, replicated_over(leaf.sharding.mesh))) for leaf in leaves])
    leaves, tree = _hosts("process_allgather", in_tree)
    parts = [_unpacked(row, leaves) for row in _gathered(_packed(leaves))]
    return tree.unflatten([np.concatenate(column) if tiled and column[0].ndim else np.stack(column) for column in zip(*parts)])


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """AssertionError, in all processes, with fail_message and who differs, where they don't have the same tree of values."""
    leaves, tree = _hosts("assert_equal", in_tree)
    rows = _gathered(_packed(leaves))
    others = [i for i, row in enumerate(rows) if not np.array_equal(row, rows[0])]
    if others:
        values = lambda i: f"{tree.unflatten(_unpacked(rows[i], leaves))!r:.300}"
        raise AssertionError((f"{fail_message}: " if fail_message else "") + f"process 0 has {values(0)}, {processes.named(others)} "
                             f"{'has' if len(others) == 1 else 'have'} {'; '.join([values(i) for i in others[:3]])}")


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """A tree of arrays over a mesh of all processes, of the parts that this process has: along a dimension that pspecs cut over processes, one
    process's part follows the other's; what is not cut must be the same in all.

    pspecs: a PartitionSpec, or a tree of them that is a prefix of the inputs. The devices of each process must be a block of the mesh (ValueError).
    """
    leaves, tree = flatten(local_inputs)
    return tree.unflatten([leaf if isinstance(leaf, ArrayImpl) and not leaf.is_fully_addressable
                           else make_array_from_process_local_data(NamedSharding(global_mesh, spec), leaf, _times(np.shape(leaf), global_mesh, spec, 1))
                           for leaf, spec in zip(leaves, _specs(pspecs, tree))])


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """The other way: of a tree of arrays over a mesh of all processes, as pspecs say, this process's parts, as arrays over its devices of the mesh."""
    leaves, tree = flatten(global_inputs)
    own, out = _own_mesh(global_mesh), []
    for leaf, spec in zip(leaves, _specs(pspecs, tree)):
        spread = device_put(leaf, NamedSharding(global_mesh, spec))
        local = {shard.device: shard.data for shard in spread.addressable_shards}
        out.append(make_array_from_single_device_arrays(_times(spread.shape, global_mesh, spec, -1), NamedSharding(own, spec), [local[d] for d in own.devices.flat]))
    return tree.unflatten(out)


# --- how --------------------------------------------------------------------------------------------------------------------------------

def _hosts(name: str, tree: Any) -> tuple[list[np.ndarray], Any]:
    """The leaves of a tree as NumPy arrays, and its structure, which all processes must have alike."""
    leaves, structure = flatten(tree)
    hosts = [host_value(leaf)[0] for leaf in leaves]
    types = ", ".join([f"{h.dtype}{list(h.shape)}" for h in hosts])
    text = f"{structure} of {types}"
    processes.meet(f"{name} a tree {text}" if len(text) < 2000 else f"{name} a tree {text[:1000]}… of checksum {zlib.crc32(text.encode()):08x}")
    return hosts, structure


def _packed(hosts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.uint8), *[np.frombuffer(h.tobytes(), np.uint8) for h in hosts]])


def _unpacked(data: np.ndarray, like: Sequence[np.ndarray]) -> list[np.ndarray]:
    out, at = [], 0
    for h in like:
        out.append(np.frombuffer(data[at:at + h.nbytes].tobytes(), h.dtype).reshape(h.shape).copy())
        at += h.nbytes
    return out


@functools.lru_cache(maxsize=None)
def _gather(count: int):
    """The program that brings bytes to all processes, by one device of each."""
    mesh = Mesh(np.array([local_devices(i)[0] for i in range(count)], dtype=object), ("process",))
    return mesh, jit(lambda x: x, out_shardings=replicated_over(mesh))


def _gathered(data: np.ndarray) -> np.ndarray:
    """The bytes of all processes, a row for each."""
    count = process_count()
    if count == 1:
        return data[None]
    mesh, gather = _gather(count)
    padded = np.zeros(-(-max(data.size, 1) // 4), np.uint32)        # by words: a quarter of the elements
    padded.view(np.uint8)[:data.size] = data
    rows = gather(make_array_from_single_device_arrays((count, padded.size), NamedSharding(mesh, PartitionSpec("process")),
                                                       [device_put(padded[None], local_devices()[0])]))
    return np.asarray(rows).view(np.uint8)[:, :data.size]


def _specs(pspecs: Any, tree) -> list[PartitionSpec]:
    leaf = lambda x: x is None or isinstance(x, PartitionSpec)
    return [PartitionSpec() if spec is None else spec for spec in broadcast_prefix(pspecs, tree, leaf, "pspecs", "the inputs")]


def _own_mesh(mesh: Mesh) -> Mesh:
    """The block of a mesh that is this process's. ValueError where it is none."""
    numbers = np.vectorize(lambda d: d.process_index, otypes=[int])(mesh.devices)
    own = np.argwhere(numbers == process_index())
    if not own.size:
        raise ValueError(f"this process, {process_index()}, has no device of {mesh}")
    block = tuple([slice(low, high + 1) for low, high in zip(own.min(0), own.max(0))])
    if (numbers[block] != process_index()).any():
        raise ValueError(f"the devices of process {process_index()} are not a block of {mesh}: make arrays with make_array_from_callback or "
                         "make_array_from_single_device_arrays")
    return Mesh(mesh.devices[block], mesh.axis_names, mesh.axis_types)


def _times(shape: Sequence[int], mesh: Mesh, spec: PartitionSpec, power: int) -> tuple[int, ...]:
    """The shape of the whole for that of a process's part, or the other way."""
    own, out = _own_mesh(mesh), list(shape)
    for d, entry in enumerate(spec[:len(out)]):
        for name in entry_names(entry):
            factor = mesh.shape[name] // own.shape[name]
            out[d] = out[d] * factor if power > 0 else out[d] // factor
    return tuple(out)
