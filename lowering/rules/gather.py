"""How gathers and scatters are written: XLA's own, with the modes of JAX made of comparisons where XLA has no such mode."""
from lowering.emit import lowers
from lowering.rules.slicing import index_operands
from mini_jax.core import dtypes
from mini_jax.core.types import array_type
from mini_jax.lax import elementwise
from mini_jax.lax.gather import (GatherDimensionNumbers, GatherScatterMode, default_fill, gather_p, scatter_add_p,
                                 scatter_apply_p, scatter_max_p, scatter_min_p, scatter_mul_p, scatter_p, scatter_sizes,
                                 scatter_sub_p)


def _indices(e, indices: str, aval):
    """The index vectors in a dtype that is safe to compute with, and their type."""
    (indices,), dtype = index_operands(e, [indices], [aval])
    return indices, aval.update(dtype=dtype, weak_type=False)


def _limits(operand, dims: GatherDimensionNumbers, slice_sizes) -> list[int]:
    """The greatest start, for each entry of an index vector, at which a window lies inside."""
    return [operand.shape[d] - slice_sizes[d] for d in dims.start_index_map]


def _limit_array(e, limits, aval):
    """The limits, one for each entry of the last dimension, in the shape of the indices."""
    if len(set(limits)) == 1:
        return e.constant(limits[0], aval)
    vector = e.index_constant(limits, aval.dtype)
    return e.broadcast(vector, array_type((len(limits),), aval.dtype), aval.shape, (aval.ndim - 1,))


def _inside(e, indices: str, aval, limits, out, batch_dims) -> str:
    """Booleans of the shape of `out`: does the window that an element comes from lie inside?"""
    flags = array_type(aval.shape, dtypes.bool_)
    types = f"({aval.mlir}, {aval.mlir}) -> {flags.mlir}"
    low = e.emit(f"stablehlo.compare GE, {indices}, {e.constant(0, aval)}, SIGNED : {types}")
    high = e.emit(f"stablehlo.compare LE, {indices}, {_limit_array(e, limits, aval)}, SIGNED : {types}")
    each = e.emit(f"stablehlo.and {low}, {high} : {flags.mlir}")
    every = array_type(aval.shape[:-1], dtypes.bool_)
    if aval.shape[-1] == 1:
        every_name = e.reshape(each, flags, every.shape)
    else:
        true = e.constant(True, array_type((), dtypes.bool_))
        every_name = e.emit(f"stablehlo.reduce({each} init: {true}) applies stablehlo.and across dimensions = [{aval.ndim - 1}] "
                            f": ({flags.mlir}, tensor<i1>) -> {every.mlir}")
    return e.broadcast(every_name, every, out.shape, batch_dims)


def _dims_text(dims: dict, indices) -> str:
    """Dimension numbers as StableHLO writes them; those that name nothing are left out."""
    named = [f"{name} = {list(value)}" for name, value in dims.items() if value]
    return ", ".join([*named, f"index_vector_dim = {indices.ndim - 1}"])


@lowers(gather_p)
def _gather(e, eqn, operand, indices):
    have, out, p = eqn.invars[0].aval, eqn.outvars[0].aval, eqn.params
    dims, sizes = p["dimension_numbers"], p["slice_sizes"]
    indices, aval = _indices(e, indices, eqn.invars[1].aval)
    if not out.size:
        return e.constant(0, out)
    attributes = (f"dimension_numbers = #stablehlo.gather<{_dims_text(dims._asdict(), aval)}>, "
                  f"indices_are_sorted = {str(p['indices_are_sorted']).lower()}, "
                  f"slice_sizes = array<i64{': ' if sizes else ''}{', '.join(map(str, sizes))}>")
    read = e.emit(f'"stablehlo.gather"({operand}, {indices}) {{{attributes}}} : ({have.mlir}, {aval.mlir}) -> {out.mlir}')
    if p["mode"] is not GatherScatterMode.FILL_OR_DROP or not dims.start_index_map:
        return read
    batch_dims = [d for d in range(out.ndim) if d not in dims.offset_dims]
    inside = _inside(e, indices, aval, _limits(have, dims, sizes), out, batch_dims)
    fill = e.constant(default_fill(out.dtype) if p["fill_value"] is None else p["fill_value"], out)
    return e.emit(f"stablehlo.select {inside}, {read}, {fill} : tensor<{'x'.join([*map(str, out.shape), 'i1'])}>, {out.mlir}")


_COMBINE = {scatter_add_p: elementwise.add, scatter_sub_p: elementwise.sub, scatter_mul_p: elementwise.mul,
            scatter_min_p: elementwise.min, scatter_max_p: elementwise.max, scatter_p: lambda old, new: new}


@lowers(*_COMBINE, scatter_apply_p)
def _scatter(e, eqn, operand, indices, updates):
    have, new, p = eqn.invars[0].aval, eqn.invars[2].aval, eqn.params
    dims = p["dimension_numbers"]
    if not new.size:
        return operand
    indices, aval = _indices(e, indices, eqn.invars[1].aval)
    if p["mode"] is GatherScatterMode.CLIP and dims.scatter_dims_to_operand_dims:
        limits = _limits(have, GatherDimensionNumbers(*dims), scatter_sizes(have, new, dims))
        indices = e.emit(f"stablehlo.clamp {e.constant(0, aval)}, {indices}, {_limit_array(e, limits, aval)} : {aval.mlir}")
    scalar = array_type((), have.dtype)

    def body(inner, old, update):
        if eqn.primitive is scatter_apply_p:
            return [(inner.inline(p["update_jaxpr"], [old])[0], scalar.mlir)]
        combine = _COMBINE[eqn.primitive]
        return [(inner.via(lambda x, y: [combine(x, y)], [scalar, scalar], [old, update])[0], scalar.mlir)]

    names = {"input_batching_dims" if name == "operand_batching_dims" else name: value for name, value in dims._asdict().items()}
    attributes = (f"scatter_dimension_numbers = #stablehlo.scatter<{_dims_text(names, aval)}>, indices_are_sorted = "
                  f"{str(p['indices_are_sorted']).lower()}, unique_indices = {str(p['unique_indices']).lower()}")
    region = e.region([scalar.mlir, scalar.mlir], body)
    return e.emit(f'"stablehlo.scatter"({operand}, {indices}, {updates}) ({region}) {{{attributes}}} : '
                  f"({have.mlir}, {aval.mlir}, {new.mlir}) -> {have.mlir}")
