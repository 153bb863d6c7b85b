"""Stretches as functions: what they take, what they compute for themselves instead, and what they give."""
from __future__ import annotations

from typing import NamedTuple, Sequence

import numpy as np

from lowering.calls import outlined_p
from lowering.quotients import is_reciprocal
from lowering.stretches import Flat, Notes, Stretch, bytes_of, named
from lowering.walls import in_memory_once, walled
from mini_jax.core import dtypes
from mini_jax.core.program import NO_EFFECTS, Jaxpr, JaxprEqn, Var, dce
from mini_jax.core.staging import stage
from mini_jax.lax.elementwise import add, bitwise_or
from mini_jax.lax.shapes import convert_element_type_p
from mini_jax.lax.slicing import concatenate_p, dynamic_update_slice, pad


class _Function:
    """A stretch as a function. inputs: for each value that it takes, the values that take its place at the sites -> its name inside."""

    def __init__(self, flat: Flat, stretch: Stretch):
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

    def results(self, flat: Flat, k: int) -> list[Var]:
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


def _recompute(flat: Flat, function: _Function, range_of: Sequence[int]) -> None:
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
        room = sum([bytes_of(values[0]) for values in group])
        more = [end for end in plans[group[0]].ends if end in ends and end not in function.inputs]         # in an order that no set decides
        if sum([bytes_of(end[0]) for end in more]) <= room + room // 16:
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


def _plan(flat: Flat, function: _Function, values: tuple, middle: int, range_of: Sequence[int]) -> _Plan | None:
    """The plan that ends with the fewest bytes. Values that are in memory in any case are better taken from there."""
    ends, steps, best = {values: None}, [], None                                 # (a dict for its order)
    waiting: dict[tuple, tuple] = {}                                             # what may be computed instead -> its equation and operands

    def consider(wanted: tuple) -> None:
        found = _definition(flat, wanted)
        if found is not None and (_swaps_matrix(found[0]) or not _in_memory(flat, function, wanted, middle, range_of)):
            waiting[wanted] = found

    def size(ends) -> int:
        return sum([bytes_of(end[0]) for end in ends if end not in function.inputs])

    consider(values)
    while waiting and len(steps) < _STEPS:
        wanted = min(waiting, key=lambda wanted: size([o for o in dict.fromkeys(waiting[wanted][1]) if o not in ends]) - bytes_of(wanted[0]))
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


def _definition(flat: Flat, values: tuple) -> tuple[JaxprEqn, list[tuple]] | None:
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


def _in_memory(flat: Flat, function: _Function, values: tuple, middle: int, range_of: Sequence[int]) -> bool:
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


def rewritten(flat: Flat, chosen: list[Stretch], notes: Notes) -> tuple[Jaxpr, list[dict]]:
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
        name, place = named(flat, function.sites[0], function.size)
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


def _outside(flat: Flat, results: dict[_Function, list[list[Var]]], range_of: Sequence[int]) -> dict[int, list[JaxprEqn]]:
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


def _cheap_steps(flat: Flat, v: Var, handed: set[Var], range_of: Sequence[int]) -> list[int]:
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
