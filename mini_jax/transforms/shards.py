"""Programs over a mesh: which mesh a program asks for, and `with_sharding_constraint`, which says how a value inside of one is spread."""
from __future__ import annotations

import functools
from typing import Any, Sequence

from lowering.emit import lowers
from lowering.shards import sharding_text
from mini_jax.core.primitive import Primitive
from mini_jax.core.program import Jaxpr, holders, memoized, primitives_in
from mini_jax.core.pytree import PyTreeDef, broadcast_prefix, flatten
from mini_jax.core.trace import typeof
from mini_jax.lax import shapes
from mini_jax.runtime.array import device_put
from mini_jax.runtime.meshes import UNCONSTRAINED, Mesh, NamedSharding, PartitionSpec, get_mesh
from mini_jax.runtime.sharding import Sharding


@memoized
def mesh_in(jaxpr: Jaxpr) -> Mesh | None:
    """The mesh that something in a program asks for. ValueError where two ask for meshes of different devices."""
    asking = {p: p.facts["mesh"] for p in primitives_in(jaxpr) if "mesh" in p.facts}
    own = [asking[eqn.primitive](eqn.params) for eqn in jaxpr.eqns if eqn.primitive in asking] if asking else []
    found = [mesh for mesh in [*own, *[mesh_in(program) for _, programs in holders(jaxpr) for program in programs]] if mesh is not None]
    for mesh in found[1:]:
        if set(mesh.devices.flat) != set(found[0].devices.flat):
            raise ValueError(f"one program asks for two meshes of different devices: {found[0]} and {mesh}")
    return found[0] if found else None


class Prefix:
    """A structure of shardings that is a prefix of others, as part of a key."""
    __slots__ = ("leaves", "tree")

    def __init__(self, shardings):
        self.leaves, self.tree = flatten(shardings, _is_leaf)
        for leaf in self.leaves:
            if not (leaf is None or isinstance(leaf, (Sharding, PartitionSpec))):
                raise TypeError(f"a sharding is a NamedSharding, a PartitionSpec or None, got {leaf!r:.100} of type {type(leaf).__name__}")

    def over(self, tree: PyTreeDef, what: str, tree_name: str) -> list:
        """The sharding, or None, for each leaf of a structure."""
        return [named(leaf) for leaf in broadcast_prefix(self.tree.unflatten(self.leaves), tree, _is_leaf, what, tree_name)]

    def __eq__(self, other):
        return isinstance(other, Prefix) and self.tree == other.tree and self.leaves == other.leaves

    def __hash__(self):
        return hash((self.tree, tuple(self.leaves)))


def _is_leaf(x) -> bool:
    return x is None or isinstance(x, (Sharding, PartitionSpec))


def named(sharding) -> Any:
    """A PartitionSpec alone as a sharding over the mesh that is set."""
    return NamedSharding(get_mesh(), sharding) if isinstance(sharding, PartitionSpec) else sharding


# --- with_sharding_constraint ------------------------------------------------------------------------------------------------

sharding_constraint_p = Primitive("sharding_constraint", facts={"family": "shards", "mesh": lambda params: params["sharding"].mesh})


def with_sharding_constraint(x, shardings):
    """x, a pytree, whose arrays are spread as `shardings` say: for XLA, which spreads what is computed from and to it to fit.

    shardings: a NamedSharding, or a PartitionSpec of the mesh that is set, or a structure of them that is a prefix of x; None leaves a part
    as it is. Outside of jit the arrays are moved. Raises ValueError where a dimension can't be cut so.
    """
    leaves, tree = flatten(x)
    return tree.unflatten(constrained(leaves, Prefix(shardings).over(tree, "with_sharding_constraint", "the value")))


def constrained(leaves: Sequence, shardings: Sequence) -> list:
    """Each value with its sharding, where there is one."""
    out = []
    for x, sharding in zip(leaves, shardings):
        if sharding is not None:
            sharding.shard_shape(typeof(x).shape)
        out.append(x if sharding is None or not isinstance(sharding, NamedSharding) else sharding_constraint_p.bind(x, sharding=sharding))
    return out


def _batch(axis, args, dims, *, sharding):
    (x,), (d,) = args, dims
    entries = [*sharding.spec, *[None] * (typeof(x).ndim - 1 - len(sharding.spec))]
    return sharding_constraint_p.bind(x, sharding=sharding.with_spec(PartitionSpec(*entries[:d], axis.cut or UNCONSTRAINED, *entries[d:]))), d


sharding_constraint_p.type_rule = lambda x, *, sharding: x
sharding_constraint_p.transpose = lambda ct, x, *, sharding: x.add(sharding_constraint_p.bind(ct, sharding=sharding))
sharding_constraint_p.batch = _batch
sharding_constraint_p.impl = lambda x, *, sharding: device_put(x, sharding)
shapes.linear_in_first(sharding_constraint_p)


@lowers(sharding_constraint_p)
def _lower(e, eqn, x):
    aval = eqn.outvars[0].aval
    if e.module.devices is None or len(e.module.devices) == 1:
        return x
    return e.emit(f"sdy.sharding_constraint {x} {sharding_text(e.module, eqn.params['sharding'], aval.ndim)} : {aval.mlir}")


def reshard(x, shardings):
    """x, a pytree, spread as `shardings` say (see with_sharding_constraint)."""
    return with_sharding_constraint(x, shardings)


def auto_axes(f=None, /, *, axes=None, out_sharding=None):
    """f, whose results are spread as out_sharding says; its parts are spread as XLA likes, as all is here. Called with out_sharding=, that
    goes before. axes: those of the mesh that this is about; here XLA decides about all of them."""
    if f is None:
        return functools.partial(auto_axes, axes=axes, out_sharding=out_sharding)

    @functools.wraps(f)
    def decided(*args, out_sharding=out_sharding, **kwargs):
        out = f(*args, **kwargs)
        return out if out_sharding is None else with_sharding_constraint(out, out_sharding)
    return decided


def explicit_axes(f=None, /, *, axes=None, in_sharding=None):
    """f, whose arguments are spread as in_sharding says, or as in_sharding= does where it is called. axes: as for auto_axes."""
    if f is None:
        return functools.partial(explicit_axes, axes=axes, in_sharding=in_sharding)

    @functools.wraps(f)
    def told(*args, in_sharding=in_sharding, **kwargs):
        return f(*(args if in_sharding is None else with_sharding_constraint(args, in_sharding)), **kwargs)
    return told
