"""Updates of parameters, put where the gradients are that they read.

A training step ends with the updates of all parameters. Right behind its gradient, each is part of the stretch that computes the gradient: that
stays in the cache and dies at once, and where layers repeat, one function does both.
"""
from __future__ import annotations

from collections import Counter
from typing import Sequence

from lowering.labels import Labels
from mini_jax.core.program import Jaxpr, JaxprEqn, Var

_ELEMENTWISE = frozenset("""add sub mul div neg max min abs sign square sqrt rsqrt exp log tanh logistic pow integer_pow select_n eq ne lt le gt ge
    and or not convert_element_type broadcast_in_dim reshape squeeze expand_dims stop_gradient""".split())


def updates_early(program: Jaxpr, labels: Labels) -> Jaxpr:
    """The program with elementwise equations that lead to nothing but its results moved up, each right behind the last that it depends on.

    Those behind one equation move together or not at all: else what one leaves to another, out of the cache by then, would be written. And only
    where most of the equations like that one have such followers: where layers are updated each in its own way, they would no longer repeat.
    """
    eqns = program.eqns
    last = _last(eqns)
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


def _last(eqns: Sequence[JaxprEqn]) -> list[int]:
    """The places of elementwise equations whose results only others of them read, or nobody in the program."""
    read: set[Var] = set()                                     # by others
    found = []
    for i in range(len(eqns) - 1, -1, -1):
        eqn = eqns[i]
        if eqn.primitive.name in _ELEMENTWISE and read.isdisjoint(eqn.outvars):
            found.append(i)
        else:
            read.update([v for v in eqn.invars if type(v) is Var])
    return found[::-1]
