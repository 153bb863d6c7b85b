"""custom_vmap: functions whose batching the user writes."""
from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

from lowering.emit import lowers
from mini_jax.core.effects import of_call
from mini_jax.core.linear import Zero
from mini_jax.core.primitive import Primitive
from mini_jax.core.program import Jaxpr, ProgramInfo, function_name
from mini_jax.core.pytree import broadcast_prefix, flatten
from mini_jax.core.refs import discharge_call
from mini_jax.core.staging import eval_jaxpr, stage
from mini_jax.core.trace import typeof
from mini_jax.transforms.control.map import map as _map
from mini_jax.transforms.custom_derivatives import zeros
from mini_jax.transforms.jvp import jvp_flat
from mini_jax.transforms.linearize import linearize_flat
from mini_jax.transforms.vmap import move_batch

__all__ = ["custom_vmap", "sequential_vmap"]

custom_vmap_call_p = Primitive("custom_vmap_call", multiple_results=True, memoize=False, facts={"family": "higher_order"})


def _run(call, args: Sequence) -> list:
    return eval_jaxpr(call, (), *args) if type(call) is Jaxpr else list(call(*args))


def _batch(axis, args, dims, *, call, rule):
    args = [a if d is None else move_batch(a, axis.size, d, 0) for a, d in zip(args, dims)]
    outs, batched = rule(axis.size, [d is not None for d in dims], args)
    return outs, [0 if b else None for b in batched]


def _jvp(primals, tangents, *, call, rule):
    """The derivative of the function; batched later, it is the derivative of the user's rule."""
    live = [i for i, t in enumerate(tangents) if type(t) is not Zero]
    count = len(primals)

    def pushed(run, values):
        """(outputs, tangents) of run at the primals, in the directions of the tangents that are there."""
        given = dict(zip(live, values[count:]))
        directions = [given[i] if i in given else Zero(typeof(p).tangent()) for i, p in enumerate(values[:count])]
        outs, outs_dot = jvp_flat(run, values[:count], directions)
        return [*outs, *[zeros(t.aval) if type(t) is Zero else t for t in outs_dot]]

    def jvp_rule(size, in_batched, values):
        of_primals, of_tangents = in_batched[:count], dict(zip(live, in_batched[count:]))
        both = [b or of_tangents.get(i, False) for i, b in enumerate(of_primals)]
        values = [v if have or not want else move_batch(v, size, None, 0)
                  for v, have, want in zip(values, in_batched, [*both, *[both[i] for i in live]])]
        out_batched: list = []

        def run(*xs):
            outs, out_batched[:] = rule(size, both, list(xs))
            return outs
        outs = pushed(run, values)
        return outs, [*out_batched, *out_batched]
    outs = custom_vmap_call_p.bind(*primals, *[tangents[i] for i in live], call=lambda *xs: pushed(functools.partial(_flat_call, call), xs), rule=jvp_rule)
    half = len(outs) // 2
    return outs[:half], outs[half:]


def _flat_call(call, *xs):
    return _run(call, xs)


def _linearize(primals, nonzero, *, call, rule):
    """In reverse mode: the value by the user's rule where it is batched, the derivative of the function."""
    _, linear = linearize_flat(functools.partial(_flat_call, call), primals, None, nonzero)
    outs = custom_vmap_call_p.bind(*primals, call=call, rule=rule)
    program = Jaxpr(list(linear.residuals), [v for v, live in zip(linear.invars, nonzero) if live], linear.eqns,
                    [atom for atom in linear.outs if atom is not None])
    values = list(linear.residuals.values())
    return outs, [atom is not None for atom in linear.outs], lambda *tangents: eval_jaxpr(program, values, *tangents)


def _stage(trace, args, params):
    call, rule = params["call"], params["rule"]
    if type(call) is not Jaxpr:
        jaxpr, consts = stage(call, [trace.atom(a).aval for a in args], ProgramInfo("custom_vmap", call))
        call, count = jaxpr.hoisted(), len(consts)
        if count:
            args, inner = (*consts, *args), rule
            rule = lambda size, in_batched, values: inner(size, in_batched[count:], values[count:])
    return trace.record(custom_vmap_call_p, args, {"call": call, "rule": rule})


custom_vmap_call_p.impl = lambda *args, call, rule: _run(call, args)
custom_vmap_call_p.type_rule = lambda *types, call, rule: call.out_types
custom_vmap_call_p.facts["discharge"] = discharge_call(custom_vmap_call_p, "call", True)
custom_vmap_call_p.effects_rule = lambda types, params: of_call(params["call"])
custom_vmap_call_p.batch, custom_vmap_call_p.jvp = _batch, _jvp
custom_vmap_call_p.linearize, custom_vmap_call_p.stage = _linearize, _stage


@lowers(custom_vmap_call_p)
def _lower(e, eqn, *operands):
    return e.inline(eqn.params["call"], operands)


class custom_vmap:
    """A function with a batching rule of the user's: `f.def_vmap(rule)`.

    rule(axis_size, in_batched, *args) -> (out, out_batched): args are the function's, with the batch at axis 0 of the arrays that
    in_batched (of the structure of args) marks True; out_batched marks the results that have one. vmap uses the rule; derivatives
    are those of the function, or of the rule where a vmap comes after.
    """

    def __init__(self, fun: Callable):
        if not callable(fun):
            raise TypeError(f"custom_vmap takes a function, got {fun!r:.200}")
        self.fun, self.vmap_rule = fun, None
        functools.update_wrapper(self, fun, updated=())

    def def_vmap(self, vmap_rule: Callable) -> Callable:
        """Set the rule (usable as a decorator)."""
        self.vmap_rule = vmap_rule
        return vmap_rule

    def __call__(self, *args):
        if self.vmap_rule is None:
            raise AttributeError(f"no batching rule is defined for custom_vmap function {function_name(self.fun)}: define one with def_vmap")
        leaves, tree = flatten(args)
        out_tree = None

        def call(*flat):
            nonlocal out_tree
            outs, out_tree = flatten(self.fun(*tree.unflatten(flat)))
            return outs

        def rule(size, in_batched, values):
            nonlocal out_tree
            result = self.vmap_rule(size, list(tree.unflatten(in_batched)), *tree.unflatten(values))
            if not isinstance(result, (tuple, list)) or len(result) != 2:
                raise TypeError(f"the batching rule of {function_name(self.fun)} must return a pair (out, out_batched), got {result!r:.200}")
            outs, out_tree = flatten(result[0])
            batched = broadcast_prefix(result[1], out_tree, name="out_batched of the batching rule")
            for out, is_batched in zip(outs, batched):
                shape = typeof(out).shape
                if is_batched and (not shape or shape[0] != size):
                    raise ValueError(f"the batching rule of {function_name(self.fun)} returned {typeof(out)} as batched, but its leading axis "
                                     f"is not the batch of size {size}")
            return outs, batched
        outs = custom_vmap_call_p.bind(*leaves, call=call, rule=rule)
        return out_tree.unflatten(outs)


def sequential_vmap(f: Callable) -> custom_vmap:
    """`f`, which vmap maps over the batch one example after the other (lax.map) instead of all at once."""
    mapped = custom_vmap(f)

    @mapped.def_vmap
    def rule(axis_size: int, in_batched: Any, *args):
        leaves, tree = flatten(args)
        flags = flatten(tuple(in_batched))[0]

        def one(batched):
            given = iter(batched)
            return f(*tree.unflatten([next(given) if b else leaf for leaf, b in zip(leaves, flags)]))
        out = _map(one, [leaf for leaf, b in zip(leaves, flags) if b])
        return out, flatten(out)[1].unflatten([True] * flatten(out)[1].num_leaves)
    return mapped
