"""debug_nans and debug_infs: the operation that first produced a NaN or an infinity.

What a compiled program returns is checked; where it is not finite, the program is run again, operation by operation, to find out which.
"""
from __future__ import annotations

from typing import Sequence

import numpy as np

from lowering.physical import physicalize
from mini_jax.core import config, dtypes, source
from mini_jax.core.program import Jaxpr, JaxprEqn, Literal, subprograms
from mini_jax.core.trace import eval_trace, typeof
from mini_jax.runtime.array import ArrayImpl, out_of_reach

_nans, _infs = config.debug_nans, config.debug_infs


def watching() -> bool:
    """Is one of the options on?"""
    return _nans.value or _infs.value


def kept_for_again(donated: tuple) -> tuple:
    """Which arguments a program is given for good: none while one of the options is on, since it may have to run again."""
    return () if donated and watching() else donated


def give_away(args: Sequence, donated: tuple, shardings: Sequence) -> None:
    """Delete the donated arguments of a program that was not given them: those that it would have taken as they are."""
    if donated and watching():
        for arg, gives, sharding in zip(args, donated, shardings):
            if gives and hasattr(arg, "delete") and arg.sharding == sharding:
                arg.delete()


def _found(values: Sequence, kinds: Sequence[str]) -> str | None:
    """Which of the kinds, "nan" and "inf", these values hold; None if none."""
    for value in values:
        dtype = getattr(value, "dtype", None)
        if dtype is None or dtypes.is_extended(dtype) or not dtypes.is_inexact(dtype):
            continue
        parts = [shard.data for shard in value.addressable_shards] if _elsewhere(value) else [value]
        host = np.concatenate([np.asarray(part).ravel() for part in parts])
        host = host if host.dtype.kind in "fc" else host.astype(np.float32)
        for kind in kinds:
            if (np.isnan(host) if kind == "nan" else np.isinf(host)).any():
                return kind
    return None


def _elsewhere(value) -> bool:
    """Have other processes parts of this array?"""
    return isinstance(value, ArrayImpl) and out_of_reach(value)


def check(name: str, jaxpr: Jaxpr | None, inputs: Sequence, outputs: Sequence) -> None:
    """FloatingPointError where the outputs of a program are not finite, naming the operation.

    jaxpr: the program, as a function of inputs; None where it can't be run again.
    """
    kind = _found(outputs, [kind for kind, option in (("nan", _nans), ("inf", _infs)) if option.value])
    if kind is None:
        return
    if jaxpr is not None and not any([value.is_deleted() or _elsewhere(value) for value in inputs]):
        with _nans(False), _infs(False):
            run(physicalize(jaxpr), [value if len(value.sharding.device_set) == 1 else np.asarray(value) for value in inputs], kind)
    raise FloatingPointError(f"invalid value ({kind}) encountered in {name}")


def run(jaxpr: Jaxpr, args: Sequence, kind: str) -> list:
    """Run a program operation by operation, also those it calls; FloatingPointError at the first result that is not finite."""
    env = dict(zip(jaxpr.invars, args, strict=True))
    value = lambda atom: atom.val if type(atom) is Literal else env[atom]
    for eqn in jaxpr.eqns:
        env.update(zip(eqn.outvars, _apply(eqn, [value(v) for v in eqn.invars], kind)))
    return [value(v) for v in jaxpr.outvars]


def _apply(eqn: JaxprEqn, values: list, kind: str) -> list:
    rule = inside.get(eqn.primitive.name)
    if rule is not None:
        return rule(eqn.params, values, kind)
    outs = eval_trace.process(eqn.primitive, tuple(values), eqn.params)
    outs = outs if eqn.primitive.multiple_results else [outs]
    if _found(outs, (kind,)):
        place = f" at {source.describe(eqn.source)}" if eqn.source is not None else ""
        types = ", ".join([str(typeof(v)) for v in values])
        given = f"; an operand was {kind} already" if _found(values, (kind,)) else ""
        raise FloatingPointError(f"invalid value ({kind}) encountered in {eqn.primitive.name}{place} (operands {types}{given})")
    return outs


def _call(params, values, kind):
    (_, program), = subprograms(params)
    return run(program, values, kind)


def _cond(params, values, kind):
    branches = params["branches"]
    return run(branches[min(max(int(values[0]), 0), len(branches) - 1)], values[1:], kind)


def _scan(params, values, kind):
    consts, carry = params["num_consts"], params["num_carry"]
    state, xs = values[consts:consts + carry], [np.asarray(x) for x in values[consts + carry:]]
    steps, length = [], params["length"]
    for i in (range(length - 1, -1, -1) if params["reverse"] else range(length)):
        outs = run(params["jaxpr"], [*values[:consts], *state, *[x[i] for x in xs]], kind)
        state = outs[:carry]
        steps.append(outs[carry:])
    steps = steps[::-1] if params["reverse"] else steps
    types = params["jaxpr"].out_types[carry:]
    return [*state, *[np.stack([np.asarray(step[k]) for step in steps]) if steps else np.zeros((0, *t.shape), t.dtype) for k, t in enumerate(types)]]


def _while(params, values, kind):
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    cond_consts, body_consts, state = values[:first], values[first:second], values[second:]
    while bool(run(params["cond_jaxpr"], [*cond_consts, *state], kind)[0]):
        state = run(params["body_jaxpr"], [*body_consts, *state], kind)
    return state


# How primitives that hold programs are run: rule(params, values, kind) -> results. mini_jax.transforms.pmap adds its own.
inside = {"cond": _cond, "scan": _scan, "while": _while,
          **dict.fromkeys(["jit", "checkpoint", "custom_jvp_call", "custom_vjp_call", "custom_vmap_call"], _call)}
