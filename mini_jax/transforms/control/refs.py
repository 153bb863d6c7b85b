"""Loops and branches that use refs from outside, as ones that carry the refs' values (the rules of core/refs.py)."""
from __future__ import annotations

from typing import Sequence

from mini_jax.core.program import Jaxpr, Var, memoized
from mini_jax.core.refs import discharged, is_ref, load, store
from mini_jax.transforms.control.branches import cond_p
from mini_jax.transforms.control.loops import while_p
from mini_jax.transforms.control.pieces import chosen
from mini_jax.transforms.control.scan import in_three, scan_p


def _values(trace, args: Sequence) -> list:
    return [load(trace, arg) if is_ref(arg) else arg for arg in args]


# --- scan ----------------------------------------------------------------------------------------------------------------------

@memoized
def _carrying(jaxpr: Jaxpr, num_consts: int) -> tuple[Jaxpr, tuple[bool, ...]]:
    """The body (other constants; refs that it writes, carry; x) -> (those, carry; y) of a scan, and which constants it writes."""
    pure, count = discharged(jaxpr), len(jaxpr.outvars)
    written = tuple([i in pure.written for i in range(num_consts)])
    consts, rest = pure.jaxpr.invars[:num_consts], pure.jaxpr.invars[num_consts:]
    invars = [*chosen(consts, [not w for w in written]), *chosen(consts, written), *rest]
    return pure.jaxpr.replace(invars=invars, outvars=[*pure.jaxpr.outvars[count:], *pure.jaxpr.outvars[:count]]), written


def _scan(trace, args, params):
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    body, written = _carrying(params["jaxpr"], num_consts)
    consts, init, xs = in_three(_values(trace, args), num_consts, num_carry)
    count = sum(written)
    outs = scan_p.bind(*chosen(consts, [not w for w in written]), *chosen(consts, written), *init, *xs,
                       **{**params, "jaxpr": body, "num_consts": num_consts - count, "num_carry": num_carry + count})
    for ref, value in zip(chosen(args, written), outs):
        store(trace, ref, value)
    return outs[count:]


# --- while -----------------------------------------------------------------------------------------------------------------------

@memoized
def _while_body(body: Jaxpr, condition: Jaxpr, body_nconsts: int, cond_nconsts: int, written: tuple[bool, ...], place: tuple) -> tuple[Jaxpr, Jaxpr]:
    """Condition and body of a while loop that carries the refs that its body writes. place: for each constant of the condition which of
    these it is, or None."""
    pure, count = discharged(body), len(body.outvars)
    consts, carry = pure.jaxpr.invars[:body_nconsts], pure.jaxpr.invars[body_nconsts:]
    refs = chosen(consts, written)
    new_body = pure.jaxpr.replace(invars=[*chosen(consts, [not w for w in written]), *refs, *carry],
                                  outvars=[*pure.jaxpr.outvars[count:], *pure.jaxpr.outvars[:count]])
    test = discharged(condition).jaxpr
    test_consts, test_carry = test.invars[:cond_nconsts], test.invars[cond_nconsts:]
    at = {p: v for p, v in zip(place, test_consts) if p is not None}
    carried = [at.get(i, Var(v.aval)) for i, v in enumerate(refs)]
    new_condition = test.replace(invars=[*[v for v, p in zip(test_consts, place) if p is None], *carried, *test_carry])
    return new_condition, new_body


def _while(trace, args, params):
    cond_nconsts, body_nconsts = params["cond_nconsts"], params["body_nconsts"]
    count = cond_nconsts + body_nconsts
    written = tuple([i in discharged(params["body_jaxpr"]).written for i in range(body_nconsts)])
    refs = chosen(args[cond_nconsts:count], written)
    place = tuple([next((i for i, ref in enumerate(refs) if ref is arg), None) for arg in args[:cond_nconsts]])
    condition, body = _while_body(params["body_jaxpr"], params["cond_jaxpr"], body_nconsts, cond_nconsts, written, place)
    values = _values(trace, args)
    cond_consts = [v for v, p in zip(values, place) if p is None]
    consts = values[cond_nconsts:count]
    outs = while_p.bind(*cond_consts, *chosen(consts, [not w for w in written]), *chosen(consts, written), *values[count:], cond_jaxpr=condition,
                        body_jaxpr=body, cond_nconsts=len(cond_consts), body_nconsts=body_nconsts - len(refs))
    for ref, value in zip(refs, outs):
        store(trace, ref, value)
    return outs[len(refs):]


# --- cond ------------------------------------------------------------------------------------------------------------------------

@memoized
def _returning(first: Jaxpr, rest: tuple[Jaxpr, ...]) -> tuple[tuple[Jaxpr, ...], tuple[int, ...]]:
    """Branches that return the values of the refs that any of them writes, after their results; which inputs these are."""
    parts = [discharged(branch) for branch in (first, *rest)]
    written = tuple(sorted({i for part in parts for i in part.written}))
    count = len(first.outvars)
    branches = []
    for part in parts:
        new = dict(zip(part.written, part.jaxpr.outvars[count:]))
        branches.append(part.jaxpr.replace(outvars=[*part.jaxpr.outvars[:count], *[new.get(i, part.jaxpr.invars[i]) for i in written]]))
    return tuple(branches), written


def _cond(trace, args, params):
    index, *operands = args
    branches, written = _returning(params["branches"][0], params["branches"][1:])
    outs = cond_p.bind(index, *_values(trace, operands), branches=branches)
    count = len(outs) - len(written)
    for i, value in zip(written, outs[count:]):
        store(trace, operands[i], value)
    return outs[:count]


scan_p.facts["discharge"], while_p.facts["discharge"], cond_p.facts["discharge"] = _scan, _while, _cond
