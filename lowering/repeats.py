"""Repeats: how the stretches that a program repeats grow out of its equations.

Neighbours that occur together most often are joined, everywhere, into one symbol; then the next, until no two neighbours occur
twice (Larsson and Moffat's Re-Pair, 1999). What is joined is not only a pair of symbols but also how the second reads what the first
computes. So two stretches have the same symbol only if they are the same program, up to what they read from outside.
Among equally frequent pairs the smaller are joined first, which keeps the work near linear.
"""
from __future__ import annotations

import heapq
from typing import NamedTuple, Sequence


class Repeat(NamedTuple):
    """A stretch of `size` equations, and where it was found (a longer search may find more)."""
    size: int
    starts: list[int]


def grown(labels: Sequence[int], refs: Sequence[Sequence[int]], base: Sequence[int], fixed: Sequence[bool]) -> tuple[list[Repeat], int]:
    """All stretches that grew, in the order in which they did, and the number of steps that it took.

    labels[i], refs[i]: what equation i does, and the slots that it reads (-1: not of the program). base[i]: the first slot of its own.
    fixed[i]: it belongs to no stretch.
    """
    n, steps = len(labels), 0
    names: dict = {}
    symbol = [-1 if stays else names.setdefault(("label", label), len(names)) for label, stays in zip(labels, fixed)]
    size = [1] * len(names)
    follows, before = list(range(1, n + 1)), list(range(-1, n - 1))
    free = [list(r) for r in refs]               # of the token that begins here: the slots that it reads from before itself
    keys: dict[tuple, int] = {}                  # (symbol, symbol, wiring) -> number of the pair
    where: list[dict[int, None]] = []            # of each pair: the tokens that begin it
    pair_size: list[int] = []
    pair_at = [-1] * n                           # of the token that begins here: the pair that it makes with the next
    heap: list[tuple[int, int, int]] = []

    def meet(a: int) -> None:
        """Count the pair that begins at a."""
        b = follows[a]
        if b >= n or symbol[a] < 0 or symbol[b] < 0:
            return
        low = base[a]
        key = (symbol[a], symbol[b], tuple([ref - low if ref >= low else -1 for ref in free[b]]))
        pair = keys.get(key)
        if pair is None:
            pair = keys[key] = len(where)
            where.append({})
            pair_size.append(size[symbol[a]] + size[symbol[b]])
        found = where[pair]
        found[a] = None
        pair_at[a] = pair
        if len(found) >= 2:
            heapq.heappush(heap, (-len(found), pair_size[pair], pair))

    def part(a: int) -> None:
        if a >= 0 and pair_at[a] >= 0:
            where[pair_at[a]].pop(a, None)
            pair_at[a] = -1

    for a in range(n - 1):
        meet(a)
        steps += 1
    repeats: list[Repeat] = []
    while heap:
        count, _, pair = heapq.heappop(heap)
        found = where[pair]
        if len(found) != -count:
            if 2 <= len(found) < -count:
                heapq.heappush(heap, (-len(found), pair_size[pair], pair))
            continue
        joined, starts = len(size), []
        size.append(pair_size[pair])
        for a in sorted(found):
            if pair_at[a] != pair:               # its first half was the second of the one before
                continue
            b = follows[a]
            c, z, low = follows[b], before[a], base[a]
            part(z)
            part(a)
            part(b)
            free[a] = free[a] + [ref for ref in free[b] if ref < low]
            symbol[a], symbol[b], free[b] = joined, -2, ()
            follows[a] = c
            if c < n:
                before[c] = a
            steps += 1 + len(free[a])
            starts.append(a)
            if z >= 0:
                meet(z)
            meet(a)
        repeats.append(Repeat(pair_size[pair], starts))
    return repeats, steps
