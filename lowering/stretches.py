"""Which stretches of a program become functions: those that save most, cut where the fewest bytes cross."""
from __future__ import annotations

import heapq
import os
from collections import Counter
from typing import NamedTuple

from lowering.labels import Labels
from lowering.repeats import grown
from mini_jax.core import source
from mini_jax.core.program import Jaxpr, Var
from mini_jax.core.types import ShapedArray


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


def pays(copies: int, weight: float, edges: int, costs: Costs) -> bool:
    return copies >= 2 and weight >= costs.smallest and saved(copies, weight, edges, costs) >= costs.least


def saved(copies: int, weight: float, edges: int, costs: Costs) -> float:
    """The equations that a function saves."""
    return (copies - 1) * weight - copies * (costs.call + edges * costs.edge)


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


class Flat:
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


# --- the choice -------------------------------------------------------------------------------------------------------------------

class Stretch(NamedTuple):
    """A stretch of `size` equations and the places at which it occurs."""
    size: int
    sites: list[int]


def chosen(flat: Flat, costs: Costs, notes: Notes) -> list[Stretch]:
    """Stretches that do not overlap, chosen greedily by what they save; in the order of the program."""
    repeats, steps = grown(flat.labels, flat.refs, flat.base, flat.fixed)
    notes.steps += steps
    weight = lambda repeat: flat.weight(repeat.starts[0], repeat.starts[0] + repeat.size)
    # Entries: (-gain, number of the repeat, its sites, how many had been chosen when they were found). None: it is an estimate.
    heap = [(-saved(len(repeat.starts), weight(repeat), 0, costs), i, None, 0) for i, repeat in enumerate(repeats)
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
                gain = saved(len(sites), flat.weight(middle, middle + size), flat.edges(middle, middle + size), costs)
                if len(sites) > 1 and gain >= costs.least:
                    heapq.heappush(heap, (-gain, i, sites, len(chosen)))
                elif len(sites) > 1 and not chosen:
                    place = named(flat, sites[0], size)[1]
                    notes.refused.append(f"{len(sites)} times {size} equations in {place}: calls would cost more than they save")
            continue
        for s in sites:
            claimed[s:s + size] = b"\1" * size
        chosen.append(Stretch(size, sites))
    return sorted(chosen, key=lambda stretch: stretch.sites)


def _well_cut(flat: Flat, start: int, size: int, claimed: bytearray, notes: Notes) -> list[int]:
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


def _crossing(flat: Flat, joint: int, size: int) -> dict[int, int]:
    """For each cut near the joint of two copies: the bytes that one copy would compute for the next."""
    low, high = max(0, joint - 2 * size), min(len(flat.eqns), joint + 2 * size)
    changes = [0] * (high - low + 1)
    for i in range(low, high):
        for slot, v in zip(range(flat.base[i], flat.base[i + 1]), flat.eqns[i].outvars):
            last = max([u for u in flat.users[slot] if u < min(i + 2 * size, high)], default=i)
            if last > i:                                     # crosses each cut in (i, last] that is at most a copy away
                changes[i + 1 - low] += bytes_of(v)
                changes[min(last, i + size) + 1 - low] -= bytes_of(v)
    crossing, total = {}, 0
    for i in range(low, high):
        total += changes[i - low]
        if abs(i - joint) < size and i + size <= len(flat.eqns):
            crossing[i - joint] = total
    return crossing


def bytes_of(v: Var) -> int:
    aval = v.aval
    return aval.size * aval.dtype.itemsize if type(aval) is ShapedArray else 0


def named(flat: Flat, start: int, size: int) -> tuple[str, str]:
    """A name for a stretch and where it comes from: the user's function to which most of it belongs."""
    sources = [eqn.source for eqn in flat.eqns[start:start + size] if eqn.source is not None]
    if not sources:
        return "repeated", "no line of the user's"
    (code, _), = Counter([captured[0] for captured in sources]).most_common(1)
    lines = [source.decode(captured).line for captured in sources if captured[0] is code]
    name = f"{code.co_name}_part" if code.co_name.isidentifier() else "repeated"
    span = f"{min(lines)}-{max(lines)}" if len(set(lines)) > 1 else f"{lines[0]}"
    return name, f"{code.co_qualname.replace('<locals>.', '')}, {os.path.basename(code.co_filename)}:{span}"
