"""How loops and branches run when nothing is being recorded: one compiled program each."""
from __future__ import annotations

from typing import Sequence

from mini_jax.core import config
from mini_jax.core.primitive import Primitive
from mini_jax.core.program import Jaxpr
from mini_jax.core.refs import is_ref
from mini_jax.core.staging import eval_jaxpr, stage
from mini_jax.core.trace import Tracer, leaked, typeof
from mini_jax.runtime import dispatch, xla
from mini_jax.runtime.caches import executables, once
from mini_jax.transforms.jit import jit_p
from mini_jax.transforms.refs import run_call
from mini_jax.transforms.shards import mesh_in


def run(jaxpr: Jaxpr, args: Sequence, name: str) -> list:
    """Apply a program: one compiled program where operations run at once, its equations where they are recorded."""
    if xla.staging.value or not jaxpr.eqns:
        return eval_jaxpr(jaxpr, (), *args)
    return jit_p.bind(*args, jaxpr=jaxpr, name=name)


def run_compiled(primitive: Primitive, args: Sequence, params: dict, program: Jaxpr) -> list:
    """Run one application of a primitive that holds programs, of which `program` is one; compiled once."""
    for arg in args:
        if isinstance(arg, Tracer):
            raise leaked(arg)
    if any(map(is_ref, args)):
        places = [next((j for j, other in enumerate(args[:i]) if other is arg and is_ref(arg)), i) for i, arg in enumerate(args)]     # a while's
        given = sorted(set(places))                                                            # condition and body may use the same ref
        key = (primitive, *[value for value in params.values() if value is not program], tuple(places), config.trace_key())

        def fun(*xs):
            at = dict(zip(given, xs))
            return primitive.bind(*[at[place] for place in places], **params)
        jaxpr = once(program.memo, key, lambda: stage(fun, [typeof(args[i]) for i in given])[0])
        return run_call(jaxpr, [args[i] for i in given], primitive.name)
    values = dispatch.opened(args)
    at = dispatch.placement(values, mesh_in(program))
    key = (primitive, *[value for value in params.values() if value is not program], at, config.trace_key())

    def build():
        jaxpr, consts = stage(lambda *xs: primitive.bind(*xs, **params), [typeof(arg) for arg in args])
        return dispatch.load(jaxpr, consts, at, name=primitive.name)
    executable = executables.once(program.memo, key, build)
    return dispatch.wrapped(executable.out_types, executable(values))
