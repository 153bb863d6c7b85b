"""`jax.experimental.mesh_utils`: devices in the grid of a mesh."""
from __future__ import annotations

import math
from typing import Sequence

import numpy as np

from mini_jax.runtime.devices import devices as all_devices

__all__ = ["create_device_mesh", "create_hybrid_device_mesh"]


def create_device_mesh(mesh_shape: Sequence[int], devices: Sequence | None = None, *, contiguous_submeshes: bool = False,
                       allow_split_physical_axes: bool = False) -> np.ndarray:
    """Devices (default: all) in an array of this shape, for Mesh(…, axis_names): in order, the last axis fastest.

    contiguous_submeshes and allow_split_physical_axes are about the wiring of TPU pods; devices in order need neither.
    Raises ValueError where the shape doesn't hold all of them.
    """
    found, shape = list(all_devices() if devices is None else devices), tuple(mesh_shape)
    if math.prod(shape) != len(found):
        raise ValueError(f"create_device_mesh: mesh_shape {shape} takes {math.prod(shape)} devices, and there are {len(found)}")
    return _grid(found, shape)


def create_hybrid_device_mesh(mesh_shape: Sequence[int], dcn_mesh_shape: Sequence[int], devices: Sequence | None = None, *,
                              process_is_granule: bool = False, should_sort_granules_by_key: bool = True, allow_split_physical_axes: bool = False,
                              contiguous_submeshes: bool = False) -> np.ndarray:
    """Devices in an array whose axes are cut in two: mesh_shape[i] within a granule, a group of devices with fast connections, times
    dcn_mesh_shape[i] across granules, which are slices of a TPU pod or, process_is_granule, processes.

    Raises ValueError where shapes and granules don't fit.
    """
    found, inner, outer = list(all_devices() if devices is None else devices), tuple(mesh_shape), tuple(dcn_mesh_shape)
    if len(inner) != len(outer):
        raise ValueError(f"create_hybrid_device_mesh: mesh_shape {inner} and dcn_mesh_shape {outer} must have one length")
    granules: dict = {}
    for device in found:
        granules.setdefault(device.process_index if process_is_granule else getattr(device, "slice_index", 0), []).append(device)
    groups = [granules[key] for key in (sorted(granules) if should_sort_granules_by_key else granules)]
    if len(groups) != math.prod(outer) or any([len(group) != math.prod(inner) for group in groups]):
        raise ValueError(f"create_hybrid_device_mesh: dcn_mesh_shape {outer} takes {math.prod(outer)} {'processes' if process_is_granule else 'slices'} of "
                         f"{math.prod(inner)} devices each, by mesh_shape {inner}, and there are {len(groups)}, of {', '.join(str(len(g)) for g in groups)}")
    blocks = np.empty((math.prod(outer), *inner), dtype=object)
    for i, group in enumerate(groups):
        blocks[i] = _grid(group, inner)
    ndim = len(inner)
    order = [axis for d in range(ndim) for axis in (d, ndim + d)]
    return blocks.reshape(*outer, *inner).transpose(order).reshape([o * i for o, i in zip(outer, inner)])


def _grid(devices: list, shape: tuple) -> np.ndarray:
    out = np.empty(len(devices), dtype=object)
    out[:] = devices
    return out.reshape(shape)
