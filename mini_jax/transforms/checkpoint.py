"""checkpoint: save less for the backward pass and compute it again there (Griewank 1992; "rematerialization")."""
from __future__ import annotations

import functools
from typing import Any, Callable, NamedTuple, Sequence

from lowering.emit import lowers
from lowering.rules.identities import barrier
from mini_jax.core.effects import HostEffect, RefEffect, of_call, of_equation
from mini_jax.core.primitive import Primitive
from mini_jax.core.program import NO_EFFECTS, Jaxpr, Literal, Var, dce, memoized
from mini_jax.core.refs import discharge_call
from mini_jax.core.staging import for_types, stage
from mini_jax.lax.identities import name_p
from mini_jax.runtime import dispatch
from mini_jax.transforms.arguments import keyable, resolve_positions
from mini_jax.transforms.jit import Options, jit_p, record, run_program, take_apart
from mini_jax.transforms.jvp import jvp_call
from mini_jax.transforms.refs import check_aliases, takes_refs
from mini_jax.transforms.linearize import linearize_jaxpr, transpose_call
from mini_jax.transforms.vmap import batch_call

remat_p = Primitive("checkpoint", multiple_results=True, memoize=False, facts={"family": "higher_order", "parts": True})


def _impl(*args, jaxpr, **_):
    return run_program(jaxpr, args, name="checkpoint")


def _linearize(primals, nonzero, *, jaxpr, policy, **params):
    """Only inputs, and what the policy saves, are residuals; the linear program computes the rest again from them."""
    primal, replay, consts, linear_consts, saved, out_nonzero = _split(jaxpr, tuple(nonzero), policy)
    results = remat_p.bind(*consts, *primals, jaxpr=primal, policy=policy, **params)
    outs, kept = results[:len(jaxpr.outvars)], results[len(jaxpr.outvars):]

    def linear(*tangents):
        if not replay.outvars:
            return []
        return remat_p.bind(*linear_consts, *primals, *kept, *tangents, jaxpr=replay, policy=policy, **{**params, "differentiated": True})
    return outs, out_nonzero, linear


@memoized
def _split(jaxpr: Jaxpr, nonzero: tuple, policy) -> tuple:
    """(program of outputs and saved values; program (inputs, saved, tangents) -> tangents; constants of each; …).

    What io_callbacks returned is always saved: they are called once. A print is repeated where values that come with it are needed.
    """
    if policy is not None:
        jaxpr = _flattened(jaxpr)
    parts = linearize_jaxpr(jaxpr, nonzero)
    count = len(jaxpr.outvars)
    primal = parts.primal
    saveable = [] if policy is None else [v for eqn in primal.eqns for v in eqn.outvars
                                          if policy(eqn.primitive, *eqn.in_types, **eqn.params)]
    saveable += [v for eqn in primal.eqns if _happens_once(eqn) for v in eqn.outvars if v not in saveable]
    inputs = primal.invars[len(parts.consts):]
    # Replay: the primal program, with saved values given, and then the linear program on the residuals it yields.
    names: dict[Any, Any] = {var: inputs[i] if where == "in" else primal.outvars[i]
                             for var, (where, i) in zip(parts.linear.invars, parts.sources)}
    linear_eqns = [eqn.replace(invars=[names.get(v, v) if type(v) is Var else v for v in eqn.invars]) for eqn in parts.linear.eqns]
    tangents = parts.linear.invars[len(parts.sources):]
    outvars = [names.get(v, v) if type(v) is Var else v for v in parts.linear.outvars]
    given = set(saveable)
    again = [eqn.replace(effects=NO_EFFECTS) for eqn in primal.eqns if not set(eqn.outvars) <= given]      # for its results, not its effects
    replay = _with_effects(dce(Jaxpr((), [*primal.invars, *saveable, *tangents], again + linear_eqns, outvars, info=jaxpr.info)))
    read = {v for eqn in replay.eqns for v in eqn.invars if type(v) is Var} | {v for v in replay.outvars if type(v) is Var}
    saved = [v for v in saveable if v in read]
    replay = replay.replace(invars=[*primal.invars, *saved, *tangents])
    forward = dce(primal.replace(outvars=[*primal.outvars[:count], *saved]))
    return forward, replay, parts.consts, parts.consts, saved, parts.out_nonzero


def _happens_once(eqn) -> bool:
    """Must what an equation returned be saved, since it would return something else the second time, or do something twice?"""
    return any([type(e) is RefEffect or type(e) is HostEffect and e.kind == "io" for e in eqn.effects])


def _with_effects(jaxpr: Jaxpr) -> Jaxpr:
    """The program with the effects that its equations have."""
    eqns = [eqn.replace(effects=of_equation(eqn.primitive.effects(tuple(eqn.in_types), eqn.params), eqn.invars)) for eqn in jaxpr.eqns]
    return jaxpr.replace(eqns=eqns, effects=NO_EFFECTS.union(*[eqn.effects for eqn in eqns]))


@memoized
def _flattened(jaxpr: Jaxpr) -> Jaxpr:
    """The program with its calls written out, so that a policy sees every operation."""
    def run(jaxpr, *args):
        env = dict(zip(jaxpr.invars, args))
        for eqn in jaxpr.eqns:
            values = [v.val if type(v) is Literal else env[v] for v in eqn.invars]
            out = run(eqn.params["jaxpr"], *values) if eqn.primitive is jit_p else eqn.primitive.bind(*values, **eqn.params)
            env.update(zip(eqn.outvars, out if eqn.primitive.multiple_results else [out]))
        return [v.val if type(v) is Literal else env[v] for v in jaxpr.outvars]
    program, consts = stage(lambda *args: run(jaxpr, *args), jaxpr.in_types, jaxpr.info)
    assert not consts, "a closed program has no constants"
    return program


remat_p.impl = _impl
remat_p.type_rule = lambda *types, jaxpr, **_: jaxpr.out_types
remat_p.facts["varying"] = lambda types, params: for_types(params["jaxpr"], types).out_types
remat_p.facts["discharge"] = discharge_call(remat_p)
remat_p.effects_rule = lambda types, params: of_call(params["jaxpr"])
remat_p.jvp = lambda primals, tangents, *, jaxpr, **params: jvp_call(remat_p, primals, tangents, jaxpr, params)
remat_p.linearize = _linearize
remat_p.transpose = lambda cts, *args, jaxpr, **params: transpose_call(remat_p, cts, args, jaxpr, params)
remat_p.batch = lambda axis, args, dims, *, jaxpr, **params: batch_call(remat_p, axis, args, dims, jaxpr, params)


@lowers(remat_p)
def _lower(e, eqn, *operands):
    jaxpr = eqn.params["jaxpr"]
    if eqn.params["differentiated"] and eqn.params["prevent_cse"]:    # else XLA would find the forward pass's values again
        operands = barrier(e, operands, [t.mlir for t in jaxpr.in_types])
    return e.call(jaxpr, operands, "checkpoint")


def checkpoint(fun: Callable | None = None, *, prevent_cse: bool = True, policy: Callable | None = None,
               static_argnums: int | Sequence[int] = (), concrete: bool = False) -> Callable:
    """`fun`, of which differentiation saves only the inputs, and computes the rest again in the backward pass.

    policy: which intermediate values are saved all the same, see `checkpoint_policies`.
    prevent_cse: keep XLA from merging the recomputation with the forward pass (not needed inside scan).
    static_argnums: arguments that are Python values inside.
    """
    if fun is None:
        return lambda fun: checkpoint(fun, prevent_cse=prevent_cse, policy=policy, static_argnums=static_argnums)
    if concrete:
        raise NotImplementedError("checkpoint(concrete=True) is no longer possible; mark Python values with static_argnums")
    if policy is not None and not callable(policy):
        raise TypeError(f"checkpoint: policy is a function (primitive, *types, **params) -> bool, as those of checkpoint_policies, got {policy!r:.200} "
                        f"of type {type(policy).__name__}")
    fun = keyable(fun)
    options = Options(*resolve_positions(fun, static_argnums, (), "static"))

    def checkpointed(*args, **kwargs):
        if dispatch.disabled():
            return fun(*args, **kwargs)
        call = take_apart(fun, options, args, kwargs)
        traced = record(fun, options, call, "checkpoint")
        if takes_refs(traced.jaxpr):
            check_aliases(traced.jaxpr.info, traced.consts, call.leaves)
        outs = remat_p.bind(*traced.consts, *call.leaves, jaxpr=traced.callee, policy=policy, prevent_cse=prevent_cse, differentiated=False)
        return traced.out_tree.unflatten(outs)
    return functools.update_wrapper(checkpointed, fun, updated=())


remat = checkpoint


class _Verdict(NamedTuple):
    """What a policy may return instead of a boolean."""
    saves: bool

    def __bool__(self):
        return self.saves


Saveable, Recompute = _Verdict(True), _Verdict(False)


class Offloadable(NamedTuple):
    """What a policy returns for a value to be saved in the memory `dst` instead of `src`. Here there is one memory, and it is saved there."""
    src: str
    dst: str


class _Policies:
    """What checkpoint may save: each policy is a function (primitive, *types, **params) -> bool, Saveable, Recompute or an Offloadable."""

    @staticmethod
    def everything_saveable(primitive, *_, **__):
        """Save all: as without checkpoint."""
        return True

    @staticmethod
    def nothing_saveable(primitive, *_, **__):
        """Save inputs only."""
        return False

    @staticmethod
    def dots_saveable(primitive, *_, **__):
        """Save the results of matrix products."""
        return primitive.name == "dot_general"

    checkpoint_dots = dots_saveable

    @staticmethod
    def dots_with_no_batch_dims_saveable(primitive, *_, **params):
        """Save the results of matrix products without batch dimensions."""
        return primitive.name == "dot_general" and not params["dimension_numbers"][1][0]

    checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable

    @staticmethod
    def save_only_these_names(*names: str):
        """Save the values that checkpoint_name gave one of these names."""
        wanted = frozenset(names)
        return lambda primitive, *_, **params: primitive is name_p and params["name"] in wanted

    @staticmethod
    def save_any_names_but_these(*names: str):
        """Save the values that have names, except these."""
        unwanted = frozenset(names)
        return lambda primitive, *_, **params: primitive is name_p and params["name"] not in unwanted

    @staticmethod
    def save_anything_except_these_names(*names: str):
        """Save all but the values of these names."""
        unwanted = frozenset(names)
        return lambda primitive, *_, **params: primitive is not name_p or params["name"] not in unwanted

    @staticmethod
    def save_from_both_policies(first: Callable, second: Callable):
        """Save what either policy saves."""
        return lambda primitive, *types, **params: first(primitive, *types, **params) or second(primitive, *types, **params)

    @staticmethod
    def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str):
        """Save the results of matrix products without batch dimensions, in another memory where the platform has one."""
        offloaded = Offloadable(offload_src, offload_dst)
        return lambda primitive, *types, **params: (
            offloaded if _Policies.dots_with_no_batch_dims_saveable(primitive, *types, **params) else Recompute)

    @staticmethod
    def save_and_offload_only_these_names(*, names_which_can_be_saved: Sequence[str], names_which_can_be_offloaded: Sequence[str],
                                          offload_src: str, offload_dst: str):
        """Save the values of the first names, and those of the second in another memory where the platform has one. ValueError for a name
        among both."""
        saved, moved, offloaded = frozenset(names_which_can_be_saved), frozenset(names_which_can_be_offloaded), Offloadable(offload_src, offload_dst)
        if saved & moved:
            raise ValueError(f"save_and_offload_only_these_names: {sorted(saved & moved)} can't be both saved and offloaded")

        def policy(primitive, *_, **params):
            name = params["name"] if primitive is name_p else None
            return offloaded if name in moved else Saveable if name in saved else Recompute
        return policy


checkpoint_policies = _Policies()
