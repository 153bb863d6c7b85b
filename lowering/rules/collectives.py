"""How collectives are written: XLA's, among the replicas that the geometry (lowering/replicas.py) puts together."""
from typing import Sequence

from lowering.emit import lowers
from lowering.replicas import Replicas
from mini_jax.core import dtypes
from mini_jax.core.types import array_type
from mini_jax.lax import collectives
from mini_jax.lax.shapes import convert_element_type


def _groups_text(groups: Sequence[Sequence[int]]) -> str:
    width = max(map(len, groups))
    rows = [[*group, *[-1] * (width - len(group))] for group in groups]             # -1 pads groups that are smaller
    return f"replica_groups = dense<{rows}> : tensor<{len(rows)}x{width}xi64>"


def _region(operation: str, dtype) -> str:
    """The reduction of two scalars, as a region; its names are its own, so equal collectives have equal text."""
    scalar = array_type((), dtype).mlir
    return (f"({{\n    ^bb0(%lhs: {scalar}, %rhs: {scalar}):\n      %both = stablehlo.{operation} %lhs, %rhs : {scalar}\n"
            f"      stablehlo.return %both : {scalar}\n    }})")


def _wide(dtype):
    """What a reduction computes in: XLA has none for two bits."""
    return {"int2": dtypes.int8, "uint2": dtypes.uint8}.get(dtype.name, dtype)


@lowers(collectives.psum_p, collectives.pmax_p, collectives.pmin_p)
def _all_reduce(e, eqn, *operands):
    """One all_reduce for all operands of a dtype."""
    groups = e.axes.groups(eqn.params["axes"], eqn.params["groups"])
    if len(groups) == e.axes.count:
        return list(operands)
    operation = {collectives.psum_p: "add", collectives.pmax_p: "maximum", collectives.pmin_p: "minimum"}[eqn.primitive]
    out: list = [None] * len(operands)
    for dtype in dict.fromkeys(t.dtype for t in eqn.in_types):
        wide, places = _wide(dtype), [i for i, t in enumerate(eqn.in_types) if t.dtype == dtype]
        types = [eqn.in_types[i].update(dtype=wide) for i in places]
        kinds = ", ".join([t.mlir for t in types])
        inputs = [e.convert(operands[i], eqn.in_types[i], wide) for i in places]
        results = e.emit_many(f'"stablehlo.all_reduce"({", ".join(inputs)}) <{{{_groups_text(groups)}}}> {_region(operation, wide)} '
                              f': ({kinds}) -> ({kinds})', len(places))
        for i, result, t in zip(places, results, types):
            out[i] = e.convert(result, t, dtype)
    return out


def _collective(e, eqn, operation: str, attributes: str, region: str, x: str) -> str:
    """A collective of one operand; none where each group has one member."""
    groups = e.axes.groups(eqn.params["axes"], eqn.params["groups"])
    if len(groups) == e.axes.count:
        return x
    return e.emit(f'"stablehlo.{operation}"({x}) <{{{attributes}, {_groups_text(groups)}}}> {region}: ({eqn.invars[0].aval.mlir}) -> {eqn.outvars[0].aval.mlir}')


def all_gather(e, axes: Replicas, names: Sequence, x: str, have, dimension: int, index_groups=None) -> str:
    """The operands, of type `have`, of the replicas along named axes, concatenated."""
    groups = axes.groups(names, index_groups)
    if len(groups) == axes.count:
        return x
    shape = (*have.shape[:dimension], have.shape[dimension] * len(groups[0]), *have.shape[dimension + 1:])
    return e.emit(f'"stablehlo.all_gather"({x}) <{{all_gather_dim = {dimension} : i64, {_groups_text(groups)}}}> : '
                  f'({have.mlir}) -> {have.update(shape=shape).mlir}')


@lowers(collectives.all_gather_p)
def _all_gather(e, eqn, x):
    params = eqn.params
    return all_gather(e, e.axes, params["axes"], x, eqn.invars[0].aval, params["dimension"], params["groups"])


@lowers(collectives.psum_scatter_p)
def _reduce_scatter(e, eqn, x):
    dtype = eqn.invars[0].aval.dtype
    if _wide(dtype) != dtype:
        return e.via(lambda x: [_narrowed(x, eqn)], eqn.in_types, [x])[0]
    return _collective(e, eqn, "reduce_scatter", f"scatter_dimension = {eqn.params['dimension']} : i64", _region("add", dtype) + " ", x)


def _narrowed(x, eqn):
    return convert_element_type(collectives.psum_scatter_p.bind(convert_element_type(x, _wide(x.dtype)), **eqn.params), x.dtype)


@lowers(collectives.all_to_all_p)
def _all_to_all(e, eqn, x):
    d = eqn.params["dimension"]
    return _collective(e, eqn, "all_to_all", f"concat_dimension = {d} : i64, split_count = {eqn.invars[0].aval.shape[d]} : i64, "
                       f"split_dimension = {d} : i64", "", x)


@lowers(collectives.ppermute_p)
def _collective_permute(e, eqn, x):
    aval, groups = eqn.invars[0].aval, e.axes.groups(eqn.params["axes"])
    pairs = [[group[source], group[destination]] for group in groups for source, destination in eqn.params["perm"]]
    if not pairs:
        return e.constant(0, aval)
    return e.emit(f'"stablehlo.collective_permute"({x}) <{{source_target_pairs = dense<{pairs}> : tensor<{len(pairs)}x2xi64>}}> : ({aval.mlir}) -> {aval.mlir}')


def replica_index(e, axes: Replicas, name) -> str:
    """The index of the replica along an axis, ui32[]."""
    size, stride, u32 = axes.size(name), axes.stride(name), array_type((), dtypes.uint32)
    index = e.emit("stablehlo.replica_id : tensor<ui32>")
    if stride != 1:
        index = e.emit(f"stablehlo.divide {index}, {e.constant(stride, u32)} : tensor<ui32>")
    if size * stride != axes.count:
        index = e.emit(f"stablehlo.remainder {index}, {e.constant(size, u32)} : tensor<ui32>")
    return index


@lowers(collectives.axis_index_p)
def _axis_index(e, eqn):
    return e.convert(replica_index(e, e.axes, eqn.params["axis_name"]), array_type((), dtypes.uint32), dtypes.int32)
