"""Partitions: how a program over a mesh says which part of which value is where, in Shardy's words (the sdy dialect).

A sharding, here, is anything with a `mesh` (axis_names, devices) and a `spec`, an entry for each dimension: None, a name, a tuple of
names, or something else for "as XLA likes".
"""
from __future__ import annotations

from typing import Any, NamedTuple, Sequence


class Partitions(NamedTuple):
    """The partitions of a program: its devices in order, and the shardings of its inputs and outputs (None: as XLA likes)."""
    devices: tuple
    inputs: tuple
    outputs: tuple


def mesh_text(name: str, mesh, devices: Sequence) -> str:
    """The line that declares a mesh of (some order of) the program's devices."""
    order = [devices.index(d) for d in mesh.devices.flat]
    ids = "" if order == list(range(len(devices))) else f", device_ids={order}"
    axes = ", ".join([f"{quoted(axis)}={size}" for axis, size in zip(mesh.axis_names, mesh.devices.shape)])
    return f"  sdy.mesh @{name} = <[{axes}]{ids}>"


def quoted(axis) -> str:
    """An axis name in the text."""
    return '"' + (axis if isinstance(axis, str) else repr(axis)).replace("\\", "\\\\").replace('"', '\\"') + '"'


def sharding_text(module, sharding, ndim: int) -> str:
    """`<@mesh, [{"x"}, {}]>`: a sharding of a value of ndim dimensions."""
    entries = [*sharding.spec, *[None] * (ndim - len(sharding.spec))][:ndim]
    return f"<@{module.mesh(sharding.mesh)}, [{', '.join(map(_dimension, entries))}]>"


def _dimension(entry: Any) -> str:
    if entry is None:
        return "{}"
    if isinstance(entry, (str, tuple)):
        return "{" + ", ".join(map(quoted, entry if isinstance(entry, tuple) else (entry,))) + "}"
    return "{?}" if type(entry).__name__ == "_Unconstrained" else "{" + quoted(entry) + "}"


def attribute(module, sharding, ndim: int) -> str:
    """The attribute of an argument or result, `sdy.sharding = …`; empty where XLA decides."""
    return "" if sharding is None else f"sdy.sharding = #sdy.sharding{sharding_text(module, sharding, ndim)}"


def joined(attributes: str, more: str) -> str:
    """Two attribute dictionaries' contents as one dictionary's text."""
    inside = ", ".join([part for part in (attributes.strip().removeprefix("{").removesuffix("}"), more) if part])
    return f" {{{inside}}}" if inside else ""
