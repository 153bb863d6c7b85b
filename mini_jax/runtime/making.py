"""Arrays made of parts: from a function of the index, from arrays of single devices, from what each process has."""
from __future__ import annotations

from typing import Callable, Sequence

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.types import array_type
from mini_jax.runtime import xla
from mini_jax.runtime.array import ArrayImpl, device_put, host_value
from mini_jax.runtime.sharding import Index


def make_array_from_callback(shape: Sequence[int], sharding, data_callback: Callable[[Index], object], dtype=None) -> ArrayImpl:
    """The array of this shape and sharding, of which each device of this process holds data_callback(index), index being its part of the
    whole as slices. Asked once for each different part. Raises ValueError where a part has the wrong shape."""
    shape = tuple(shape)
    part, made = sharding.shard_shape(shape), {}
    shards = []
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        key = tuple([(s.start, s.stop) for s in index])
        if key not in made:
            made[key] = host_value(data_callback(index))[0]
            if dtype is not None:
                made[key] = made[key].astype(dtypes.canonicalize(dtype))
            if made[key].shape != part:
                raise ValueError(f"make_array_from_callback: the part at {index} must have shape {part}, got {made[key].shape}")
        shards.append(device_put(made[key], device))
    return make_array_from_single_device_arrays(shape, sharding, shards)


def make_array_from_single_device_arrays(shape: Sequence[int], sharding, arrays: Sequence[ArrayImpl], *, dtype=None) -> ArrayImpl:
    """One array of the given arrays, each on one of this process's devices of the sharding, which hold its parts. Nothing is copied.

    Raises ValueError where devices, shapes or dtypes don't fit.
    """
    shape = tuple(shape)
    part, devices = sharding.shard_shape(shape), list(sharding._addressable_device_assignment)
    by_device = {}
    for array in arrays:
        if not isinstance(array, ArrayImpl) or array._sharding.num_devices != 1:
            raise TypeError(f"make_array_from_single_device_arrays takes arrays that are on one device each, got {array!r:.100}")
        if array.shape != part:
            raise ValueError(f"make_array_from_single_device_arrays: parts of an array of shape {shape} have shape {part} by {sharding}, got {array.shape}")
        by_device[array._sharding._device_assignment[0]] = array
    if set(by_device) != set(devices) or len(arrays) != len(devices):
        raise ValueError(f"make_array_from_single_device_arrays: there must be one array on each of the devices {', '.join(map(str, devices))}, "
                         f"got arrays on {', '.join(map(str, by_device))}")
    dtype = arrays[0].dtype if arrays else np.dtype(dtype)
    if any([array.dtype != dtype for array in arrays]):
        raise ValueError("make_array_from_single_device_arrays: the arrays differ in dtype")
    return xla.array_from_shards(array_type(shape, dtype), sharding, [by_device[d] for d in devices], True)


def make_array_from_process_local_data(sharding, local_data, global_shape: Sequence[int] | None = None) -> ArrayImpl:
    """The array of which this process has `local_data`: all of it in a program of one process; else the part that its devices hold.

    global_shape: the shape of the whole; default: that of the parts of all processes put together. Along a dimension in which the data are as
    large as the whole, they are the whole. Raises ValueError where they are neither as large as that nor as this process's part.
    """
    local = host_value(local_data)[0]
    if sharding.is_fully_addressable:
        if global_shape is not None and tuple(global_shape) != local.shape:
            raise ValueError(f"make_array_from_process_local_data: global_shape {tuple(global_shape)} is not that of the data, {local.shape}")
        return device_put(local, sharding)
    if global_shape is None:
        counts = sharding.counts(local.ndim)
        corner = [set() for _ in range(local.ndim)]
        for index in sharding.addressable_devices_indices_map(tuple(counts)).values():
            for d, s in enumerate(index):
                corner[d].add(s.start or 0)
        global_shape = [n * count // len(mine) for n, count, mine in zip(local.shape, counts, corner)]
    shape = tuple(global_shape)
    if len(shape) != local.ndim or None in shape:
        raise ValueError(f"make_array_from_process_local_data: global_shape {shape} must have a number for each dimension of the data, of shape {local.shape}")
    indices = list(sharding.addressable_devices_indices_map(shape).values())
    edges = [[_bounds(s, n) for s in parts] for parts, n in zip(zip(*indices), shape)]
    start = []                                          # where the data begin, in the whole
    for d, (have, whole, parts) in enumerate(zip(local.shape, shape, edges)):
        low, high = min(parts)[0], max(parts)[1]
        if have not in (whole, high - low):
            raise ValueError(f"make_array_from_process_local_data: dimension {d} of the data has size {have}; the whole, of shape {shape}, has {whole}, of which "
                             f"this process's devices hold {high - low}: it must be one of these")
        start.append(0 if have == whole else low)

    def data(index: Index):
        return local[tuple([slice(_bounds(s, n)[0] - low, _bounds(s, n)[1] - low) for s, n, low in zip(index, shape, start)])]
    return make_array_from_callback(shape, sharding, data)


def _bounds(part: slice, size: int) -> tuple[int, int]:
    return part.indices(size)[:2]
