"""Grids: how the values of (nested) pmaps lie on devices, in parts of parts, and the program of one device that works on its parts.

In a program, a pmap takes whole values and gives whole values. Where a value is only ever cut and put together, always in the
same way, no device needs the whole: the program is rewritten so that such values are in parts from the beginning to the end.
"""
from __future__ import annotations

from typing import NamedTuple, Sequence

from mini_jax.core.program import NO_EFFECTS, Jaxpr, JaxprEqn, Var, memoized
from mini_jax.lax.shapes import reshape_p


class Cut(NamedTuple):
    """A value is cut into `size` parts along dimension `dim`, one for each place along the axis of a pmap; None: all share it."""
    size: int
    dim: int | None


class Spread(NamedTuple):
    """The program of one device, and how each input and output is cut, by the outermost pmap first (not at all: everyone has all).

    It takes and gives parts that keep the dimensions along which they were cut, with size 1.
    """
    jaxpr: Jaxpr
    ins: tuple[tuple[Cut, ...], ...]
    outs: tuple[tuple[Cut, ...], ...]


@memoized
def spread(jaxpr: Jaxpr, size: int | None = None, in_dims: tuple = (), out_dims: tuple = ()) -> Spread:
    """Spread a program that calls pmaps over the devices; or a pmap, given the program of one of its `size` replicas and its dims."""
    inner, ins, outs = _cut_inside(jaxpr, (True,) * len(jaxpr.invars), (True,) * len(jaxpr.outvars))
    if size is not None:
        ins = [_outwards(Cut(size, d), deeper) for d, deeper in zip(in_dims, ins)]
        outs = [_outwards(Cut(size, d), deeper) for d, deeper in zip(out_dims, outs)]
    invars, outvars = map(_whole_parts, (inner.invars, inner.outvars), (ins, outs))
    reshaped = lambda source, target: JaxprEqn(reshape_p, [source], [target], {"new_sizes": target.aval.shape}, NO_EFFECTS, None)
    return Spread(inner.replace(invars=invars, outvars=outvars, eqns=[
        *[reshaped(part, v) for part, v in zip(invars, inner.invars) if part is not v], *inner.eqns,
        *[reshaped(v, part) for part, v in zip(outvars, inner.outvars) if part is not v]]), tuple(ins), tuple(outs))


def _whole_parts(atoms: Sequence, all_cuts: Sequence) -> list:
    """For parts without the dimensions along which they were cut, variables for them with those, of size 1."""
    parts = []
    for v, cuts in zip(atoms, all_cuts):
        places, sizes = {cut.dim for cut in cuts} - {None}, iter(v.aval.shape)
        shape = tuple([1 if i in places else next(sizes) for i in range(v.aval.ndim + len(places))])
        parts.append(Var(v.aval.update(shape=shape)) if places else v)
    return parts


def _outwards(cut: Cut, deeper: Sequence[Cut]) -> tuple[Cut, ...]:
    """All cuts of a value, given those of its parts."""
    d = cut.dim
    return (cut, *[inner if d is None or inner.dim is None else Cut(inner.size, inner.dim + (inner.dim >= d)) for inner in deeper])


def _cut_inside(jaxpr: Jaxpr, ins: Sequence[bool], outs: Sequence[bool]) -> tuple[Jaxpr, list, list]:
    """The program rewritten so that values are in parts which nothing but its pmaps read or write, all with one cut, and the cuts
    of its inputs and outputs; `ins` and `outs` say which of those may be in parts."""
    pmaps = [eqn for eqn in jaxpr.eqns if eqn.primitive.facts.get("replicates")]
    if not pmaps:
        return jaxpr, [()] * len(jaxpr.invars), [()] * len(jaxpr.outvars)
    cuts_of: dict[Var, list] = {}                        # every place where a variable occurs, and how it is cut there
    for eqn in jaxpr.eqns:
        dims = (*eqn.params["in_dims"], *eqn.params["out_dims"]) if eqn in pmaps else [None] * (len(eqn.invars) + len(eqn.outvars))
        for v, d in zip((*eqn.invars, *eqn.outvars), dims):
            if type(v) is Var:
                cuts_of.setdefault(v, []).append(None if d is None else Cut(eqn.params["axis_size"], d))
    whole = set(jaxpr.constvars)
    whole.update([v for v, permitted in zip((*jaxpr.invars, *jaxpr.outvars), (*ins, *outs)) if type(v) is Var and not permitted])
    cuts = {v: (found[0],) for v, found in cuts_of.items() if v not in whole and None not in found and len(set(found)) == 1}
    inside, deeper = _cut_deeper(pmaps, cuts)
    parts: dict[Var, Var] = {}
    eqns = []
    for eqn in jaxpr.eqns:
        if eqn in pmaps:
            inner = inside[eqn]
            parts.update({v: Var(part.aval) for v, part in zip((*eqn.invars, *eqn.outvars), (*inner.invars, *inner.outvars))
                          if type(v) is Var and v in cuts and v not in parts})
            dims = {name: tuple([None if type(v) is Var and v in cuts else d for v, d in zip(atoms, eqn.params[name])])
                    for name, atoms in (("in_dims", eqn.invars), ("out_dims", eqn.outvars))}
            eqn = eqn.replace(invars=[_in_parts(v, parts) for v in eqn.invars], outvars=[_in_parts(v, parts) for v in eqn.outvars],
                              params={**eqn.params, "jaxpr": inner, **dims})
        eqns.append(eqn)
    rewritten = jaxpr.replace(invars=[_in_parts(v, parts) for v in jaxpr.invars], eqns=eqns,
                              outvars=[_in_parts(v, parts) for v in jaxpr.outvars])
    all_cuts = {v: _outwards(*cut, deeper[v]) for v, cut in cuts.items()}
    return rewritten, *[[all_cuts.get(v, ()) if type(v) is Var else () for v in atoms] for atoms in (jaxpr.invars, jaxpr.outvars)]


def _cut_deeper(pmaps: Sequence[JaxprEqn], cuts: dict) -> tuple[dict, dict]:
    """The programs of pmaps, rewritten for parts of parts where all that share a value in parts agree on them, and those cuts."""
    refused: set = set()
    while True:
        found: dict[Var, list] = {}
        inside = {}
        for eqn in pmaps:
            permitted = lambda atoms: [type(v) is Var and v in cuts and v not in refused for v in atoms]
            inside[eqn], ins, outs = _cut_inside(eqn.params["jaxpr"], permitted(eqn.invars), permitted(eqn.outvars))
            for v, deeper in zip((*eqn.invars, *eqn.outvars), (*ins, *outs)):
                if type(v) is Var and v in cuts:
                    found.setdefault(v, []).append(tuple(deeper))
        disputed = {v for v, deeper in found.items() if len(set(deeper)) > 1}
        if not disputed:
            return inside, {v: deeper[0] for v, deeper in found.items()}
        refused |= disputed


def _in_parts(atom, parts: dict):
    return parts.get(atom, atom) if type(atom) is Var else atom
