"""remat_opt: the forward rule of a custom_vjp (with optimize_remat) as an operation that knows what to run where its residuals are not read.

    remat_opt_p   constants, inputs -> outputs, residuals     with the programs of the forward rule and of the function itself

Under checkpoint the forward pass drops the residuals. A rule that is one opaque operation (a kernel, a callback) would compute
them all the same; with this, dead code elimination puts the function in its place.
"""
from __future__ import annotations

from typing import Callable, Sequence

from lowering.emit import lowers
from mini_jax.core.primitive import Primitive
from mini_jax.core.program import ProgramInfo, Var
from mini_jax.core.staging import eval_jaxpr, stage
from mini_jax.core.trace import typeof
from mini_jax.transforms.jit import jit_p
from mini_jax.transforms.jvp import jvp_flat
from mini_jax.transforms.vmap import batch_jaxpr, move_batch

remat_opt_p = Primitive("remat_opt", multiple_results=True, memoize=False, facts={"family": "higher_order"})


def forward_call(forward: Callable, value: Callable, args: Sequence, info: ProgramInfo) -> list:
    """forward(*args), flat outputs and residuals, of which value(*args) gives the outputs."""
    types = [typeof(a) for a in args]
    parts = [stage(fun, types, info) for fun in (forward, value)]
    programs, consts = _together([jaxpr.hoisted() for jaxpr, _ in parts], [consts for _, consts in parts])
    return remat_opt_p.bind(*consts, *args, forward=programs[0], value=programs[1])


def _together(programs: Sequence, consts: Sequence[Sequence]) -> tuple[list, list]:
    """The two programs with each other's constants as further leading inputs."""
    (first, second), (a, b) = programs, consts
    own, other = [program.invars[:len(values)] for program, values in zip(programs, consts)]
    fresh = lambda variables: [Var(v.aval) for v in variables]
    return [first.replace(invars=[*own, *fresh(other), *first.invars[len(a):]]),
            second.replace(invars=[*fresh(own), *other, *second.invars[len(b):]])], [*a, *b]


def _batch(axis, args, dims, *, forward, value):
    args = [a if d is None else move_batch(a, axis.size, d, 0) for a, d in zip(args, dims)]
    dims = tuple([None if d is None else 0 for d in dims])
    parts = [batch_jaxpr(program, axis, dims, (0,) * len(program.outvars)) for program in (forward, value)]
    programs, consts = _together([p.jaxpr for p in parts], [p.consts for p in parts])
    outs = remat_opt_p.bind(*consts, *args, forward=programs[0], value=programs[1])
    return outs, [0] * len(outs)


def _dce(eqn, used):
    """Where no residual is read: the function itself."""
    value = eqn.params["value"]
    count = len(value.outvars)
    if any(used[count:]):
        return eqn
    return eqn.replace(primitive=jit_p, outvars=eqn.outvars[:count], params={"jaxpr": value, "name": value.info.name}, effects=value.effects)


remat_opt_p.impl = lambda *args, forward, value: eval_jaxpr(forward, (), *args)
remat_opt_p.type_rule = lambda *types, forward, value: forward.out_types
remat_opt_p.jvp = lambda primals, tangents, *, forward, value: jvp_flat(lambda *xs: eval_jaxpr(forward, (), *xs), primals, tangents)
remat_opt_p.batch, remat_opt_p.facts["dce"] = _batch, _dce
remat_opt_p.effects_rule = lambda types, params: params["forward"].effects


@lowers(remat_opt_p)
def _lower(e, eqn, *operands):
    return e.inline(eqn.params["forward"], operands)
