"""The derivatives of scan: forward, and in reverse, which is another scan, the other way.

The body is linearized once. What its linear part reads from the primal part (the residuals) is stacked over the steps, except what
is found elsewhere: a constant, an x, a y, or a value that is the same at every step and is computed before the loop. The
linear part is a scan of its own; its transpose runs from the last step to the first.
"""
from __future__ import annotations

from typing import NamedTuple, Sequence

from mini_jax.core.linear import Accumulator, Zero
from mini_jax.core.program import NO_EFFECTS, Jaxpr, JaxprEqn, Literal, Var, dce, memoized
from mini_jax.core.staging import for_types, settled
from mini_jax.core.state import current_trace, state
from mini_jax.core.trace import typeof
from mini_jax.lax import shapes, totals
from mini_jax.transforms.control.pieces import Unfolded, adapted, chosen, copied, dependent, enlarges, given, joined, unfolded, with_outputs
from mini_jax.transforms.control.running import run
from mini_jax.transforms.control.scan import body_types, in_three, scan_p, types_of
from mini_jax.transforms.jvp import jvp_jaxpr, zero_value
from mini_jax.transforms.linearize import CARRIED, argument_types, linearize_jaxpr, marks, memoized_backward, transpose_jaxpr


# --- forward ------------------------------------------------------------------------------------------------------------------------

class _Derivative(NamedTuple):
    """The body of a scan's jvp, the values of its leading constants, which carries and which outputs have tangents."""
    jaxpr: Jaxpr
    consts: list
    carry: tuple[bool, ...]
    ys: tuple[bool, ...]


@memoized
def _jvp_body(jaxpr: Jaxpr, num_consts: int, num_carry: int, nonzero: tuple[bool, ...]) -> _Derivative:
    """The body (consts, tangents; carry, tangents; x, tangents) -> (carry, tangents; y, tangents): a carry has a tangent where
    it has one before the first step or after any."""
    consts, carry, xs = in_three(nonzero, num_consts, num_carry)
    while True:
        program, new_consts, out = jvp_jaxpr(jaxpr, (*consts, *carry, *xs))
        if joined(carry, out) == carry:
            break
        carry = joined(carry, out)
    count, extra = len(jaxpr.invars), len(new_consts)
    new, primals, tangents = program.invars[:extra], program.invars[extra:extra + count], program.invars[extra + count:]
    of_consts, of_carry, of_xs = in_three(primals, num_consts, num_carry)
    dots_consts, dots_carry, dots_xs = in_three(tangents, sum(consts), sum(carry))
    ys = out[num_carry:]
    outs, dots = program.outvars[:len(jaxpr.outvars)], program.outvars[len(jaxpr.outvars):]
    carry_dots = chosen(given(dots, out[:num_carry], [t.tangent() for t in jaxpr.out_types]), carry)
    body = with_outputs(program, [*outs[:num_carry], *carry_dots, *outs[num_carry:], *dots[sum(out[:num_carry]):]],
                        [*new, *of_consts, *dots_consts, *of_carry, *dots_carry, *of_xs, *dots_xs])
    return _Derivative(body, new_consts, carry, ys)


def _jvp(primals, tangents, *, jaxpr, num_consts, num_carry, **params):
    body, new, carry_live, ys_live = _jvp_body(jaxpr, num_consts, num_carry, tuple([type(t) is not Zero for t in tangents]))
    consts, init, xs = in_three(primals, num_consts, num_carry)
    consts_dot, init_dot, xs_dot = in_three(tangents, num_consts, num_carry)
    consts_dot, xs_dot = _live(consts_dot), _live(xs_dot)
    init_dot = [zero_value(t.aval) if type(t) is Zero else t for t in chosen(init_dot, carry_live)]
    outs = scan_p.bind(*new, *consts, *consts_dot, *init, *init_dot, *xs, *xs_dot, jaxpr=body, num_consts=len(new) + num_consts + len(consts_dot),
                       num_carry=num_carry + len(init_dot), **params)
    count, ys = num_carry + len(init_dot), len(jaxpr.outvars) - num_carry
    carry_dots, y_dots = outs[num_carry:count], outs[count + ys:]
    zeros = [Zero(t.tangent()) for t in types_of(jaxpr=jaxpr, num_carry=num_carry, **params)]
    return ([*outs[:num_carry], *outs[count:count + ys]],
            [*given(carry_dots, carry_live, zeros), *given(y_dots, ys_live, zeros[num_carry:])])


def _live(tangents: Sequence) -> list:
    return [t for t in tangents if type(t) is not Zero]


# --- a body in two parts -----------------------------------------------------------------------------------------------------------

class _Parts(NamedTuple):
    """The body of a scan in two: what does not depend on the linear inputs, and what does, with where that finds its residuals.

    invariant: constants -> the residuals that are the same at every step, computed once, before the loop.
    primal: the body (invariant residuals, constants; carry; x) -> (carry; y, residuals that differ from step to step).
    prologue: (fixed residuals, linear constants) -> the linear values that are the same at every step.
    linear: the body (fixed residuals, those values; linear carry; stacked residuals, linear x) -> linear results.
    fixed, stacked: where each residual is: an invariant one, a constant or an x by its position, or a y of `primal`.
    """
    invariant: Jaxpr
    primal: Jaxpr
    prologue: Jaxpr
    linear: Jaxpr
    fixed: tuple[tuple[str, int], ...]
    stacked: tuple[tuple[str, int], ...]


def _in_parts(primal: Jaxpr, num_consts: int, num_carry: int, linear: Unfolded, results: Sequence, linear_consts: int, linear_carry: int) -> _Parts:
    """primal: a body, with so many constants and carries; linear: what reads its variables, with inputs likewise; results: of that,
    atoms or types (of zeros)."""
    const_vars, _, x_vars = in_three(primal.invars, num_consts, num_carry)
    at_hand = [*const_vars, *x_vars, *[atom for atom in primal.outvars[num_carry:] if type(atom) is Var]]
    linear = _recomputing(linear, primal, at_hand)
    same = set(const_vars)                            # what depends on constants alone
    for eqn in primal.eqns:
        if not eqn.effects and all([type(v) is Literal or v in same for v in eqn.invars]):
            same.update(eqn.outvars)
    hoisted_eqns = [eqn for eqn in primal.eqns if not same.isdisjoint(eqn.outvars) and not set(eqn.outvars).isdisjoint(linear.residuals)]
    hoisted = [v for eqn in hoisted_eqns for v in eqn.outvars]
    invariant = dce(Jaxpr((), const_vars, [eqn for eqn in primal.eqns if not same.isdisjoint(eqn.outvars)], hoisted, info=primal.info))

    fixed_at = {v: ("invariant", i) for i, v in enumerate(hoisted)} | {v: ("const", i) for i, v in enumerate(const_vars)}
    stacked_at = {v: ("x", i) for i, v in enumerate(x_vars)}
    outs = list(primal.outvars)
    for i, atom in enumerate(outs[num_carry:]):
        if type(atom) is Var:
            stacked_at.setdefault(atom, ("y", i))
    fixed, stacked = [v for v in linear.residuals if v in fixed_at], [v for v in linear.residuals if v not in fixed_at]
    for v in stacked:
        if v not in stacked_at:
            stacked_at[v] = ("y", len(outs) - num_carry)
            outs.append(v)
    skipped = set(map(id, hoisted_eqns))
    body = dce(Jaxpr((), [*hoisted, *primal.invars], [eqn for eqn in primal.eqns if id(eqn) not in skipped], outs, primal.effects, primal.info))

    of_consts, of_carry, of_xs = in_three(linear.tangents, linear_consts, linear_carry)
    once, each = _prologue(linear.eqns, fixed, of_consts, results)
    prologue = dce(Jaxpr((), [*fixed, *of_consts], linear.eqns, once, info=primal.info))
    effects = NO_EFFECTS.union(*[eqn.effects for eqn in each])
    linear_body = with_outputs(Jaxpr((), [], each, [], effects, primal.info), results, [*fixed, *once, *of_carry, *stacked, *of_xs])
    return _Parts(invariant, body, prologue, linear_body, tuple([fixed_at[v] for v in fixed]), tuple([stacked_at[v] for v in stacked]))


_CHEAP = frozenset(["add", "sub", "mul", "neg", "max", "min", "abs", "sign", "select_n", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not",
                    "integer_pow", "convert_element_type", "broadcast_in_dim", "reshape", "squeeze", "copy"])
_CHAIN = 6                                            # at most so many operations make a residual again


def _recomputing(linear: Unfolded, primal: Jaxpr, at_hand: Sequence[Var]) -> Unfolded:
    """The linear part without residuals that a few cheap operations make again from others and from what is at hand without being saved."""
    made = {v: (position, eqn) for position, eqn in enumerate(primal.eqns) for v in eqn.outvars}
    kept, again = dict.fromkeys(linear.residuals), {}
    free = set(at_hand)
    for v in sorted([v for v in kept if v in made and v not in free], key=lambda v: made[v][0], reverse=True):
        chain: dict[int, JaxprEqn] = {}
        pending = [v]
        while pending and len(chain) <= _CHAIN:
            u = pending.pop()
            position, eqn = made.get(u, (None, None))
            if u is not v and (u in free or u in kept):
                continue
            if eqn is None or eqn.primitive.name not in _CHEAP:
                break
            chain[position] = eqn
            pending += [w for w in eqn.invars if type(w) is Var]
        else:
            if len(chain) <= _CHAIN:
                del kept[v]
                again |= chain
    if not again:
        return linear
    eqns = [again[position] for position in sorted(again)]
    remade = {v for eqn in eqns for v in eqn.outvars}
    read = {v: None for v in kept if v not in remade} | {v: None for eqn in eqns for v in eqn.invars if type(v) is Var and v not in remade}
    return linear._replace(eqns=[*eqns, *linear.eqns], residuals=list(read))


def _prologue(eqns: Sequence[JaxprEqn], fixed: Sequence[Var], tangents: Sequence[Var], results: Sequence) -> tuple[list[Var], list[JaxprEqn]]:
    """Of a linear program, the variables to compute once, before the loop, and the equations that are left for each step.

    What depends on fixed residuals and tangents of constants alone is the same at every step; its cotangents are then summed over the
    steps first, and transposed once. What only writes its operand larger (a broadcast) stays in the loop, which is thus given the operand.
    """
    same, dependent, hoisted = {*fixed, *tangents}, set(tangents), []
    for eqn in eqns:
        if not eqn.effects and all([type(v) is Literal or v in same for v in eqn.invars]):
            same.update(eqn.outvars)
            if not dependent.isdisjoint([v for v in eqn.invars if type(v) is Var]):
                dependent.update(eqn.outvars)
                hoisted.append(eqn)
    while True:
        skipped = set(map(id, hoisted))
        each = [eqn for eqn in eqns if id(eqn) not in skipped]
        read = {v for eqn in each for v in eqn.invars if type(v) is Var} | {v for v in results if type(v) is Var}
        kept = [eqn for eqn in hoisted if not (enlarges(eqn) and eqn.outvars[0] in read)]
        if len(kept) == len(hoisted):
            made = {v: None for eqn in hoisted for v in eqn.outvars if v in read}
            return [v for v in [*tangents, *made] if v in read], each
        hoisted = kept


def _run_primal(parts: _Parts, consts: Sequence, init: Sequence, xs: Sequence, params: dict) -> tuple[list, list, list]:
    """Run the primal scan: its results, the fixed residuals, the stacked ones."""
    invariants = run(parts.invariant, consts, "scan_invariants") if parts.invariant.outvars else []
    outs = scan_p.bind(*invariants, *consts, *init, *xs, jaxpr=parts.primal, num_consts=len(invariants) + len(consts), num_carry=len(init),
                       **params) if parts.primal.outvars or parts.primal.effects else []
    return (outs, [consts[i] if kind == "const" else invariants[i] for kind, i in parts.fixed],
            [xs[i] if kind == "x" else outs[len(init) + i] for kind, i in parts.stacked])


def _run_linear(parts: _Parts, fixed: Sequence, stacked: Sequence, consts: Sequence, init: Sequence, xs: Sequence, params: dict) -> list:
    """Run the linear scan."""
    if not parts.linear.outvars:
        return []
    consts = run(parts.prologue, [*fixed, *consts], "scan_prologue") if parts.prologue.outvars else []
    return scan_p.bind(*fixed, *consts, *init, *stacked, *xs, jaxpr=parts.linear, num_consts=len(fixed) + len(consts), num_carry=len(init),
                       **params)


# --- linearization -----------------------------------------------------------------------------------------------------------------

class _Linearization(NamedTuple):
    """The parts, the values of leading constants, and which carries and which ys have tangents."""
    parts: _Parts
    consts: list
    carry: tuple[bool, ...]
    ys: tuple[bool, ...]


@memoized
def _linearization(jaxpr: Jaxpr, num_consts: int, num_carry: int, nonzero: tuple[bool, ...]) -> _Linearization:
    consts, carry, xs = in_three(nonzero, num_consts, num_carry)
    while True:
        found = linearize_jaxpr(jaxpr, (*consts, *carry, *xs))
        if joined(carry, found.out_nonzero) == carry:
            break
        carry = joined(carry, found.out_nonzero)
    linear, out = unfolded(found), found.out_nonzero
    carry_dots = chosen(given(linear.outvars, out[:num_carry], [t.tangent() for t in jaxpr.out_types]), carry)
    primal = found.primal.replace(outvars=found.primal.outvars[:len(jaxpr.outvars)])
    parts = _in_parts(primal, len(found.consts) + num_consts, num_carry, linear, [*carry_dots, *linear.outvars[sum(out[:num_carry]):]],
                      sum(consts), sum(carry))
    return _Linearization(parts, found.consts, carry, out[num_carry:])


def _linearize(primals, nonzero, *, jaxpr, num_consts, num_carry, **params):
    parts, new, carry, ys = _linearization(jaxpr, num_consts, num_carry, tuple(nonzero))
    consts, init, xs = in_three(primals, num_consts, num_carry)
    outs, fixed, stacked = _run_primal(parts, [*new, *consts], init, xs, params)

    def linear(*tangents):
        consts_dot, init_dot, xs_dot = in_three(given(tangents, nonzero, [None] * len(primals)), num_consts, num_carry)
        init_dot = [zero_value(typeof(v).tangent()) if t is None else t for v, t, live in zip(init, init_dot, carry) if live]
        return _run_linear(parts, fixed, stacked, [t for t in consts_dot if t is not None], init_dot, [t for t in xs_dot if t is not None], params)
    return outs[:len(jaxpr.outvars)], (*carry, *ys), linear


class _Partition(NamedTuple):
    """The parts of a body that is linear in some of its inputs, and which carries and ys depend on those."""
    parts: _Parts
    carry: tuple[bool, ...]
    ys: tuple[bool, ...]


@memoized
def _partition(jaxpr: Jaxpr, num_consts: int, num_carry: int, linear: tuple[bool, ...]) -> _Partition:
    consts, carry, xs = in_three(linear, num_consts, num_carry)
    while True:
        flags = (*consts, *carry, *xs)
        eqns, out = dependent(jaxpr, flags)
        if joined(carry, out) == carry:
            break
        carry = joined(carry, out)
    ys = out[num_carry:]
    results = [*chosen(jaxpr.outvars, carry), *chosen(jaxpr.outvars[num_carry:], ys)]
    made = {v for eqn in eqns for v in eqn.outvars} | set(chosen(jaxpr.invars, flags))
    read = {v: None for atoms in (*[eqn.invars for eqn in eqns], results) for v in atoms if type(v) is Var and v not in made}
    known = lambda values, flags: chosen(values, [not f for f in flags])
    skipped = set(map(id, eqns))
    primal = Jaxpr((), known(jaxpr.invars, flags), [eqn for eqn in jaxpr.eqns if id(eqn) not in skipped],
                   [*known(jaxpr.outvars, carry), *known(jaxpr.outvars[num_carry:], ys)],
                   NO_EFFECTS.union(*[eqn.effects for eqn in jaxpr.eqns if id(eqn) not in skipped]), jaxpr.info)
    unknown = Unfolded(eqns, results, chosen(jaxpr.invars, flags), list(read))
    return _Partition(_in_parts(primal, len(known(consts, consts)), len(known(carry, carry)), unknown, results, sum(consts), sum(carry)), carry, ys)


def _split(trace, args, linear, params):
    """How a linear program records a scan of which some carries or ys don't depend on its inputs (a counter, or primal values beside their
    tangents): these are computed by a scan of their own, outside of it."""
    jaxpr, num_consts, num_carry = params["jaxpr"], params["num_consts"], params["num_carry"]
    parts, carry, ys = _partition(jaxpr, num_consts, num_carry, tuple(linear))
    if all(carry) and all(ys):
        return trace.record(scan_p, args, params)
    rest = {name: params[name] for name in ("length", "reverse", "unroll")}
    flags = in_three([*linear[:num_consts], *carry, *linear[num_consts + num_carry:]], num_consts, num_carry)
    known, unknown = [[[a for a, f in zip(part, flag) if f is wanted] for part, flag in zip(in_three(args, num_consts, num_carry), flags)]
                      for wanted in (False, True)]
    with current_trace(trace.parent):
        outs, fixed, stacked = _run_primal(parts, *known, rest)
    with current_trace(trace):
        linear_outs = _run_linear(parts, fixed, stacked, *unknown, rest)
    outs, linear_outs = iter(outs), iter(linear_outs)
    return [next(linear_outs) if f else next(outs) for f in (*carry, *ys)]


# --- transposition -----------------------------------------------------------------------------------------------------------------

class _Backward(NamedTuple):
    """The body of a scan's transpose, the values of its leading constants, and which carries, constants and xs get a cotangent.
    parts: for each carry the axes along which its cotangent is in parts, after a step and so before (lax/totals.py)."""
    jaxpr: Jaxpr
    consts: list
    carry: tuple[bool, ...]
    of_consts: tuple[bool, ...]
    of_xs: tuple[bool, ...]
    parts: tuple[frozenset, ...]


@memoized_backward
def _backward_body(jaxpr: Jaxpr, num_consts: int, num_carry: int, kinds: tuple, ct_live: tuple[bool, ...]) -> _Backward:
    """The body (values; sums of cotangents of constants, cotangent carry; stacked values, cotangents of y) -> (sums, carry; cotangents of x).

    kinds: for each input False (a value), True (linear) or None (linear, its cotangent not wanted). ct_live: the marks of the cotangents.
    """
    carry, ys = tuple(map(bool, ct_live[:num_carry])), ct_live[num_carry:]
    parts = tuple([mark if type(mark) is frozenset else frozenset() for mark in ct_live[:num_carry]])
    of_consts, _, of_xs = in_three(kinds, num_consts, num_carry)
    linear_consts, linear_xs = sum([k is not False for k in of_consts]), sum([k is not False for k in of_xs])
    while True:
        back = transpose_jaxpr(jaxpr, (*of_consts, *[True] * num_carry, *of_xs), (*[axes or live for axes, live in zip(parts, carry)], *ys))
        consts_live, carry_live, xs_live = in_three(back.nonzero, linear_consts, num_carry)
        grown = joined(carry, carry_live), tuple([axes | more for axes, more in zip(parts, back.parts[linear_consts:])])
        if grown == (carry, parts):
            break
        carry, parts = grown
    part = _read_in_part(jaxpr, num_consts, of_consts) if state.reduced is None else [False] * num_consts
    if any(part):
        back = transpose_jaxpr(jaxpr, (*[CARRIED if p else k for p, k in zip(part, of_consts)], *[True] * num_carry, *of_xs), (*carry, *ys))
        consts_live = back.nonzero[:linear_consts]
    if any(parts):
        every = (*[frozenset()] * sum(consts_live), *chosen(parts, carry_live), *[frozenset()] * sum(xs_live))
        back = back._replace(jaxpr=adapted(back.jaxpr, every, totals.as_part))
    in_place = chosen(chosen(part, [k is not False for k in of_consts]), consts_live)
    extra, values = len(back.consts), len(of_consts) - linear_consts
    x_values = len(of_xs) - linear_xs
    const_vars, x_vars, ct_vars = in_three(back.jaxpr.invars, extra + values, x_values)
    carry_cts, y_cts, given_sums = in_three(ct_vars, sum(carry), sum(map(bool, ys)))
    outs_consts, outs_carry, outs_xs = in_three(back.jaxpr.outvars, sum(consts_live), sum(carry_live))
    given_sums = iter(given_sums)
    sums = [next(given_sums) if p else Var(atom.aval) for p, atom in zip(in_place, outs_consts)]
    added = [atom if p else Var(atom.aval) for p, atom in zip(in_place, outs_consts)]
    eqns = [JaxprEqn(shapes.add_any_p, [total, ct], [var], {}, NO_EFFECTS, None)
            for p, total, ct, var in zip(in_place, sums, outs_consts, added) if not p]
    carry_types = [v.aval.tangent() for v in jaxpr.invars[num_consts:num_consts + num_carry]]
    body = with_outputs(back.jaxpr.replace(eqns=[*back.jaxpr.eqns, *eqns]),
                        [*added, *chosen(given(outs_carry, carry_live, carry_types), carry), *outs_xs],
                        [*const_vars, *sums, *carry_cts, *x_vars, *y_cts])
    return _Backward(body, back.consts, carry, consts_live, xs_live, parts)


def _for_arguments(jaxpr: Jaxpr, num_consts: int, num_carry: int, types: Sequence) -> Jaxpr:
    """The body for arguments of these types, what it carries varying after a step as it does before."""
    at = slice(num_consts, num_consts + num_carry)
    types = list(body_types(types, num_consts, num_carry))
    outs = settled(jaxpr, types, at)
    types[at] = [t.update(varying=out.varying) for t, out in zip(types[at], outs)]
    return adapted(for_types(jaxpr, types), tuple([out.varying for out in outs]), copied)


def _read_in_part(jaxpr: Jaxpr, num_consts: int, kinds: tuple) -> list[bool]:
    """For each constant whether it is linear and a step reads small parts of it: their cotangents are then added in place to the sum that
    the loop carries, where the sum of whole ones would cost its size at every step."""
    small = {eqn.invars[0] for eqn in jaxpr.eqns if eqn.primitive.name in ("slice", "dynamic_slice", "gather")
             and 8 * eqn.outvars[0].aval.size <= eqn.invars[0].aval.size}
    return [kind is True and v in small for v, kind in zip(jaxpr.invars[:num_consts], kinds)]


def _transpose(cts, *args, jaxpr, num_consts, num_carry, reverse, **params):
    if state.reduced is not None:
        jaxpr = _for_arguments(jaxpr, num_consts, num_carry, argument_types(args))
    kinds = tuple([(True if a.wanted else None) if isinstance(a, Accumulator) else False for a in args])
    back = _backward_body(jaxpr, num_consts, num_carry, kinds, marks(cts, jaxpr.out_types))
    consts, init, xs = in_three(args, num_consts, num_carry)
    linear_consts, linear_xs = [[a for a in part if isinstance(a, Accumulator)] for part in (consts, xs)]
    sums = [zero_value(a.aval.tangent()) for a in chosen(linear_consts, back.of_consts)]
    carry = [zero_value(ct.aval) if type(ct) is Zero else totals.as_part(ct, axes) if axes else ct
             for ct, axes in zip(chosen(cts, back.carry), chosen(back.parts, back.carry))]
    values = [*back.consts, *[a for a in consts if not isinstance(a, Accumulator)]]
    outs = scan_p.bind(*values, *sums, *carry, *[a for a in xs if not isinstance(a, Accumulator)], *_live(cts[num_carry:]), jaxpr=back.jaxpr,
                       num_consts=len(values), num_carry=len(sums) + len(carry), reverse=not reverse, **params)
    receivers = [*chosen(linear_consts, back.of_consts), *chosen(init, back.carry), *chosen(linear_xs, back.of_xs)]
    for receiver, ct in zip(receivers, outs):
        if isinstance(receiver, Accumulator):
            receiver.add(ct)


scan_p.jvp, scan_p.linearize, scan_p.transpose = _jvp, _linearize, _transpose
scan_p.facts["split"] = _split
