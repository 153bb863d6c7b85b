"""Lowering a whole program: which inputs it keeps, which buffers it may reuse, and its text."""
from __future__ import annotations

import warnings
from functools import cached_property
from typing import Sequence

from lowering import rules as _rules                       # noqa: F401  (fills emit.rules)
from lowering.module import Module, without_locations
from lowering.physical import physical_value, physicalize
from lowering.replicas import Replicas, demand
from mini_jax.core.program import Jaxpr, Var, dce


class Lowered:
    """A program as text, with what is needed to call it.

    jaxpr: without dead code, its constants among its inputs; kept: for each of the original inputs, whether it is used.
    consts: the captured arrays that the program takes before its arguments. devices: those that a pmap in it asks for.
    """

    def __init__(self, name: str, jaxpr: Jaxpr, consts: list, in_types: list, kept: list[bool], text: str, callbacks: list,
                 num_replicas: int, num_partitions: int = 1, devices: tuple | None = None):
        self.name, self.jaxpr, self.consts, self.in_types, self.kept = name, jaxpr, consts, in_types, kept
        self.located_text, self.callbacks = text, callbacks
        self.num_replicas, self.num_partitions, self.devices = num_replicas, num_partitions, devices

    @property
    def out_types(self):
        return self.jaxpr.out_types

    @cached_property
    def text(self) -> str:
        return without_locations(self.located_text)


def lower(jaxpr: Jaxpr, consts: Sequence, *, name: str, donated: Sequence[bool] = (), keep_unused: bool = False,
          platform: str = "cpu", axes: Replicas | None = None) -> Lowered:
    """The StableHLO text of a program. `donated` marks the inputs whose buffers outputs may take over.

    axes: where the program itself is what replicas run, those and its named axes; by default there are the replicas that its pmaps need.
    """
    in_types = jaxpr.in_types
    jaxpr = dce(jaxpr)
    used = {v for eqn in jaxpr.eqns for v in eqn.invars if type(v) is Var}
    used.update(v for v in jaxpr.outvars if type(v) is Var)
    kept = [keep_unused or v in used for v in jaxpr.invars]
    constants = [(v, c) for v, c in zip(jaxpr.constvars, consts) if v in used]
    donated = list(donated) or [False] * len(jaxpr.invars)
    marks = [False] * len(constants) + [d for d, k in zip(donated, kept) if k]
    jaxpr = jaxpr.replace(constvars=(), invars=[v for v, _ in constants] + [v for v, k in zip(jaxpr.invars, kept) if k])
    module, needs = Module(platform), demand(jaxpr)
    axes = axes or Replicas((), needs.count)
    text = module.write(name, physicalize(jaxpr), argument_attributes=_donation(jaxpr, marks, name) if any(marks) else None,
                        axes=axes)
    return Lowered(name, jaxpr, [physical_value(c) for _, c in constants], in_types, kept, text, module.callbacks, axes.count, devices=needs.devices)


def _donation(jaxpr: Jaxpr, donated: Sequence[bool], name: str) -> list[str]:
    """Pair each donated input with an output of the same type, whose buffer it becomes."""
    free: dict[str, list[int]] = {}
    for position, out in enumerate(jaxpr.outvars):
        free.setdefault(out.aval.mlir, []).append(position)
    attributes, unused = [], []
    for var, gives in zip(jaxpr.invars, donated):
        places = free.get(var.aval.mlir)
        if gives and places:
            attributes.append(f" {{tf.aliasing_output = {places.pop(0)} : i32}}")
        else:
            attributes.append(" {jax.buffer_donor = true}" if gives else "")
            if gives:
                unused.append(str(var.aval))
    if unused:
        warnings.warn(f"{name}: some donated buffers were not usable, since no output has their type: {', '.join(unused)}", stacklevel=4)
    return attributes
