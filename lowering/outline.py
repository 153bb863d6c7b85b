"""The outliner: stretches that a program repeats become functions, which XLA compiles once, however often they are called.

    x1 = tanh (dot x0 w0); x2 = tanh (dot x1 w1); …      becomes      layer(x, w) = tanh (dot x w); x1 = layer x0 w0; x2 = layer x1 w1; …

Repeats grow from single equations by joining neighbours (repeats.py), so two stretches are the same exactly where they do the same to
whatever they take from outside: residuals, parameters and captured arrays differ freely. Here they are chosen by what they save,
cut where little crosses, and made functions. A stretch is a contiguous piece of the program, so a call can always take its place.
"""
from __future__ import annotations

import heapq
import os
from collections import Counter
from typing import NamedTuple, Sequence

import numpy as np

from lowering.calls import outlined_p, safe_calls
from lowering.labels import Labels, inner_first, is_fixed
from lowering.products import matrices
from lowering.quotients import is_reciprocal, reciprocals
from lowering.repeats import grown
from lowering.updates import updates_early
from lowering.walls import in_memory_once, walled
from mini_jax.core import dtypes, source
from mini_jax.core.program import NO_EFFECTS, Jaxpr, JaxprEqn, Var, dce, holders, subprograms
from mini_jax.core.staging import stage
from mini_jax.core.types import ShapedArray
from mini_jax.lax.elementwise import add, add_p, bitwise_or, mul_p
from mini_jax.lax.identities import optimization_barrier_p
from mini_jax.lax.shapes import add_any_p, convert_element_type_p
from mini_jax.lax.slicing import concatenate_p, dynamic_update_slice, pad


class Costs(NamedTuple):
    """What is worth a function, in equations: a call costs `call` and, for each value that it takes or gives, `edge`.

    A function saves its size for each call but the first; it is made where it saves at least `least`, of a stretch of at least `smallest`.
    Programs of fewer than `fewest` equations are left alone: they compile fast.
    """
    call: float
    edge: float
    smallest: int
    least: float
    fewest: int


COSTS = {"auto": Costs(2, 0.05, 12, 48, 400), "eager": Costs(0, 0, 2, 1, 4)}
_DEEPEST = 12                                   # functions that call functions that …: writing them recurses


class Notes:
    """What was done to a program and why.

    steps: how many joins and comparisons it took. functions: a line for each. refused: a line for each repeat that would not have paid.
    """

    def __init__(self):
        self.steps = 0
        self.functions: list[str] = []
        self.refused: list[str] = []

    def lines(self) -> list[str]:
        """What the program's text says of it at its beginning; of each function it says the rest above that."""
        if self.functions:
            return [f"outlined: {len(self.functions)} function{'s' * (len(self.functions) > 1)} for what the program repeats (config.outline)"]
        return [f"not outlined: {line}" for line in self.refused[:3]]


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
            if not _pays(copies, labels.size(program), len(eqn.invars) + len(eqn.outvars), costs):
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
    ready = _shared_first(reciprocals(matrices(_spliced(program))), labels)
    flat = _Flat(updates_early(ready, labels) if moving else ready, labels)
    chosen = _chosen(flat, costs, notes)
    result, made = _rewritten(flat, chosen, notes) if chosen else (program, [])
    return safe_calls(result), made


def _pays(copies: int, weight: float, edges: int, costs: Costs) -> bool:
    return copies >= 2 and weight >= costs.smallest and _gain(copies, weight, edges, costs) >= costs.least


def _gain(copies: int, weight: float, edges: int, costs: Costs) -> float:
    """The equations that a function saves."""
    return (copies - 1) * weight - copies * (costs.call + edges * costs.edge)


# --- a program made ready -----------------------------------------------------------------------------------------------------

_SPLICED = frozenset(["custom_jvp_call", "custom_vjp_call", "custom_vmap_call"])        # written as the equations in them


def _spliced(program: Jaxpr) -> Jaxpr:
    """The program with the equations of functions with custom derivatives in place of their calls."""
    if not any([eqn.primitive.name in _SPLICED for eqn in program.eqns]):
        return program
    eqns: list[JaxprEqn] = []
    outer: dict = {}                                             # variables -> what they are called now
    stack = [(iter(program.eqns), outer, None)]                  # (equations to write, their variables' names, the call they stand for)
    while stack:
        remaining, names, caller = stack[-1]
        eqn = next(remaining, None)
        if eqn is None:
            stack.pop()
            if caller is not None:
                results = [names.get(v, v) if type(v) is Var else v for v in caller.params["call"].outvars]
                stack[-1][1].update(zip(caller.outvars, results))
            continue
        invars = [names.get(v, v) if type(v) is Var else v for v in eqn.invars]
        if eqn.primitive.name in _SPLICED:
            call = dce(eqn.params["call"])
            stack.append((iter(call.eqns), dict(zip(call.invars, invars)), eqn))
        else:
            outvars = eqn.outvars
            if len(stack) > 1:                                   # a program may be called again: each time with new variables
                outvars = [Var(v.aval) for v in outvars]
                names.update(zip(eqn.outvars, outvars))
            eqns.append(eqn.replace(invars=invars, outvars=outvars))
    return program.replace(eqns=eqns, outvars=[outer.get(v, v) if type(v) is Var else v for v in program.outvars])


_EITHER_WAY = frozenset([add_p, add_any_p, mul_p])              # of two variables: x · y is y · x


def _shared_first(program: Jaxpr, labels: Labels) -> Jaxpr:
    """The program with what it computes several times from nothing but its inputs and constants (masks, tables) computed once, ahead.

    Of other equations that occur twice one is left. Inside of functions they would no longer be seen to be the same.
    """
    names: dict[Var, Var] = {}
    first: dict[tuple, int] = {}                                 # what is computed -> where first
    again: set[int] = set()
    kept: list[JaxprEqn | None] = []
    for eqn in program.eqns:
        invars = [names.get(v, v) if type(v) is Var else v for v in eqn.invars] if names else eqn.invars
        label = labels.of(eqn)
        if label >= 0 and labels.weight(eqn) == 1 and eqn.primitive is not optimization_barrier_p:      # which is there to keep things apart
            read = [v for v in invars if type(v) is Var]
            place = first.setdefault((label, *(sorted(read, key=id) if eqn.primitive in _EITHER_WAY else read)), len(kept))
            if place < len(kept):
                again.add(place)
                names.update(zip(eqn.outvars, kept[place].outvars))
                continue
        kept.append(eqn if invars is eqn.invars or invars == eqn.invars else labels.renamed(eqn, invars=invars))
    if not again:
        return program
    ahead = set(program.invars) | set(program.constvars)
    early, late = [], []
    for place, eqn in enumerate(kept):
        if place in again and all([v in ahead for v in eqn.invars if type(v) is Var]):
            ahead.update(eqn.outvars)
            early.append(eqn)
        else:
            late.append(eqn)
    return program.replace(eqns=early + late, outvars=[names.get(v, v) if type(v) is Var else v for v in program.outvars])


class _Flat:
    """A program as the search sees it: each equation's label, and where what it reads comes from.

    A slot is the number of a result, over all equations. base[i]: the first slot of equation i (one more entry for the end); owner: the
    equation of a slot. refs[i]: the slots of its operands that are variables, -1 for an input of the program.
    users[slot]: the equations that read it, ascending; the number of equations stands for the program's outputs.
    """

    def __init__(self, program: Jaxpr, labels: Labels):
        self.program, self.eqns = program, program.eqns
        self.labels = [labels.of(eqn) for eqn in self.eqns]
        self.fixed = [label < 0 for label in self.labels]
        self.slot: dict[Var, int] = {}
        self.base, self.refs, self.owner, self.weights = [], [], [], [0]
        slot = self.slot
        for i, eqn in enumerate(self.eqns):
            self.refs.append([slot.get(v, -1) for v in eqn.invars if type(v) is Var])
            self.base.append(len(slot))
            for v in eqn.outvars:
                slot[v] = len(slot)
                self.owner.append(i)
            self.weights.append(self.weights[-1] + labels.weight(eqn))
        self.base.append(len(slot))
        self.users: list[list[int]] = [[] for _ in self.owner]
        for i, refs in enumerate(self.refs):
            for ref in refs:
                if ref >= 0:
                    self.users[ref].append(i)
        for v in program.outvars:
            if type(v) is Var and v in slot:
                self.users[slot[v]].append(len(self.eqns))
        self.places: dict[int, list[int]] = {}                   # label -> where it occurs
        for i, label in enumerate(self.labels):
            self.places.setdefault(label, []).append(i)

    def weight(self, start: int, end: int) -> float:
        return self.weights[end] - self.weights[start]

    def edges(self, start: int, end: int) -> int:
        """How many values a stretch takes and gives."""
        low, high, users = self.base[start], self.base[end], self.users
        taken = {v for eqn in self.eqns[start:end] for v in eqn.invars if type(v) is Var and self.slot.get(v, -1) < low}
        return len(taken) + sum([bool(users[slot]) and users[slot][-1] >= end for slot in range(low, high)])

    def same(self, start: int, size: int, other: int) -> bool:
        """Does the stretch of this size that begins at `other` do the same as that at `start`?"""
        if other + size > len(self.labels) or self.labels[start:start + size] != self.labels[other:other + size]:
            return False
        low, at = self.base[start], self.base[other]
        for mine, its in zip(self.refs[start:start + size], self.refs[other:other + size]):
            for a, b in zip(mine, its):
                if (b - at != a - low) if a >= low else b >= at:
                    return False
        return True

    def occurrences(self, start: int, size: int, claimed: bytearray, notes: Notes) -> list[int]:
        """All places, not overlapping and not claimed, at which the stretch of this size at `start` occurs."""
        labels = self.labels[start:start + size]
        rarest = min(range(size), key=lambda k: len(self.places[labels[k]]))
        found, free = [], 0
        for place in self.places[labels[rarest]]:
            begin = place - rarest
            if begin >= free and claimed.find(1, begin, begin + size) < 0:
                notes.steps += 1
                if self.same(start, size, begin):
                    found.append(begin)
                    free = begin + size
        return found


# --- which stretches -----------------------------------------------------------------------------------------------------------

class _Stretch(NamedTuple):
    """A stretch of `size` equations and the places at which it occurs."""
    size: int
    sites: list[int]


def _chosen(flat: _Flat, costs: Costs, notes: Notes) -> list[_Stretch]:
    """Stretches that do not overlap, chosen greedily by what they save; in the order of the program."""
    repeats, steps = grown(flat.labels, flat.refs, flat.base, flat.fixed)
    notes.steps += steps
    weight = lambda repeat: flat.weight(repeat.starts[0], repeat.starts[0] + repeat.size)
    # Entries: (-gain, number of the repeat, its sites, how many had been chosen when they were found). None: it is an estimate.
    heap = [(-_gain(len(repeat.starts), weight(repeat), 0, costs), i, None, 0) for i, repeat in enumerate(repeats)
            if len(repeat.starts) > 1 and weight(repeat) >= costs.smallest]
    heapq.heapify(heap)
    claimed, chosen = bytearray(len(flat.eqns)), []
    while heap and -heap[0][0] >= costs.least:
        gain, i, sites, version = heapq.heappop(heap)
        size, starts = repeats[i]
        if sites is None or version < len(chosen):
            starts = [s for s in starts if claimed.find(1, s, s + size) < 0]
            if starts:
                sites = _well_cut(flat, starts[0], size, claimed, notes)
                middle = sites[len(sites) // 2]
                gain = _gain(len(sites), flat.weight(middle, middle + size), flat.edges(middle, middle + size), costs)
                if len(sites) > 1 and gain >= costs.least:
                    heapq.heappush(heap, (-gain, i, sites, len(chosen)))
                elif len(sites) > 1 and not chosen:
                    place = _name(flat, sites[0], size)[1]
                    notes.refused.append(f"{len(sites)} times {size} equations in {place}: calls would cost more than they save")
            continue
        for s in sites:
            claimed[s:s + size] = b"\1" * size
        chosen.append(_Stretch(size, sites))
    return sorted(chosen, key=lambda stretch: stretch.sites)


def _well_cut(flat: _Flat, start: int, size: int, claimed: bytearray, notes: Notes) -> list[int]:
    """The sites of a stretch. In a run of copies the beginning is where the fewest bytes go from one copy to the next."""
    sites = flat.occurrences(start, size, claimed, notes)
    joints = [b for a, b in zip(sites, sites[1:]) if b == a + size]
    if not joints:
        return sites
    joint = joints[len(joints) // 2]
    crossing = _crossing(flat, joint, size)
    notes.steps += size
    tried = 0
    for shift in sorted(crossing, key=lambda shift: (crossing[shift], abs(shift), shift)):
        if crossing[shift] >= crossing[0] or tried == 6:
            break
        if claimed.find(1, joint + shift, joint + shift + size) < 0 and not any(flat.fixed[joint + shift:joint + shift + size]):
            tried += 1
            found = flat.occurrences(joint + shift, size, claimed, notes)
            if len(found) >= max(2, len(sites) - (len(sites) > 3)):
                return found
    return sites


def _crossing(flat: _Flat, joint: int, size: int) -> dict[int, int]:
    """For each cut near the joint of two copies: the bytes that one copy would compute for the next."""
    low, high = max(0, joint - 2 * size), min(len(flat.eqns), joint + 2 * size)
    changes = [0] * (high - low + 1)
    for i in range(low, high):
        for slot, v in zip(range(flat.base[i], flat.base[i + 1]), flat.eqns[i].outvars):
            last = max([u for u in flat.users[slot] if u < min(i + 2 * size, high)], default=i)
            if last > i:                                     # crosses each cut in (i, last] that is at most a copy away
                changes[i + 1 - low] += _bytes(v)
                changes[min(last, i + size) + 1 - low] -= _bytes(v)
    crossing, total = {}, 0
    for i in range(low, high):
        total += changes[i - low]
        if abs(i - joint) < size and i + size <= len(flat.eqns):
            crossing[i - joint] = total
    return crossing


def _bytes(v: Var) -> int:
    aval = v.aval
    return aval.size * aval.dtype.itemsize if type(aval) is ShapedArray else 0


def _name(flat: _Flat, start: int, size: int) -> tuple[str, str]:
    """A name for a stretch and where it comes from: the user's function to which most of it belongs."""
    sources = [eqn.source for eqn in flat.eqns[start:start + size] if eqn.source is not None]
    if not sources:
        return "repeated", "no line of the user's"
    (code, _), = Counter([captured[0] for captured in sources]).most_common(1)
    lines = [source.decode(captured).line for captured in sources if captured[0] is code]
    name = f"{code.co_name}_part" if code.co_name.isidentifier() else "repeated"
    span = f"{min(lines)}-{max(lines)}" if len(set(lines)) > 1 else f"{lines[0]}"
    return name, f"{code.co_qualname.replace('<locals>.', '')}, {os.path.basename(code.co_filename)}:{span}"


# --- stretches as functions --------------------------------------------------------------------------------------------------------

class _Function:
    """A stretch as a function. inputs: for each value that it takes, the values that take its place at the sites -> its name inside."""

    def __init__(self, flat: _Flat, stretch: _Stretch):
        self.size, self.sites = stretch
        self.inputs: dict[tuple, Var] = {}
        first = self.sites[0]
        self.low, self.high = flat.base[first], flat.base[first + self.size]
        self.eqns = []
        for k in range(self.size):
            here = [flat.eqns[site + k] for site in self.sites]
            invars = [self.taken(tuple([eqn.invars[j] for eqn in here])) if type(v) is Var and flat.slot.get(v, -1) < self.low else v
                      for j, v in enumerate(here[0].invars)]
            self.eqns.append(JaxprEqn(here[0].primitive, invars, here[0].outvars, here[0].params, NO_EFFECTS, here[0].source))

    def taken(self, values: tuple) -> Var:
        """The input whose place these values take at the sites."""
        found = self.inputs.get(values)
        if found is None:
            found = self.inputs[values] = Var(values[0].aval)
        return found

    def results(self, flat: _Flat, k: int) -> list[Var]:
        """What the k-th call computes: all results of its equations."""
        return [v for eqn in flat.eqns[self.sites[k]:self.sites[k] + self.size] for v in eqn.outvars]


# What is computed again rather than handed over: XLA fuses it into what reads it.
_CHEAP = frozenset("""broadcast_in_dim reshape iota convert_element_type neg add add_any sub mul div max min select_n abs sign square
    eq ne lt le gt ge and or not stop_gradient copy squeeze expand_dims integer_pow real imag conj""".split())
_STEPS = 12                                     # of them, at most, for one value
# Operations whose operands XLA does not compute inside of them: these are in memory in any case.
_WHOLE = frozenset("""dot_general conv_general_dilated gather scatter scatter-add sort scan while cond jit custom_call fft cumsum cumprod
    cummax cummin cumlogsumexp dynamic_slice dynamic_update_slice reduce_window outlined checkpoint""".split())


class _Plan(NamedTuple):
    """How a function may compute for itself a value that it takes.

    steps: (value, equation at the first site, its operands), each value before its operands. ends: what it would have to take instead.
    """
    steps: list[tuple]
    ends: tuple


def _recompute(flat: _Flat, function: _Function, range_of: Sequence[int]) -> None:
    """Let the function compute for itself what it takes, where no more (but a sixteenth) is kept in memory then.

    That is what XLA does inside of a program: broadcasts, and what follows cheaply from other values, become part of what reads them.
    """
    middle = len(function.sites) // 2
    plans = {values: plan for values in function.inputs if (plan := _plan(flat, function, values, middle, range_of)) is not None}
    by_ends: dict[frozenset, list[tuple]] = {}
    for values, plan in plans.items():                        # those that need the same instead stand or fall together
        by_ends.setdefault(frozenset([end for end in plan.ends if end not in function.inputs]), []).append(values)
    own: dict[tuple, tuple] = {}
    for ends, group in sorted(by_ends.items(), key=lambda item: len(item[0])):
        room = sum([_bytes(values[0]) for values in group])
        more = [end for end in plans[group[0]].ends if end in ends and end not in function.inputs]         # in an order that no set decides
        if sum([_bytes(end[0]) for end in more]) <= room + room // 16:
            for values in group:
                for wanted, eqn, operands in plans[values].steps:
                    own.setdefault(wanted, (eqn, operands, function.inputs.pop(wanted, None) or Var(wanted[0].aval)))
            for end in more:
                function.taken(end)
    for _, operands, _ in list(own.values()):                 # what one plan computes, another may have taken for granted
        for values in operands:
            if values not in own:
                function.taken(values)
    names = {**function.inputs, **{wanted: name for wanted, (_, _, name) in own.items()}}
    ahead = []
    for wanted, (eqn, operands, name) in sorted(own.items(), key=lambda item: flat.slot[item[0][0]]):
        given = iter(operands)
        invars = [names[next(given)] if type(v) is Var else v for v in eqn.invars]
        ahead.append(JaxprEqn(eqn.primitive, invars, [name], eqn.params, NO_EFFECTS, eqn.source))
    function.eqns = ahead + function.eqns


def _plan(flat: _Flat, function: _Function, values: tuple, middle: int, range_of: Sequence[int]) -> _Plan | None:
    """The plan that ends with the fewest bytes. Values that are in memory in any case are better taken from there."""
    ends, steps, best = {values: None}, [], None                                 # (a dict for its order)
    waiting: dict[tuple, tuple] = {}                                             # what may be computed instead -> its equation and operands

    def consider(wanted: tuple) -> None:
        found = _definition(flat, wanted)
        if found is not None and (_swaps_matrix(found[0]) or not _in_memory(flat, function, wanted, middle, range_of)):
            waiting[wanted] = found

    def size(ends) -> int:
        return sum([_bytes(end[0]) for end in ends if end not in function.inputs])

    consider(values)
    while waiting and len(steps) < _STEPS:
        wanted = min(waiting, key=lambda wanted: size([o for o in dict.fromkeys(waiting[wanted][1]) if o not in ends]) - _bytes(wanted[0]))
        eqn, operands = waiting.pop(wanted)
        ends.pop(wanted)
        for o in dict.fromkeys(operands):
            if o not in ends:
                ends[o] = None
                if o not in function.inputs:
                    consider(o)
        steps.append((wanted, eqn, operands))
        if best is None or size(ends) <= best[0]:
            best = size(ends), len(steps), tuple(ends)
    return None if best is None else _Plan(steps[:best[1]], best[2])


def _definition(flat: _Flat, values: tuple) -> tuple[JaxprEqn, list[tuple]] | None:
    """How these values are computed, if it is cheap and the same at all sites: the equation at the first, its operands at all."""
    slots = [flat.slot.get(v, -1) for v in values]
    if min(slots) < 0:
        return None
    places = [flat.owner[slot] for slot in slots]
    eqn, label = flat.eqns[places[0]], flat.labels[places[0]]
    if not (_is_cheap(eqn) or _swaps_matrix(eqn)) or any([flat.labels[place] != label for place in places]):
        return None
    eqns = [flat.eqns[place] for place in places]
    return eqn, [tuple([e.invars[j] for e in eqns]) for j, v in enumerate(eqn.invars) if type(v) is Var]


def _is_cheap(eqn: JaxprEqn) -> bool:
    return eqn.primitive.name in _CHEAP and not is_reciprocal(eqn)


def _in_memory(flat: _Flat, function: _Function, values: tuple, middle: int, range_of: Sequence[int]) -> bool:
    """Is a value in memory whatever this function does: an input of the program, an operand of a product, or of another function?"""
    slot = flat.slot.get(values[middle], -1)
    if slot < 0:
        return True
    eqn, home, site = flat.eqns[flat.owner[slot]], range_of[flat.owner[slot]], function.sites[middle]
    if eqn.primitive.name in _WHOLE:
        return True
    others = [user for user in flat.users[slot] if not site <= user < site + function.size]
    return any([user == len(flat.eqns) or range_of[user] != home or flat.eqns[user].primitive.name in _WHOLE for user in others])


def _swaps_matrix(eqn: JaxprEqn) -> bool:
    """Does it transpose the last two dimensions only? Products take their operands either way: that is better known where they stand."""
    if eqn.primitive.name != "transpose":
        return False
    *rest, a, b = eqn.params["permutation"] if len(eqn.params["permutation"]) > 1 else (0, 0)
    return (a, b) == (len(rest) + 1, len(rest)) and rest == list(range(len(rest)))


def _rewritten(flat: _Flat, chosen: list[_Stretch], notes: Notes) -> tuple[Jaxpr, list[dict]]:
    """The program with calls in place of the chosen stretches, and the parameters of the calls, one dictionary for each function."""
    range_of, starts = [-1] * len(flat.eqns), {}
    functions = [_Function(flat, stretch) for stretch in chosen]
    for function in functions:
        for k, site in enumerate(function.sites):
            range_of[site:site + function.size] = [site] * function.size
            starts[site] = function, k
    for function in functions:
        _recompute(flat, function, range_of)
    results = {function: [function.results(flat, k) for k in range(len(function.sites))] for function in functions}
    alone = _outside(flat, results, range_of)
    outside = [v for eqns in alone.values() for eqn in eqns for v in eqn.invars if type(v) is Var]
    outside += [v for v in flat.program.outvars if type(v) is Var]
    bodies: dict[_Function, tuple[Jaxpr, list[int]]] = {}
    while True:                                               # what a function need not take, another need not give
        needed = set(outside)
        for function in functions:
            for values in function.inputs:
                needed.update(values)
        smaller = False
        for function in functions:
            given = [i for i, values in enumerate(zip(*results[function])) if not needed.isdisjoint(values)]
            program = Jaxpr((), function.inputs.values(), function.eqns, [results[function][0][i] for i in given])
            program, used = dce(program, [True] * len(given), keep_inputs=False)
            if not all(used):
                function.inputs = {values: v for (values, v), u in zip(function.inputs.items(), used) if u}
                smaller = True
            bodies[function] = program, given
        if not smaller:
            break
    params: dict[_Function, dict] = {}
    for function in functions:
        name, place = _name(flat, function.sites[0], function.size)
        note = f"{len(function.sites)} calls of {len(bodies[function][0].eqns)} equations: repeated in {place}"
        notes.functions.append(note)
        body = _joined_in_place(in_memory_once(_in_order(bodies[function][0])))
        params[function] = {"jaxpr": body, "name": name, "note": note}
    eqns: list[JaxprEqn] = []
    for i, eqn in enumerate(flat.eqns):
        if range_of[i] < 0:
            eqns += alone[i]
        elif range_of[i] == i:
            function, k = starts[i]
            outvars = [results[function][k][j] for j in bodies[function][1]]
            if outvars:
                eqns.append(JaxprEqn(outlined_p, [values[k] for values in function.inputs], outvars, params[function], NO_EFFECTS, eqn.source))
    return in_memory_once(flat.program.replace(eqns=eqns)), list(params.values())


def _outside(flat: _Flat, results: dict[_Function, list[list[Var]]], range_of: Sequence[int]) -> dict[int, list[JaxprEqn]]:
    """The equations outside of functions by their places, each after those that compute again what it would take from a function.

    So one reader (the backward pass of the first layer, which is not like the others) does not make all calls of that function write
    what follows cheaply from what they give anyway.
    """
    taken = {v for function in results for values in function.inputs for v in values}
    taken.update([v for i, eqn in enumerate(flat.eqns) if range_of[i] < 0 for v in eqn.invars if type(v) is Var
                  and not (v in flat.slot and _is_cheap(flat.eqns[flat.owner[flat.slot[v]]]))])
    handed = {v for calls in results.values() for values in zip(*calls) if not taken.isdisjoint(values) for v in values}
    own: dict[Var, Var] = {}                                     # what is computed again -> its name outside
    eqns: dict[int, list[JaxprEqn]] = {}
    for i, eqn in enumerate(flat.eqns):
        if range_of[i] >= 0:
            continue
        ahead = []
        for v in dict.fromkeys([v for v in eqn.invars if type(v) is Var and v not in own]):
            for place in _cheap_steps(flat, v, handed, range_of):
                step = flat.eqns[place]
                if step.outvars[0] not in own:
                    ahead.append(step.replace(invars=[own.get(x, x) if type(x) is Var else x for x in step.invars], outvars=[Var(step.out_types[0])]))
                    own[step.outvars[0]] = ahead[-1].outvars[0]
        if own and any([type(v) is Var and v in own for v in eqn.invars]):
            eqn = eqn.replace(invars=[own.get(v, v) if type(v) is Var else v for v in eqn.invars])
        eqns[i] = [*ahead, eqn]
    return eqns


def _cheap_steps(flat: _Flat, v: Var, handed: set[Var], range_of: Sequence[int]) -> list[int]:
    """The places of equations within functions that compute v from what is outside of them or handed over; [] if these are many, or not cheap."""
    found: set[int] = set()
    waiting = [v]
    while waiting:
        v = waiting.pop()
        place = flat.owner[flat.slot[v]] if v in flat.slot else -1
        if place < 0 or range_of[place] < 0 or v in handed or place in found:
            continue
        if not _is_cheap(flat.eqns[place]) or len(found) == _STEPS:
            return []
        found.add(place)
        waiting += [x for x in flat.eqns[place].invars if type(x) is Var]
    return sorted(found)


def _in_order(body: Jaxpr) -> Jaxpr:
    """The function with transposed results, and such with dimensions of size 1, laid out row by row.

    Else XLA may give them in another layout, so as to save a copy, and whoever reads them makes one each time.
    """
    transposed = {eqn.outvars[0] for eqn in body.eqns if eqn.primitive.name == "transpose"}
    ordered = {v for v in body.outvars if type(v) is Var and v.aval.ndim > 1 and (v in transposed or 1 in v.aval.shape)}
    return walled(body, ordered)


_FEW = 4                                        # parts of a concatenation that one loop may choose among


def _joined_in_place(body: Jaxpr) -> Jaxpr:
    """The function with concatenations written part by part into one array.

    XLA's CPU compiler finds equal kernels and compiles them once, but not concatenations: each call would have its own.
    """
    if not any([eqn.primitive is concatenate_p for eqn in body.eqns]):
        return body
    eqns = []
    for eqn in body.eqns:
        if eqn.primitive is concatenate_p and all([type(v) is Var and v.aval.size for v in eqn.invars]):
            program, _ = stage(lambda *parts: [_placed(parts, eqn.params["dimension"])], eqn.in_types)
            names = dict(zip((*program.invars, *program.outvars), (*eqn.invars, *eqn.outvars)))
            eqns += [e.replace(invars=[names.get(v, v) for v in e.invars], outvars=[names.get(v, v) for v in e.outvars], source=eqn.source)
                     for e in program.eqns]
        else:
            eqns.append(eqn)
    return body.replace(eqns=eqns)


def _placed(parts: Sequence, dimension: int):
    """The concatenation of arrays: of few as a sum of what is zero elsewhere, one loop (x + -0.0 is x for all x); of more part by part."""
    first = parts[0]
    floating = dtypes.is_floating(first.dtype) or dtypes.is_complex(first.dtype)
    zero = convert_element_type_p.bind(np.float32(-0.0) if floating else np.int32(0), new_dtype=np.dtype(first.dtype), weak_type=False)
    join = bitwise_or if dtypes.is_bool(first.dtype) else add
    whole, at, size = None, 0, sum([part.shape[dimension] for part in parts])
    for part in parts:
        if whole is None or len(parts) <= _FEW:
            there = pad(part, zero, [(at, size - at - part.shape[dimension], 0) if d == dimension else (0, 0, 0) for d in range(part.ndim)])
            whole = there if whole is None else join(whole, there)
        else:
            whole = dynamic_update_slice(whole, part, [np.int32(at * (d == dimension)) for d in range(part.ndim)])
        at += part.shape[dimension]
    return whole
