"""Partitions: how a program over a mesh says which part of which value is where, in Shardy's words (the sdy dialect).

A sharding, here, is anything with a `mesh` (axis_names, devices) and a `spec`, an entry for each dimension: None, a name, a tuple of
names, or something else for "as XLA likes".
"""
from __future__ import annotations

from typing import Any, NamedTuple, Sequence


class Partitions(NamedTuple):
    """The partitions of a program: its devices in order, and the shardings of its constants, inputs and outputs (None: as XLA likes)."""
    devices: tuple
    constants: tuple
    inputs: tuple
    outputs: tuple


ON_EACH, ON_FIRST = "on each device", "on the first device"      # meshes without axes


def mesh_text(name: str, mesh, devices: Sequence) -> str:
    """The line that declares a mesh of (some order of) the program's devices."""
    if mesh in (ON_EACH, ON_FIRST):
        return f"  sdy.mesh @{name} = <[]{', device_ids=[0]' if mesh is ON_FIRST else ''}>"
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


def called_where(module, manual: bool, result_types: Sequence) -> str:
    """What a call of Python says of its place: on each device, within the program of one; else on the first of them."""
    if module.devices is None or len(module.devices) == 1:
        return ""
    mesh = module.mesh(ON_EACH if manual else ON_FIRST)
    places = [f"<@{mesh}, [{', '.join(['{}'] * t.ndim) if manual else ''}]>" for t in result_types]
    return f", sdy.sharding = #sdy.sharding_per_value<[{', '.join(places or [f'<@{mesh}, []>'])}]>"


def joined(attributes: str, more: str) -> str:
    """Two attribute dictionaries' contents as one dictionary's text."""
    inside = ", ".join([part for part in (attributes.strip().removeprefix("{").removesuffix("}"), more) if part])
    return f" {{{inside}}}" if inside else ""
