"""Total gradients: what becomes of cotangents along the named axes that a backward pass reduces over (`reduce_axes`).

A value that is the same along an axis i and meets one that differs along it was broadcast there, so its cotangent is the sum of those of its
copies. Types say what differs (`varying`), so that in such a pass

    a cotangent of a value that varies along i varies along i: the cotangent of each copy (`of_copies`)
    a cotangent of a value that does not vary along i, and does not itself: the total
    a cotangent of a value that does not vary along i, and does itself: a part of the total, which is the sum of the parts

Along an axis of a batch (vmap), parts are summed at once, and the products that would make them contract the axis (`contracted`), so that no
batch of gradients ever exists. Along an axis of devices (pmap, shard_map), each keeps its part, since what is linear may be done to parts
as well as to their sum; `complete` adds them up at the end, all in one communication.
"""
from __future__ import annotations

from typing import Sequence

import numpy as np

from mini_jax.core import linear
from mini_jax.core.linear import Accumulator, Zero
from mini_jax.core.state import reduced_axes, state
from mini_jax.core.trace import typeof
from mini_jax.lax import elementwise, selection, shapes
from mini_jax.lax.collectives import along_dimension, axis_index, in_order, psum_p, pvary_p, summed


def of_copies(ct, aval):
    """A cotangent of a value of type `aval` as that of each copy."""
    if type(ct) is Zero:
        return ct
    missing = (aval.varying & reduced_axes()) - typeof(ct).varying
    return pvary_p.bind(ct, axes=in_order(missing)) if missing else ct


def complete(cts: Sequence, types: Sequence) -> list:
    """Cotangents of values of these types with parts added up, those along the same axes in one communication."""
    reduced = state.reduced
    cts = list(cts)
    if reduced is None or not reduced.last:
        return cts
    groups: dict[frozenset, list[int]] = {}
    for i, (ct, t) in enumerate(zip(cts, types)):
        if type(ct) is not Zero and (axes := (typeof(ct).varying - t.varying) & reduced.last):
            groups.setdefault(axes, []).append(i)
    for axes, places in groups.items():
        for i, total in zip(places, psum_p.bind(*[cts[i] for i in places], axes=in_order(axes), groups=None)):
            cts[i] = total
    return cts


# --- what accumulators do ---------------------------------------------------------------------------------------------------------

def _reduce_cotangent(accumulator: Accumulator, ct):
    """What to add to an accumulator: sums along axes of a batch are taken; a total joins parts as the part of the first device."""
    reduced, own = state.reduced, accumulator.aval.varying
    ct = summed(ct, (typeof(ct).varying - own) & (reduced.now if accumulator.partial else reduced_axes()))
    if reduced.last and accumulator.value is not None:
        parts = (typeof(ct).varying ^ typeof(accumulator.value).varying) & reduced.last - own
        if parts:
            ct, accumulator.value = as_part(ct, parts), as_part(accumulator.value, parts)
    return ct


def as_part(total, axes: frozenset):
    """A total as parts along these axes: the first device along each has it, the others nothing. Along those along which it varies it is in parts."""
    axes = axes - typeof(total).varying
    if not axes:
        return total
    first = elementwise.eq(axis_index(in_order(axes)), np.int32(0))
    return selection.select(first, total, shapes.broadcast(np.zeros((), typeof(total).dtype)[()], typeof(total).shape))


def _contract_axes(accumulator: Accumulator, values: tuple, dimensions: tuple) -> tuple[tuple, bool]:
    """Along axes that only the cotangent varies along, it is summed here."""
    ct, *others = values
    axes = (typeof(ct).varying - accumulator.aval.varying) & state.reduced.now
    shared = axes & frozenset().union(*[typeof(other).varying for other in others])
    values = summed(ct, axes - shared), *others
    if not shared:
        return values, False
    names = in_order(shared)
    return tuple([along_dimension(shapes.expand_dims(x, (0,)) if d is None else x, names, d or 0) for x, d in zip(values, dimensions)]), True


linear.reduce_cotangent, linear.contract_axes = _reduce_cotangent, _contract_axes
