"""Lowering a whole program: which inputs it keeps, which buffers it may reuse, and its text."""
from __future__ import annotations

import time
import warnings
from functools import cached_property
from typing import Sequence

from lowering import rules as _rules                       # noqa: F401  (fills emit.rules)
from lowering.digest import blake2b
from lowering.grids import spread
from lowering.module import Module, without_locations
from lowering.ordering import sequenced
from lowering.outline import outlined
from lowering.physical import physical_value, physicalize
from lowering.replicas import Replicas, demand
from lowering.shards import Partitions, attribute, joined
from lowering.stretches import Notes
from mini_jax.core import config
from mini_jax.core.collector import paused
from mini_jax.core.effects import host_effects
from mini_jax.core.logs import TRACE_SECONDS
from mini_jax.core.program import Jaxpr, Var, dce
from mini_jax.core.refs import uses_refs, without_refs


class Lowered:
    """A program as text, with what is needed to call it.

    jaxpr: without dead code, its constants among its inputs; kept: for each of the original inputs, whether it is used.
    consts: the captured arrays that the program takes before its arguments.
    in_cuts, out_cuts: how inputs and outputs are spread over replicas; devices: those that a pmap in the program asks for.
    trace_seconds (where log_compiles was on), lower_seconds: what it took.
    recorded, written: the program as it was recorded, and as it was written, without dead code and with functions for what it repeats.
    notes: what the outliner did.
    again: the program on whole values, not spread, of the constants and inputs that it keeps: to be run once more, operation by operation;
    None where it stands inside of a pmap.
    """

    def __init__(self, name: str, jaxpr: Jaxpr, consts: list, in_types: list, out_types: list, kept: list[bool], text: str, callbacks: list,
                 num_replicas: int, in_cuts: Sequence, out_cuts: Sequence, devices: tuple | None,
                 trace_seconds: float | None, lower_seconds: float, again: Jaxpr | None, kept_consts: Sequence[bool], recorded: Jaxpr,
                 written: Jaxpr, notes: Notes):
        self.name, self.jaxpr, self.consts, self.in_types, self.out_types, self.kept = name, jaxpr, consts, in_types, out_types, kept
        self.located_text, self.callbacks = text, callbacks
        self.num_replicas, self.in_cuts, self.out_cuts, self.devices = num_replicas, in_cuts, out_cuts, devices
        self.trace_seconds, self.lower_seconds, self.again, self.kept_consts = trace_seconds, lower_seconds, again, kept_consts
        self.recorded, self.written, self.notes = recorded, written, notes

    @cached_property
    def text(self) -> str:
        return without_locations(self.located_text)

    @cached_property
    def digest(self) -> bytes:
        """Equal for equal texts, leaving places."""
        return blake2b(self.text.encode(), digest_size=32).digest()


@paused()
def lower(jaxpr: Jaxpr, consts: Sequence, *, name: str, donated: Sequence[bool] = (), keep_unused: bool = False,
          platform: str = "cpu", axes: Replicas | None = None, partitions: Partitions | None = None) -> Lowered:
    """The StableHLO text of a program. `donated` marks the inputs whose buffers outputs may take over.

    axes: where the program itself is what replicas run, those and its named axes. By default the program stands outside of all pmaps,
    and there are as many replicas as those in it need. partitions: where it runs on a mesh, its devices, and how what is spread over them.
    """
    start, trace_seconds, recorded = time.perf_counter(), jaxpr.memo.get(TRACE_SECONDS), jaxpr
    if uses_refs(jaxpr):
        jaxpr = without_refs(jaxpr)
    in_types, out_types, needs = jaxpr.in_types, jaxpr.out_types, demand(jaxpr)
    in_cuts, out_cuts = [()] * len(in_types), [()] * len(out_types)
    whole = jaxpr if axes is None else None
    if axes is None:
        axes = Replicas((), needs.count)
        if needs.count > 1 and partitions is not None:
            raise NotImplementedError(f"{name}: pmap inside of a program over a mesh; use shard_map, or arrays that are not spread over a mesh")
        if needs.count > 1:
            jaxpr, in_cuts, out_cuts = spread(dce(jaxpr))
    elif any([effect.ordered for effect in host_effects(jaxpr.effects)]):
        raise ValueError(f"{name}: ordered calls of Python have no order between replicas that run at the same time; call with ordered=False")
    jaxpr = dce(jaxpr)
    used = {v for eqn in jaxpr.eqns for v in eqn.invars if type(v) is Var}
    used.update(v for v in jaxpr.outvars if type(v) is Var)
    kept = [keep_unused or v in used for v in jaxpr.invars]
    kept_consts = [v in used for v in jaxpr.constvars]
    constants = [(v, c) for v, c, k in zip(jaxpr.constvars, consts, kept_consts) if k]
    again = whole and with_inputs(whole, kept_consts, kept)
    donated = list(donated) or [False] * len(jaxpr.invars)
    marks = [False] * len(constants) + [d for d, k in zip(donated, kept) if k]
    jaxpr = jaxpr.replace(constvars=(), invars=[v for v, _ in constants] + [v for v, k in zip(jaxpr.invars, kept) if k])
    module = Module(platform, None if partitions is None else partitions.devices)
    program, notes = physicalize(sequenced(jaxpr)), Notes()
    attributes, results, count = _donation(jaxpr, marks, name, partitions is not None) if any(marks) else None, None, 1
    if partitions is not None:
        places = [s for s, k in zip((*partitions.constants, *partitions.inputs), (*kept_consts, *kept)) if k]
        attributes = [joined(old, attribute(module, s, t.ndim)) for old, s, t in zip(attributes or [""] * len(places), places, program.in_types)]
        results = [joined("", attribute(module, s, t.ndim)) for s, t in zip(partitions.outputs, program.out_types)]
        count = len(partitions.devices)
    elif config.outline.value != "off" and platform == "cpu":
        program = outlined(program, config.outline.value, notes, donates=any(marks))
    text = module.write(name, program, argument_attributes=attributes, result_attributes=results, axes=axes, num_partitions=count,
                        comments=notes.lines())
    return Lowered(name, jaxpr, [physical_value(c) for _, c in constants], in_types, out_types, kept, text, module.callbacks,
                   axes.count, in_cuts, out_cuts, needs.devices, trace_seconds, time.perf_counter() - start, again, kept_consts,
                   recorded, program, notes)


def with_inputs(jaxpr: Jaxpr, kept_consts: Sequence[bool], kept: Sequence[bool]) -> Jaxpr:
    """The program with those of its constants, which become its first inputs, and of its inputs alone that are kept."""
    return jaxpr.replace(constvars=(), invars=[v for v, k in zip((*jaxpr.constvars, *jaxpr.invars), (*kept_consts, *kept)) if k])


def _donation(jaxpr: Jaxpr, donated: Sequence[bool], name: str, partitioned: bool = False) -> list[str]:
    """Pair each donated input with an output of the same type, whose buffer it becomes; among partitions that is left to XLA."""
    free: dict[str, list[int]] = {}
    for position, out in enumerate(jaxpr.outvars):
        free.setdefault(out.aval.mlir, []).append(position)
    attributes, unused = [], []
    for var, gives in zip(jaxpr.invars, donated):
        places = free.get(var.aval.mlir)
        if gives and places and not partitioned:
            attributes.append(f" {{tf.aliasing_output = {places.pop(0)} : i32}}")
        else:
            attributes.append(" {jax.buffer_donor = true}" if gives else "")
            if gives and not partitioned:
                unused.append(str(var.aval))
    if unused:
        warnings.warn(f"{name}: some donated buffers were not usable, since no output has their type: {', '.join(unused)}", stacklevel=4)
    return attributes
