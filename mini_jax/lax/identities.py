"""Operations that leave values as they are and say something to transformations or to XLA: stop_gradient, checkpoint_name, copy, optimization_barrier."""
from __future__ import annotations

from mini_jax.core import dtypes
from mini_jax.core.linear import Accumulator, Zero
from mini_jax.core.primitive import Primitive
from mini_jax.core.pytree import flatten
from mini_jax.core.trace import typeof
from mini_jax.lax.shapes import linear_in_first

__all__ = ["stop_gradient", "stop_gradient_p", "optimization_barrier", "optimization_barrier_p", "name_p", "copy_p"]

stop_gradient_p = Primitive("stop_gradient", type_rule=lambda x: x, facts={"family": "identities"})
stop_gradient_p.jvp = lambda primals, tangents: (stop_gradient_p.bind(*primals), Zero(typeof(primals[0]).tangent()))
stop_gradient_p.batch = lambda axis, args, dims: (stop_gradient_p.bind(*args), dims[0])


def stop_gradient(x):
    """x, a pytree of arrays, as a constant for derivatives: value x, derivative zero."""
    leaves, tree = flatten(x)
    return tree.unflatten([stop_gradient_p.bind(leaf) if dtypes.is_inexact(typeof(leaf).dtype) else leaf for leaf in leaves])


name_p = Primitive("name", type_rule=lambda x, *, name: x, facts={"family": "identities"})
name_p.jvp = lambda primals, tangents, *, name: (name_p.bind(*primals, name=name), tangents[0])
name_p.batch = lambda axis, args, dims, *, name: (name_p.bind(*args, name=name), dims[0])


def checkpoint_name(x, name: str):
    """x, a pytree of arrays, named for the policies of `checkpoint` that save values by name."""
    leaves, tree = flatten(x)
    return tree.unflatten([name_p.bind(leaf, name=name) for leaf in leaves])


copy_p = Primitive("copy", type_rule=lambda x: x, facts={"family": "identities"})           # run on its own, it makes an array of its own
copy_p.transpose = lambda ct, x: x.add(copy_p.bind(ct))
copy_p.batch = lambda axis, args, dims: (copy_p.bind(*args), dims[0])
linear_in_first(copy_p)


optimization_barrier_p = Primitive("optimization_barrier", type_rule=lambda *types: list(types), multiple_results=True,
                                   facts={"family": "identities"})


def optimization_barrier(operand):
    """The operand, a pytree of arrays, none of which is computed, moved or merged with anything across this point by XLA."""
    leaves, tree = flatten(operand)
    return tree.unflatten(optimization_barrier_p.bind(*leaves))


def _barrier_jvp(primals, tangents):
    live = [t for t in tangents if type(t) is not Zero]
    held = iter(optimization_barrier_p.bind(*live) if live else ())
    return optimization_barrier_p.bind(*primals), [t if type(t) is Zero else next(held) for t in tangents]


def _barrier_transpose(cts, *args):
    live = [(arg, ct) for arg, ct in zip(args, cts) if isinstance(arg, Accumulator) and type(ct) is not Zero]
    for (arg, _), ct in zip(live, optimization_barrier_p.bind(*[ct for _, ct in live]) if live else ()):
        arg.add(ct)


optimization_barrier_p.jvp, optimization_barrier_p.transpose = _barrier_jvp, _barrier_transpose
optimization_barrier_p.batch = lambda axis, args, dims: (optimization_barrier_p.bind(*args), list(dims))
