"""Memories of a device: kinds other than its own, where arrays may rest. Programs take their inputs from the device's own, and leave results there.

A kind is part of a sharding: `sharding.memory_kind`, `sharding.with_memory_kind("pinned_host")`. Which kinds a device has it says itself:
`device.addressable_memories()`, `device.default_memory()`.
"""
from __future__ import annotations

import enum


class Space(enum.Enum):
    """Where `device_put(x, Space.Host)` leaves an array: in the device's own memory, or in that of its host, from where copies are fast."""
    Device = "device"
    Host = "pinned_host"


class TransferToMemoryKind:
    """`device_put(x, TransferToMemoryKind(kind))`: x on the devices where it is, in memory of this kind."""
    __slots__ = ("memory_kind",)

    def __init__(self, memory_kind: str):
        self.memory_kind = memory_kind

    def __eq__(self, other):
        return type(other) is TransferToMemoryKind and self.memory_kind == other.memory_kind

    def __hash__(self):
        return hash(self.memory_kind)

    def __repr__(self):
        return f"TransferToMemoryKind({self.memory_kind!r})"


def elsewhere(sharding) -> str | None:
    """The memory kind of a sharding, where it is not the one in which its devices compute, else None."""
    kind = sharding.memory_kind
    return None if kind is None or kind == sharding._device_assignment[0].default_memory().kind else kind


def in_kind(sharding, place: Space | TransferToMemoryKind):
    """The sharding with the memory that `place` names."""
    if place is Space.Device:
        return sharding.with_memory_kind(sharding._device_assignment[0].default_memory().kind)
    return sharding.with_memory_kind(place.value if type(place) is Space else place.memory_kind)
