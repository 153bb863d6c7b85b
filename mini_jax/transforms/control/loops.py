"""while_loop, which goes on as long as a condition holds, and fori_loop, which counts.

    while_p   constants of the condition, constants of the body, carry -> carry

It has derivatives in forward mode only, since how much there is to save for a backward pass is not known before it has run;
fori_loop over a number of steps that is known while tracing is a scan, which has both.
"""
from __future__ import annotations

from typing import Callable, NamedTuple, Sequence

import numpy as np

from lowering.emit import lowers
from mini_jax.core import dtypes
from mini_jax.core.effects import RefEffect, of_call
from mini_jax.core.linear import Zero
from mini_jax.core.primitive import Primitive
from mini_jax.core.program import Jaxpr, ProgramInfo, dce, memoized
from mini_jax.core.refs import described
from mini_jax.core.staging import eval_jaxpr, for_types, settled, stage
from mini_jax.core.state import current_trace, state
from mini_jax.core.trace import Tracer, typeof
from mini_jax.core.tracebacks import boundary
from mini_jax.core.types import ShapedArray, array_type
from mini_jax.lax import elementwise, reductions, selection, shapes
from mini_jax.runtime import dispatch
from mini_jax.transforms.arguments import keyable
from mini_jax.transforms.control.bodies import check_callable, flat_result, flatten, record, record_carrying
from mini_jax.transforms.control.masks import maskable, where
from mini_jax.transforms.control.pieces import chosen, dependent, given, joined, widened, with_outputs
from mini_jax.transforms.control.running import run, run_compiled
from mini_jax.transforms.control.scan import scan_flat, turns
from mini_jax.transforms.jvp import LinearTrace, jvp_jaxpr, zero_value
from mini_jax.transforms.vmap import batch_jaxpr, move_batch

__all__ = ["while_loop", "fori_loop", "while_p"]

while_p = Primitive("while", multiple_results=True, memoize=False, facts={"family": "higher_order"})


# --- while_loop ---------------------------------------------------------------------------------------------------------------

@boundary
def while_loop(cond_fun: Callable, body_fun: Callable, init_val):
    """body_fun applied to init_val as long as cond_fun holds, as one operation that is compiled once.

        val = init_val
        while cond_fun(val):
            val = body_fun(val)
        return val

    init_val: a pytree of arrays. cond_fun: val -> a boolean scalar. body_fun: val -> val, of the same structure, shapes and dtypes
    (a Python scalar in init_val takes the dtype that the body gives it).
    Differentiable in forward mode; in reverse mode use scan, or fori_loop over a known number of steps. Under vmap it goes on until
    it has ended for every example. Raises TypeError where the carry changes type or the condition is no boolean scalar.
    """
    check_callable(cond_fun, "while_loop: cond_fun")
    check_callable(body_fun, "while_loop: body_fun")
    if dispatch.disabled():
        while _decided(cond_fun(init_val)):
            init_val = body_fun(init_val)
        return init_val
    body_fun, cond_fun = keyable(body_fun), keyable(cond_fun)
    leaves, tree = flatten(init_val)
    arguments = flatten((init_val,))[1]
    body, init = record_carrying(body_fun, "while_loop", _apply_body, arguments, leaves, (), tree)
    condition = record(cond_fun, "while_loop", _apply_condition, arguments, tuple(body.jaxpr.in_types[len(body.consts):]))
    for effect in condition.jaxpr.effects:
        if type(effect) is RefEffect and effect.kind != "read":
            ref = condition.consts[condition.jaxpr.invars.index(effect.ref)]
            raise ValueError(f"while_loop: the condition writes {described(ref)}: it may be asked any number of times, so it must only read. "
                             "Write in the body")
    return tree.unflatten(while_p.bind(*condition.consts, *body.consts, *init, cond_jaxpr=condition.jaxpr, body_jaxpr=body.jaxpr,
                                       cond_nconsts=len(condition.consts), body_nconsts=len(body.consts)))


def _decided(pred) -> bool:
    if not isinstance(pred, Tracer) and np.shape(pred) != ():
        raise TypeError(f"while_loop: cond_fun must return a boolean scalar, got {typeof(pred)}")
    return bool(pred)


def _apply_condition(cond_fun: Callable, info: ProgramInfo, val):
    pred = cond_fun(val)
    leaves, tree = flat_result(pred, info)
    if tree != _leaf:
        raise TypeError(f"while_loop: {info.name} must return a boolean scalar, got a result of structure {tree}")
    aval = typeof(pred)
    if aval.shape or not dtypes.is_bool(aval.dtype):
        raise TypeError(f"while_loop: {info.name} must return a boolean scalar, got {aval}" + (
            "; reduce it with .all() or .any()" if aval.shape else "; compare it, as in x != 0"))
    return leaves, tree


_leaf = flatten(0)[1]


def _apply_body(body_fun: Callable, info: ProgramInfo, val):
    leaves, tree = flat_result(body_fun(val), info)
    return leaves, (tree,)


# --- fori_loop -----------------------------------------------------------------------------------------------------------------

@boundary
def fori_loop(lower, upper, body_fun: Callable, init_val, *, unroll: int | bool | None = None):
    """body_fun(i, val) for i from lower to upper - 1, as one operation that is compiled once.

        val = init_val
        for i in range(lower, upper):
            val = body_fun(i, val)
        return val

    lower, upper: integers of one dtype. Where both are known while tracing, the loop is a scan, and differentiable in both modes;
    otherwise it is a while_loop, differentiable in forward mode. init_val: a pytree of arrays, whose types body_fun keeps.
    unroll: how many steps are written out in one turn (True: all); only for loops of a known number of steps.
    Raises TypeError for bounds that are no integers or of two dtypes, and where the carry changes type.
    """
    check_callable(body_fun, "fori_loop: body_fun")
    lower_type, upper_type = _bound(lower, "lower"), _bound(upper, "upper")
    dtype = lower_type.dtype
    if upper_type.dtype != dtype:
        if lower_type.weak_type:
            dtype = upper_type.dtype
        elif not upper_type.weak_type:
            raise TypeError(f"fori_loop: lower and upper must have one dtype, got {lower_type} and {upper_type}: convert one of them")
    if not isinstance(lower, Tracer) and not isinstance(upper, Tracer):
        return _counted(int(lower), int(upper), body_fun, init_val, 1 if unroll is None else unroll)
    if unroll not in (None, False, 1):
        raise ValueError("fori_loop: unroll needs a number of steps that is known while tracing, and here "
                         f"{'lower' if isinstance(lower, Tracer) else 'upper'} is a traced value")
    lower, upper = _converted(lower, dtype), _converted(upper, dtype)
    leaves, tree = flatten(init_val)
    body, init = record_carrying(keyable(body_fun), "fori_loop", _apply_counted, flatten((0, init_val))[1], [lower, *leaves], (), tree, 1)
    condition = _below(body.jaxpr, len(body.consts), typeof(upper))
    return tree.unflatten(while_p.bind(upper, *body.consts, *init, cond_jaxpr=condition, body_jaxpr=body.jaxpr, cond_nconsts=1,
                                       body_nconsts=len(body.consts))[1:])


def _counted(lower: int, upper: int, body_fun: Callable, init_val, unroll):
    """The loop over a known number of steps: a scan that carries the counter."""
    length = max(upper - lower, 0)
    if dispatch.disabled():
        for i in range(lower, upper):
            init_val = body_fun(i, init_val)
        return init_val
    leaves, tree = flatten(init_val)
    outs, _ = scan_flat(body_fun, "fori_loop", _apply_counted, flatten((0, init_val))[1], [lower, *leaves], tree, (), length, False,
                        turns(unroll, length), 1)
    return tree.unflatten(outs[1:])


def _apply_counted(body_fun: Callable, info: ProgramInfo, i, val):
    leaves, tree = flat_result(body_fun(i, val), info)
    return [elementwise.add(i, 1), *leaves], (tree, None)


@memoized
def _below(body: Jaxpr, num_consts: int, upper) -> Jaxpr:
    """The condition of a counting loop: (upper, i, carry) -> i < upper."""
    return stage(lambda upper, i, *_: [elementwise.lt(i, upper)], [upper, *body.in_types[num_consts:]], body.info)[0]


def _bound(value, name: str):
    try:
        aval = typeof(value)
    except TypeError:
        raise TypeError(f"fori_loop: {name} is an integer, got {value!r:.200} of type {type(value).__name__}") from None
    if aval.shape or not dtypes.is_integer(aval.dtype):
        raise TypeError(f"fori_loop: {name} is an integer scalar, got {aval}")
    return aval


def _converted(bound, dtype):
    if typeof(bound).dtype == dtype:
        return bound
    return dtype.type(bound) if isinstance(bound, int) else shapes.convert_element_type(bound, dtype)


# --- rules ------------------------------------------------------------------------------------------------------------------------

def _split(values: Sequence, cond_nconsts: int, body_nconsts: int) -> tuple:
    """Values that go with the inputs, in three: of the condition's constants, the body's constants and the carry."""
    count = cond_nconsts + body_nconsts
    return values[:cond_nconsts], values[cond_nconsts:count], values[count:]


class _Derivative(NamedTuple):
    """The body of a while's jvp, the values of its leading constants, and which carries have tangents."""
    jaxpr: Jaxpr
    consts: list
    carry: tuple[bool, ...]


@memoized
def _jvp_body(jaxpr: Jaxpr, num_consts: int, nonzero: tuple[bool, ...]) -> _Derivative:
    """The body (consts, tangents; carry, tangents) -> (carry, tangents)."""
    consts, carry = nonzero[:num_consts], nonzero[num_consts:]
    while True:
        program, new_consts, out = jvp_jaxpr(jaxpr, (*consts, *carry))
        if joined(carry, out) == carry:
            break
        carry = joined(carry, out)
    count, extra, outs = len(jaxpr.invars), len(new_consts), len(carry)
    new, primals, tangents = program.invars[:extra], program.invars[extra:extra + count], program.invars[extra + count:]
    dots = chosen(given(program.outvars[outs:], out, [t.tangent() for t in jaxpr.out_types]), carry)
    body = with_outputs(program, [*program.outvars[:outs], *dots],
                        [*new, *primals[:num_consts], *tangents[:sum(consts)], *primals[num_consts:], *tangents[sum(consts):]])
    return _Derivative(body, new_consts, carry)


def _derivative(primals, dots: Sequence, body: _Derivative, cond_jaxpr: Jaxpr, cond_nconsts: int, body_nconsts: int) -> list:
    """Run the loop with tangents (entries of dots are None where there are none): the carry, then the tangents that it has."""
    cond_consts, consts, init = _split(primals, cond_nconsts, body_nconsts)
    _, consts_dot, init_dot = _split(dots, cond_nconsts, body_nconsts)
    consts_dot = [t for t in consts_dot if t is not None]
    init_dot = [zero_value(typeof(v).tangent()) if t is None else t for v, t, live in zip(init, init_dot, body.carry) if live]
    types = cond_jaxpr.in_types
    condition = widened(cond_jaxpr, (*types, *[t.tangent() for t in chosen(types[cond_nconsts:], body.carry)]), tuple(range(len(types))))
    consts = [*body.consts, *consts, *consts_dot]
    args = [*cond_consts, *consts, *init, *init_dot]
    linear = isinstance(state.trace, LinearTrace) and any([isinstance(x, Tracer) and x._trace is state.trace for x in args])
    bind = while_p.bind if not linear else lambda *args, **params: state.trace.record(while_p, args, params)
    return bind(*args, cond_jaxpr=condition, body_jaxpr=body.jaxpr, cond_nconsts=cond_nconsts, body_nconsts=len(consts))


def _jvp(primals, tangents, *, cond_jaxpr, body_jaxpr, cond_nconsts, body_nconsts):
    dots = [None if type(t) is Zero else t for t in tangents]
    body = _jvp_body(body_jaxpr, body_nconsts, tuple([t is not None for t in dots[cond_nconsts:]]))
    outs = _derivative(primals, dots, body, cond_jaxpr, cond_nconsts, body_nconsts)
    count = len(body.carry)
    return outs[:count], given(outs[count:], body.carry, [Zero(t.tangent()) for t in body_jaxpr.out_types])


def _linearize(primals, nonzero, **params):
    """The loop, and as its linear part the loop again with tangents: there is no saving what a loop of unknown length computes."""
    cond_nconsts, body_nconsts = params["cond_nconsts"], params["body_nconsts"]
    body = _jvp_body(params["body_jaxpr"], body_nconsts, tuple(nonzero[cond_nconsts:]))
    outs = while_p.bind(*primals, **params)

    def linear(*tangents):
        if not any(body.carry):
            return []
        return _derivative(primals, given(tangents, nonzero, [None] * len(primals)), body, params["cond_jaxpr"], cond_nconsts,
                           body_nconsts)[len(outs):]
    return outs, body.carry, linear


def _transpose(cts, *args, **params):
    raise ValueError("Reverse-mode differentiation does not work for lax.while_loop or lax.fori_loop with dynamic start/stop values. "
                     "Try using lax.scan, or using fori_loop with static start/stop.")


@memoized
def _known_loop(body: Jaxpr, condition: Jaxpr, cond_nconsts: int, body_nconsts: int, linear: tuple[bool, ...]):
    """The loop of the carries that don't depend on the inputs marked linear: (condition, body, which constants, which carries), or None
    where the condition depends on them or nothing is left."""
    cond_consts, consts, carry = _split(linear, cond_nconsts, body_nconsts)
    while True:
        _, out = dependent(body, (*consts, *carry))
        if joined(carry, out) == carry:
            break
        carry = joined(carry, out)
    if all(carry) or dependent(condition, (*cond_consts, *carry))[1][0]:
        return None
    known = [not f for f in (*consts, *carry)]
    body = dce(body.replace(invars=chosen(body.invars, known), outvars=chosen(body.outvars, known[body_nconsts:]),
                            eqns=[eqn for eqn in body.eqns if eqn not in set(dependent(body, (*consts, *carry))[0])]))
    kept = [True] * cond_nconsts + known[body_nconsts:]
    return condition.replace(invars=chosen(condition.invars, kept)), body, tuple(known[:body_nconsts]), tuple(known[body_nconsts:])


def _split_known(trace, args, linear, params):
    """How a linear program records a while loop: carries that don't depend on its inputs come from a loop of their own, outside of it."""
    cond_nconsts, body_nconsts = params["cond_nconsts"], params["body_nconsts"]
    found = _known_loop(params["body_jaxpr"], params["cond_jaxpr"], cond_nconsts, body_nconsts, tuple(linear))
    outs = trace.record(while_p, args, params)
    if found is None:
        return outs
    condition, body, consts, carry = found
    cond_consts, body_consts, init = _split(args, cond_nconsts, body_nconsts)
    with current_trace(trace.parent):
        known = iter(while_p.bind(*cond_consts, *chosen(body_consts, consts), *chosen(init, carry), cond_jaxpr=condition, body_jaxpr=body,
                                  cond_nconsts=cond_nconsts, body_nconsts=sum(consts)))
    return [next(known) if k else out for k, out in zip(carry, outs)]


class _BatchedLoop(NamedTuple):
    """The batched programs, the values of their leading constants, and which carries are batched (at dimension 0).

    start: None where all examples end together. Where each ends on its own, the program (constants, carry) -> who goes on; the loop then
    carries its result first."""
    condition: Jaxpr
    cond_consts: list
    body: Jaxpr
    body_consts: list
    carry: tuple
    start: Jaxpr | None


@memoized
def _batched_loop(body_jaxpr: Jaxpr, cond_jaxpr: Jaxpr, axis, cond_dims: tuple, body_dims: tuple, carry: tuple) -> _BatchedLoop:
    while True:
        condition = batch_jaxpr(cond_jaxpr, axis, (*cond_dims, *carry))
        alone = condition.out_dims[0] is not None
        if alone:                                    # each example ends on its own, so all that it carries differs
            carry = (0,) * len(carry)
        body = batch_jaxpr(body_jaxpr, axis, (*body_dims, *carry), carry)
        grown = tuple([None if d is None else 0 for d in body.out_dims])
        if grown == carry:
            break
        carry = grown
    if not alone:
        return _BatchedLoop(condition.jaxpr, condition.consts, body.jaxpr, body.consts, carry, None)
    if not maskable(cond_jaxpr.effects | body_jaxpr.effects):
        raise NotImplementedError("vmap of a while_loop that ends at a different step for each example takes all steps for all of them, so its "
                                  "functions must not write to refs")
    start = batch_jaxpr(cond_jaxpr, axis, (*cond_dims, *carry), (0,))
    condition, mask_condition = _masked(cond_jaxpr, axis, (*cond_dims, *carry), (0,))
    body, mask_body = _masked(body_jaxpr, axis, (*body_dims, *carry), carry)
    going, stepped = condition.jaxpr, body.jaxpr
    cond_count, body_count = len(condition.consts) + len(cond_dims), len(body.consts) + len(body_dims)

    def step(*args):
        """One step of those that go on; who goes on after it."""
        cond_consts, body_consts, (live, *now) = _split(args, cond_count, body_count)
        after = eval_jaxpr(stepped, (), *body_consts[:len(body.consts)], *[live] * mask_body, *body_consts[len(body.consts):], *now)
        after = [selection.select(shapes.broadcast_in_dim(live, typeof(a).shape, (0,)), a, b) for a, b in zip(after, now)]
        pred, = eval_jaxpr(going, (), *cond_consts[:len(condition.consts)], *[live] * mask_condition, *cond_consts[len(condition.consts):], *after)
        return [elementwise.bitwise_and(live, pred) if mask_condition else pred, *after]
    carried = [array_type((axis.size,), dtypes.bool_), *stepped.in_types[body_count + mask_body:]]
    new_body, _ = stage(step, [*_without(going, len(condition.consts), mask_condition)[:cond_count],
                               *_without(stepped, len(body.consts), mask_body)[:body_count], *carried], body_jaxpr.info)
    any_left, _ = stage(lambda live, *_: [reductions.reduce_or(live, (0,))], carried, cond_jaxpr.info)
    assert len(start.consts) == len(condition.consts), "a mask brings no constants"
    return _BatchedLoop(any_left, condition.consts, new_body, body.consts, carry, start.jaxpr)


def _masked(jaxpr: Jaxpr, axis, dims: tuple, out_dims: tuple) -> tuple:
    """The batched program, where it has effects with a mask as the first of its inputs; and whether it has one."""
    if not jaxpr.effects:
        return batch_jaxpr(jaxpr, axis, dims, out_dims), False
    return batch_jaxpr(where(jaxpr), axis, (0, *dims), out_dims), True


def _without(jaxpr: Jaxpr, place: int, masked: bool) -> list:
    """The types of the inputs, but for the mask."""
    types = jaxpr.in_types
    return [*types[:place], *types[place + masked:]]


def _batch(axis, args, dims, *, cond_jaxpr, body_jaxpr, cond_nconsts, body_nconsts):
    cond_consts, body_consts, init = _split(args, cond_nconsts, body_nconsts)
    cond_dims, body_dims, init_dims = _split(tuple(dims), cond_nconsts, body_nconsts)
    loop = _batched_loop(body_jaxpr, cond_jaxpr, axis, cond_dims, body_dims, tuple([None if d is None else 0 for d in init_dims]))
    init = [v if want is None else move_batch(v, axis.size, have, 0) for v, have, want in zip(init, init_dims, loop.carry)]
    cond_consts, body_consts = [*loop.cond_consts, *cond_consts], [*loop.body_consts, *body_consts]
    if loop.start is None:
        outs = while_p.bind(*cond_consts, *body_consts, *init, cond_jaxpr=loop.condition, body_jaxpr=loop.body, cond_nconsts=len(cond_consts),
                            body_nconsts=len(body_consts))
        return outs, list(loop.carry)
    live = run(loop.start, [*cond_consts, *init], "condition")
    consts = [*cond_consts, *body_consts]
    outs = while_p.bind(*consts, *live, *init, cond_jaxpr=loop.condition, body_jaxpr=loop.body, cond_nconsts=0, body_nconsts=len(consts))
    return outs[1:], list(loop.carry)


def _types(*types, body_jaxpr: Jaxpr, **_):
    return body_jaxpr.out_types


def _varying(types: tuple, params: dict) -> list:
    """Where the condition differs along an axis, so does the number of steps, and all that is carried."""
    count = params["cond_nconsts"]
    loop = slice(params["body_nconsts"], None)
    outs = settled(params["body_jaxpr"], types[count:], loop)
    while True:
        decides = for_types(params["cond_jaxpr"], (*types[:count], *outs)).out_types[0].varying
        grown = [t.update(varying=t.varying | decides) if type(t) is ShapedArray else t for t in outs]
        if all([new is old for new, old in zip(grown, outs)]):
            return outs
        outs = settled(params["body_jaxpr"], (*types[count:count + params["body_nconsts"]], *grown), loop)


@memoized
def _live(body: Jaxpr, condition: Jaxpr, cond_nconsts: int, body_nconsts: int, used: tuple[bool, ...]) -> tuple:
    """(condition, body, which inputs, which carries) without what neither the condition nor a used result depends on."""
    carry = used
    _, decides = dce(condition, (True,), keep_inputs=False)
    while True:
        carry = joined(carry, decides[cond_nconsts:])
        live, read = dce(body, carry, keep_inputs=False)
        if joined(carry, read[body_nconsts:]) == carry:
            break
        carry = joined(carry, read[body_nconsts:])
    of_condition, of_body = (*[True] * cond_nconsts, *carry), (*read[:body_nconsts], *carry)
    return (condition.replace(invars=chosen(condition.invars, of_condition)), live.replace(invars=chosen(body.invars, of_body)),
            (*[True] * cond_nconsts, *of_body), carry)


def _dce(eqn, used):
    params = eqn.params
    cond_nconsts, body_nconsts = params["cond_nconsts"], params["body_nconsts"]
    condition, body, inputs, carry = _live(params["body_jaxpr"], params["cond_jaxpr"], cond_nconsts, body_nconsts, tuple(used))
    smaller = {"cond_jaxpr": condition, "body_jaxpr": body, "body_nconsts": sum(inputs[cond_nconsts:cond_nconsts + body_nconsts])}
    return eqn.replace(invars=chosen(eqn.invars, inputs), outvars=chosen(eqn.outvars, carry), params=params | smaller)


while_p.type_rule, while_p.jvp, while_p.linearize, while_p.transpose, while_p.batch = _types, _jvp, _linearize, _transpose, _batch
while_p.facts["split"], while_p.facts["dce"], while_p.facts["varying"] = _split_known, _dce, _varying
while_p.effects_rule = lambda types, params: of_call(params["cond_jaxpr"]) | of_call(params["body_jaxpr"], params["cond_nconsts"])
while_p.impl = lambda *args, **params: run_compiled(while_p, args, params, params["body_jaxpr"])


# --- lowering ---------------------------------------------------------------------------------------------------------------------

@lowers(while_p)
def _lower(e, eqn, *operands):
    params = eqn.params
    condition, body = params["cond_jaxpr"], params["body_jaxpr"]
    cond_consts, body_consts, init = _split(operands, params["cond_nconsts"], params["body_nconsts"])
    types = [t.mlir for t in body.out_types]

    def go_on(e, *carry):
        return [(e.inline(condition, [*cond_consts, *carry])[0], "tensor<i1>")]

    def turn(e, *carry):
        return list(zip(e.inline(body, [*body_consts, *carry]), types))
    return e.emit_many(f'"stablehlo.while"({", ".join(init)}) ({e.region(types, go_on)}, {e.region(types, turn)}) : '
                       f"({', '.join(types)}) -> ({', '.join(types)})", len(types), pure=not (condition.effects | body.effects))
