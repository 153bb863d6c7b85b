"""Updates of parameters: where a program repeats its layers, put where the gradients are that they read; else compiled together.

A training step ends with the updates of all parameters. Right behind its gradient, each is part of the stretch that computes the gradient: that
stays in the cache and dies at once, and where layers repeat, one function does both.

Where they don't, XLA makes of each update of another shape a kernel of its own, each with some 30 ms of compilation. Small ones are given to it as
functions that it compiles to one kernel each ("small calls"), in half the time, with what sums the gradients of biases.
"""
from __future__ import annotations

from collections import Counter
from typing import Callable, Collection, Sequence

import numpy as np

from lowering.calls import outlined_p
from lowering.labels import Labels
from mini_jax.core.program import NO_EFFECTS, Jaxpr, JaxprEqn, Var
from mini_jax.lax.shapes import reduce_sum_p

_ELEMENTWISE = frozenset("""add sub mul div neg max min abs sign square sqrt rsqrt exp log tanh logistic pow integer_pow select_n eq ne lt le gt ge
    and or not convert_element_type broadcast_in_dim reshape squeeze expand_dims stop_gradient""".split())


def updates_early(program: Jaxpr, labels: Labels) -> Jaxpr:
    """The program with elementwise equations that lead to nothing but its results moved up, each right behind the last that it depends on.

    Those behind one equation move together or not at all: else what one leaves to another, out of the cache by then, would be written. And only
    where most of the equations like that one have such followers: where layers are updated each in its own way, they would no longer repeat.
    """
    eqns = program.eqns
    last = _last(eqns, lambda eqn: eqn.primitive.name in _ELEMENTWISE)
    if not last:
        return program
    made = {v: i for i, eqn in enumerate(eqns) for v in eqn.outvars}
    reads = {i: [made[v] for v in eqns[i].invars if type(v) is Var and v in made] for i in last}
    readers: dict[int, list[int]] = {i: [] for i in last}
    ends: dict[int, int] = {}                                  # of those equations: the last on which they depend that is not one of them
    for i in last:
        ends[i] = max([ends.get(place, place) for place in reads[i]], default=-1)
        for place in reads[i]:
            if place in readers:
                readers[place].append(i)
    for i in reversed(last):                                   # what depends on inputs alone (decayed moments) goes where it is read, if in one place
        if ends[i] < 0 and len(places := {ends[reader] for reader in readers[i]}) == 1:
            ends[i] = places.pop()
    label = lambda i: labels.of(eqns[i])
    occurs = Counter([label(i) for i in range(len(eqns)) if i not in ends])
    followed = Counter([(label(i), label(end)) for i, end in ends.items() if end >= 0])
    order = [(i, -1) for i in range(len(eqns))]                # (behind which equation, which of those behind it)
    groups: dict[int, set[int]] = {}
    for i, end in ends.items():
        if end >= 0:
            groups.setdefault(end, set()).add(i)
        elif eqns[i].out_types[0].size == 1:                   # rates and counts of steps: ahead of all
            order[i] = -1, i
    for end, group in groups.items():
        alone = all([group.issuperset(readers[i]) and all([place in group or order[place][0] <= end for place in reads[i]]) for i in group])
        if alone and occurs[label(end)] > 1 and all([4 * followed[label(i), label(end)] >= 3 * occurs[label(end)] for i in group]):
            for i in group:
                order[i] = end, i
    return program.replace(eqns=[eqns[i] for i in sorted(range(len(eqns)), key=order.__getitem__)])


SMALL = 2 ** 15                                 # entries of the largest array for which a kernel without threads is as fast
SMALL_SUM = 2 ** 11                             # and of the largest sum: from twice that on XLA gives it to YNNPACK, which is not to be had there
MANY, TOGETHER = 16, 8                          # updates of different shapes that are worth it; how many become one kernel


def updates_together(program: Jaxpr) -> Jaxpr:
    """The program with what leads to nothing but its results, elementwise on small arrays, in functions of several updates each, at its end.

    What is computed of scalars alone (rates, counts of steps) all may read: that stays ahead of them.
    """
    eqns = program.eqns
    places = _last(eqns, _is_small)
    updates = _independent(eqns, places)
    if len({tuple([t for i in update for t in eqns[i].out_types]) for update in updates}) < MANY:
        return program
    moved, wanted = set(places), {v for v in program.outvars if type(v) is Var}
    calls = [_together([eqns[i] for update in updates[k:k + TOGETHER] for i in update], wanted) for k in range(0, len(updates), TOGETHER)]
    return program.replace(eqns=[eqn for i, eqn in enumerate(eqns) if i not in moved] + calls)


_DTYPES = frozenset([np.dtype(name) for name in ("float32", "float64", "int32", "int64", "uint32", "bool")])


def _is_small(eqn: JaxprEqn) -> bool:
    if eqn.primitive.name not in _ELEMENTWISE and eqn.primitive is not reduce_sum_p:
        return False
    values = [v.aval for v in (*eqn.invars, *eqn.outvars)]
    return 1 < max([t.size for t in values]) <= (SMALL_SUM if eqn.primitive is reduce_sum_p else SMALL) and all([t.dtype in _DTYPES for t in values])


def _independent(eqns: Sequence[JaxprEqn], places: Sequence[int]) -> list[list[int]]:
    """These equations in groups, none of which reads what another computes."""
    first = {i: i for i in places}

    def leader(i: int) -> int:
        while first[i] != i:
            first[i] = i = first[first[i]]
        return i
    made = {v: i for i in places for v in eqns[i].outvars}
    for i in places:
        for v in eqns[i].invars:
            if type(v) is Var and v in made:
                a, b = sorted((leader(made[v]), leader(i)))
                first[b] = a
    groups: dict[int, list[int]] = {}
    for i in places:
        groups.setdefault(leader(i), []).append(i)
    return list(groups.values())


def _together(eqns: Sequence[JaxprEqn], wanted: Collection[Var]) -> JaxprEqn:
    """A call of a function that does what these equations do, and gives of their results those that are wanted.

    It gives what it takes, too, which costs nothing. For XLA ends the process if it finds, having simplified the function, that it reads not all of that.
    """
    made = [v for eqn in eqns for v in eqn.outvars]
    inside = set(made)
    taken = list(dict.fromkeys([v for eqn in eqns for v in eqn.invars if type(v) is Var and v not in inside]))
    given = [v for v in made if v in wanted]
    params = {"jaxpr": Jaxpr((), taken, eqns, [*given, *taken]), "name": "updates", "small": True,
              "note": f"{len(eqns)} equations on small arrays, compiled to one kernel"}
    return JaxprEqn(outlined_p, taken, [*given, *[Var(v.aval) for v in taken]], params, NO_EFFECTS, eqns[0].source)


def _last(eqns: Sequence[JaxprEqn], fit: Callable[[JaxprEqn], bool]) -> list[int]:
    """The places of equations that fit whose results only others of them read, or nobody in the program."""
    read: set[Var] = set()                                     # by others
    found = []
    for i in range(len(eqns) - 1, -1, -1):
        eqn = eqns[i]
        if fit(eqn) and read.isdisjoint(eqn.outvars):
            found.append(i)
        else:
            read.update([v for v in eqn.invars if type(v) is Var])
    return found[::-1]
