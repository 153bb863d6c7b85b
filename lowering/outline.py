"""The outliner: stretches that a program repeats become functions, which XLA compiles once, however often they are called.

    x1 = tanh (dot x0 w0); x2 = tanh (dot x1 w1); …      becomes      layer(x, w) = tanh (dot x w); x1 = layer x0 w0; x2 = layer x1 w1; …

A program is made ready (ready.py). Repeats grow from single equations by joining neighbours (repeats.py), so two stretches are the same exactly
where they do the same to whatever they take from outside: residuals, parameters and captured arrays differ freely. Some are chosen by what they
save, and cut where little crosses (stretches.py); and made functions (functions.py). A stretch is a contiguous piece of the program, so a call
can always take its place.
"""
from __future__ import annotations

from collections import Counter
from typing import Sequence

from lowering.calls import outlined_p, safe_calls
from lowering.functions import rewritten
from lowering.labels import Labels, inner_first, is_fixed
from lowering.products import matrices
from lowering.quotients import reciprocals
from lowering.ready import shared_first, spliced
from lowering.stretches import COSTS, Costs, Flat, Notes, chosen, pays
from lowering.updates import updates_early, updates_together
from mini_jax.core.program import NO_EFFECTS, Jaxpr, JaxprEqn, holders, subprograms

_DEEPEST = 12                                   # functions that call functions that …: writing them recurses


def outlined(jaxpr: Jaxpr, mode: str = "auto", notes: Notes | None = None, *, donates: bool = False) -> Jaxpr:
    """The program with calls of functions in place of what it repeats; itself where nothing that it repeats is worth that.

    mode: "auto", or "eager": whatever occurs twice. The programs in it (of loops, branches, calls) are treated alike.
    donates: results take over the buffers of inputs. A function that reads an input and computes what takes its buffer would copy it, so updates
    of parameters are left where they stand, at the end.
    """
    notes, costs, labels = Notes() if notes is None else notes, COSTS[mode], Labels()
    programs = inner_first(jaxpr)
    if sum([len(program.eqns) for program in programs]) < costs.fewest:
        return jaxpr
    calls = Counter([labels.structure(eqn.params["jaxpr"]) for program in programs for eqn in program.eqns if eqn.primitive.name == "jit"])
    within = _within_operations(programs)
    new: dict[Jaxpr, Jaxpr] = {}
    kept: dict[int, dict] = {}                   # structure of a jitted function that is called several times -> parameters of its calls

    def renewed(eqn: JaxprEqn) -> JaxprEqn:
        eqn = _with_programs(eqn, new)
        if eqn.primitive.name != "jit" or is_fixed(eqn):
            return eqn
        program = eqn.params["jaxpr"]
        structure = labels.structure(program)
        params, copies = kept.get(structure), calls[structure]
        if params is None:
            if not pays(copies, labels.size(program), len(eqn.invars) + len(eqn.outvars), costs):
                return eqn
            note = f"{copies} calls of {labels.size(program):.0f} equations: jitted by the user"
            params = kept[structure] = {"jaxpr": program, "name": eqn.params["name"], "note": note}
            notes.functions.append(note)
        return JaxprEqn(outlined_p, eqn.invars, eqn.outvars, params, NO_EFFECTS, eqn.source)

    for program in programs:
        if program in within:
            new[program] = program
            continue
        eqns = [renewed(eqn) if eqn.params else eqn for eqn in program.eqns]
        changed = any([a is not b for a, b in zip(eqns, program.eqns)])
        new[program] = result = _with_functions(program.replace(eqns=eqns) if changed else program, costs, labels, notes,
                                                moving=program is jaxpr and not donates)
        if result is not program is not jaxpr:
            labels.alike(result, program)
    return new[jaxpr]


_OPERATIONS = frozenset(["reductions", "windows", "indexing", "sorting"])


def _within_operations(programs: Sequence[Jaxpr]) -> set[Jaxpr]:
    """Of programs, inner ones first, those that say how a reduction, window or scatter joins entries, and all in them: XLA allows no calls there."""
    found: set[Jaxpr] = set()
    for program in reversed(programs):
        for eqn, held in holders(program):
            if program in found or eqn.primitive.facts.get("family") in _OPERATIONS:
                found.update(held)
    return found


def _with_programs(eqn: JaxprEqn, new: dict[Jaxpr, Jaxpr]) -> JaxprEqn:
    """The equation with the new forms of the programs among its parameters."""
    found = {name for name, sub in subprograms(eqn.params) if new[sub] is not sub}
    if not found:
        return eqn
    renewed = lambda value: new[value] if type(value) is Jaxpr else tuple([new[v] if type(v) is Jaxpr else v for v in value])
    return eqn.replace(params={name: renewed(value) if name in found else value for name, value in eqn.params.items()})


def _with_functions(program: Jaxpr, costs: Costs, labels: Labels, notes: Notes, *, moving: bool) -> Jaxpr:
    """One program, leaving those in it; then what was made functions, and so on."""
    result, made = _outline(program, costs, labels, notes, moving)
    waiting = [(params, 1) for params in made]
    while waiting:
        params, depth = waiting.pop()
        if depth < _DEEPEST:
            params["jaxpr"], made = _outline(params["jaxpr"], costs, labels, notes)
            waiting += [(inner, depth + 1) for inner in made]
        else:
            params["jaxpr"] = safe_calls(params["jaxpr"])
    return result


def _outline(program: Jaxpr, costs: Costs, labels: Labels, notes: Notes, moving: bool = False) -> tuple[Jaxpr, list[dict]]:
    """The program with calls, and the parameters of these calls, one dictionary for each function. moving: updates of parameters may be moved."""
    if len(program.eqns) < 2 * costs.smallest:
        return safe_calls(program), []
    ready = shared_first(reciprocals(matrices(spliced(program))), labels)
    flat = Flat(updates_early(ready, labels) if moving else ready, labels)
    stretches = chosen(flat, costs, notes)
    result, made = rewritten(flat, stretches, notes) if stretches else (updates_together(program) if moving else program, [])
    return safe_calls(result), made
