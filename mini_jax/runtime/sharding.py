"""Shardings: which device holds which part of an array.

C++ has the classes; what they answer in Python is set on them here. `SingleDeviceSharding` holds a whole array on one
device; `PmapSharding` spreads an array over a grid of devices, one grid axis for each `pmap` around the value.
"""
from __future__ import annotations

import functools
import math
from typing import Sequence

import numpy as np

from mini_jax.runtime import xla

Sharding = xla.Sharding
Index = tuple[slice, ...]


def python_half(cpp_class: type):
    """Decorator: everything defined in the class body becomes an attribute of the C++ class; the class itself is dropped."""
    def move(body: type):
        for name, value in vars(body).items():
            if name not in ("__dict__", "__weakref__", "__module__", "__doc__", "__qualname__"):
                setattr(cpp_class, name, value)
        return cpp_class
    return move


@python_half(xla.Sharding)
class _AnySharding:
    """What all shardings answer, from `device_set`, `_device_assignment` and `devices_indices_map` of each class."""

    @property
    def device_set(self) -> set[xla.Device]:
        """The devices, as a set."""
        return set(self._device_assignment)

    @property
    def num_devices(self) -> int:
        """How many devices hold a part."""
        return len(self._device_assignment)

    @property
    def is_fully_addressable(self) -> bool:
        """True when all parts are on devices of this process."""
        return len(self._addressable_device_assignment) == len(self._device_assignment)

    @property
    def addressable_devices(self) -> set[xla.Device]:
        """The devices that belong to this process."""
        return set(self._addressable_device_assignment)

    def addressable_devices_indices_map(self, shape) -> dict[xla.Device, Index]:
        """`devices_indices_map` for the devices of this process."""
        local = self.addressable_devices
        return {device: index for device, index in self.devices_indices_map(shape).items() if device in local}

    def is_equivalent_to(self, other, ndim: int) -> bool:
        """True when arrays of `ndim` dimensions lie the same way under both."""
        if self == other:
            return True
        shape = (math.lcm(len(self._device_assignment), len(other._device_assignment)),) * ndim
        return (self._device_assignment == other._device_assignment
                and self.devices_indices_map(shape) == other.devices_indices_map(shape))


@python_half(xla.SingleDeviceSharding)
class _SingleDeviceSharding:
    is_fully_replicated = True
    num_devices = 1

    memory_kind = property(lambda self: self._memory_kind)
    device_set = property(lambda self: {self._device})
    _device_assignment = property(lambda self: (self._device,))

    @property
    def is_fully_addressable(self) -> bool:
        return self._device.process_index == self._device.client.process_index()

    @property
    def _addressable_device_assignment(self):
        return (self._device,) if self.is_fully_addressable else ()

    def _to_xla_hlo_sharding(self, ndim: int) -> xla.HloSharding:
        return _REPLICATED

    def shard_shape(self, shape) -> tuple[int, ...]:
        return tuple(shape)

    def devices_indices_map(self, shape) -> dict[xla.Device, Index]:
        return {self._device: (slice(None),) * len(shape)}

    def with_memory_kind(self, kind: str) -> xla.SingleDeviceSharding:
        """The same device, another of its memories. ValueError, which names those there are, for a kind that it does not have."""
        return on_device(self._device, kind)

    def __eq__(self, other):
        if type(other) is not xla.SingleDeviceSharding:
            return NotImplemented
        return self is other or (self._device is other._device and self._memory_kind == other._memory_kind)

    def __hash__(self):
        return hash(self._device)

    def __repr__(self):
        return f"SingleDeviceSharding(device={self._device!r}, memory_kind={self._memory_kind})"


_REPLICATED = xla.HloSharding.replicate()


@functools.lru_cache(maxsize=None)
def on_device(device: xla.Device, memory_kind: str | None = None) -> xla.SingleDeviceSharding:
    """The sharding that keeps an array whole on `device`: one object for each device, and memory that is not its own."""
    return xla.SingleDeviceSharding(device) if memory_kind is None else xla.SingleDeviceSharding(device, memory_kind=memory_kind)


@functools.lru_cache(maxsize=None)
def device_list(devices: tuple[xla.Device, ...]) -> xla.DeviceList:
    """The C++ list of these devices, one object for equal tuples."""
    return xla.DeviceList(devices)


class PmapSharding(xla.GSPMDSharding):
    """An array spread over a grid of devices, as nested `pmap`s do it. Make it with `pmap_sharding`.

    The devices stand in a grid, one axis for each `pmap`, in row-major order. Grid axis `a` splits array dimension
    `dims[a]` into `grid[a]` equal parts; where `dims[a]` is None every device along the axis holds the same.

    Being a C++ GSPMDSharding it takes the dispatcher's fast path, in and out.
    """

    def __init__(self, devices: tuple[xla.Device, ...], grid: tuple[int, ...], dims: tuple[int | None, ...], ndim: int):
        if math.prod(grid) != len(devices):
            raise ValueError(f"{len(devices)} devices do not fill the grid {grid}")
        split = [axis for axis in range(len(grid)) if dims[axis] is not None]
        if len({dims[axis] for axis in split}) != len(split) or any(not 0 <= dims[axis] < ndim for axis in split):
            raise ValueError(f"dims {dims} must name different dimensions of an array of {ndim} dimensions")
        super().__init__(device_list(devices), _hlo_tiles(grid, dims, ndim))
        here = devices[0].client.process_index()
        self.devices, self.grid, self.dims, self.ndim = devices, grid, dims, ndim
        self.is_fully_replicated = all(grid[axis] == 1 for axis in split)
        self._device_assignment = devices
        self._addressable_device_assignment = tuple(device for device in devices if device.process_index == here)
        self._key = (devices, grid, dims, ndim)
        self._hash = hash(self._key)

    memory_kind = property(lambda self: self._memory_kind)

    def _to_xla_hlo_sharding(self, ndim: int) -> xla.HloSharding:
        return self._hlo_sharding

    def shard_shape(self, shape) -> tuple[int, ...]:
        """The shape of each device's part; ValueError where a dimension does not divide."""
        out = list(shape)
        if len(out) != self.ndim:
            raise ValueError(f"this sharding is for arrays of {self.ndim} dimensions, not for shape {tuple(shape)}")
        for size, dim in zip(self.grid, self.dims):
            if dim is not None:
                if out[dim] % size:
                    raise ValueError(f"dimension {dim} of shape {tuple(shape)} cannot be split into {size} equal parts")
                out[dim] //= size
        return tuple(out)

    def devices_indices_map(self, shape) -> dict[xla.Device, Index]:
        """device → the part of an array of `shape` that it holds."""
        return dict(zip(self.devices, _parts(self, tuple(shape))))

    def __eq__(self, other):
        return self is other or (type(other) is PmapSharding and self._key == other._key)

    def __hash__(self):
        return self._hash

    def with_memory_kind(self, kind: str) -> "PmapSharding":
        """NotImplementedError: what pmap spreads is where devices compute."""
        raise NotImplementedError("an array that pmap has spread has no other memory kinds: give it a NamedSharding with device_put")

    def __repr__(self):
        axes = ", ".join(f"{size}:{'replicated' if dim is None else f'dimension {dim}'}"
                         for size, dim in zip(self.grid, self.dims))
        return f"PmapSharding(grid=[{axes}], devices=[{', '.join(map(str, self.devices))}])"


@functools.lru_cache(maxsize=4096)
def _parts(sharding: PmapSharding, shape: tuple[int, ...]) -> tuple[Index, ...]:
    """The part of an array of `shape` on each device, in the order of the devices."""
    part = sharding.shard_shape(shape)
    out = []
    for place in np.ndindex(*sharding.grid):
        index = [slice(None)] * len(shape)
        for position, dim, size in zip(place, sharding.dims, sharding.grid):
            if dim is not None and size > 1:
                index[dim] = slice(position * part[dim], (position + 1) * part[dim])
        out.append(tuple(index))
    return tuple(out)


def _hlo_tiles(grid, dims, ndim) -> xla.HloSharding:
    """XLA's form: how often each array dimension is cut, and the order in which devices take the tiles."""
    split = sorted((axis for axis in range(len(grid)) if dims[axis] is not None), key=lambda axis: dims[axis])
    whole = [axis for axis in range(len(grid)) if dims[axis] is None]
    tiles = [1] * ndim
    for axis in split:
        tiles[dims[axis]] = grid[axis]
    copies = math.prod(grid[axis] for axis in whole)
    if math.prod(tiles) == 1:
        return _REPLICATED
    if copies == 1:
        return xla.HloSharding.iota_tile(tiles, list(grid), split + whole)
    return xla.HloSharding.iota_tile(tiles + [copies], list(grid), split + whole, [xla.REPLICATED])


@functools.lru_cache(maxsize=None)
def _interned_pmap_sharding(devices, grid, dims, ndim) -> PmapSharding:
    return PmapSharding(devices, grid, dims, ndim)


def pmap_sharding(devices: Sequence[xla.Device], grid: Sequence[int] | None = None,
                  dims: Sequence[int | None] = (0,), ndim: int = 1) -> PmapSharding:
    """The one `PmapSharding` of these facts.

    devices: all devices of the grid, row-major. grid: its axes (None: one axis). dims: for each grid axis the array
    dimension it splits, or None. ndim: the dimensions of the (whole) array.
    """
    devices = tuple(devices)
    return _interned_pmap_sharding(devices, (len(devices),) if grid is None else tuple(grid), tuple(dims), ndim)
