"""Replica geometry: how the replicas of a program form a grid of named axes, and which of them a collective joins."""
from __future__ import annotations

import math
from typing import Any, NamedTuple, Sequence

import numpy as np

from mini_jax.core.program import Jaxpr, holders, memoized


class Replicas(NamedTuple):
    """The replicas of a program, seen from some place in it.

    axes: (name, size) of the pmaps around that place, outermost first. count: of all replicas. They are numbered row-major over
    the axes and, last, over the count // ∏ sizes that do the same here: they are there for pmaps elsewhere in the program.
    partitions: whether they are the partitions of one program over a mesh, inside shard_map, and not replicas of it; order: the number
    that each has as a partition, where the mesh has the program's devices in an order of its own.
    """
    axes: tuple[tuple[Any, int], ...] = ()
    count: int = 1
    partitions: bool = False
    order: tuple[int, ...] = ()

    def inside(self, name, size: int) -> "Replicas":
        """The same replicas, seen from inside a pmap over an axis `name`."""
        return self._replace(axes=(*self.axes, (name, size)))

    def size(self, name) -> int:
        return dict(self.axes)[name]

    def stride(self, name) -> int:
        """How far apart the numbers of replicas are that are neighbours along the axis."""
        position = [axis for axis, _ in self.axes].index(name)
        return self.count // math.prod([size for _, size in self.axes[:position + 1]])

    def groups(self, names: Sequence, index_groups: Sequence[Sequence[int]] | None = None) -> list[list[int]]:
        """The replicas that communicate in a collective over the axes `names`: those that agree in all other axes.

        Within a group they are in row-major order of `names`. index_groups cuts each group further, by places in that order.
        """
        along = [[axis for axis, _ in self.axes].index(name) for name in names]
        sizes = [size for _, size in self.axes]
        across = [i for i in range(len(sizes)) if i not in along] + [len(sizes)]
        grid = np.array(self.order or range(self.count)).reshape(*sizes, self.count // math.prod(sizes))
        groups = grid.transpose(*across, *along).reshape(-1, math.prod([sizes[i] for i in along])).tolist()
        return groups if index_groups is None else [[group[i] for i in part] for group in groups for part in index_groups]


class Demand(NamedTuple):
    """How many replicas the pmaps in a program need, and the devices they ask for (None: any)."""
    count: int = 1
    devices: tuple | None = None


@memoized
def demand(jaxpr: Jaxpr) -> Demand:
    """What a program needs: nested pmaps multiply, those side by side share (a multiple of all of their sizes).

    Raises ValueError where two pmaps in it ask for different devices.
    """
    count, devices = 1, None
    for eqn, programs in holders(jaxpr):
        needs = [demand(program) for program in programs]
        if eqn.primitive.facts.get("replicates"):
            if eqn.params.get("processes"):
                raise NotImplementedError("pmap over the devices of several processes inside jit, or another function that is recorded: call it by itself, give it "
                                          "devices=jax.local_devices(), or use shard_map over a mesh of all devices")
            needs = [Demand(eqn.params["axis_size"] * need.count, eqn.params["devices"] or need.devices) for need in needs]
        for need in needs:
            count = math.lcm(count, need.count)
            if None not in (devices, need.devices) and devices[:len(need.devices)] != need.devices[:len(devices)]:
                raise ValueError(f"two pmaps of one program ask for different devices: {_names(devices)} and {_names(need.devices)}")
            devices = max(devices or (), need.devices or (), key=len) or None
    return Demand(count, devices)


def _names(devices) -> str:
    return ", ".join(map(str, devices))
