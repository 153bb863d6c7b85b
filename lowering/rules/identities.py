"""How the operations that leave values as they are are written: not at all, but for the barrier."""
from lowering.emit import lowers
from mini_jax.lax import identities


@lowers(identities.stop_gradient_p, identities.name_p, identities.copy_p)
def _identity(e, eqn, x):
    return x


def barrier(e, operands, types):
    """stablehlo.optimization_barrier of values of these StableHLO types."""
    if not operands:
        return []
    return e.emit_many(f"stablehlo.optimization_barrier {', '.join(operands)} : {', '.join(types)}", len(operands), pure=False)


@lowers(identities.optimization_barrier_p)
def _optimization_barrier(e, eqn, *operands):
    return barrier(e, operands, [t.mlir for t in eqn.in_types])
