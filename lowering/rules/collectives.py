"""How collectives are written: XLA's, among the replicas that the geometry (lowering/replicas.py) puts together."""
import math
from typing import Sequence

import numpy as np

from lowering.emit import lowers
from lowering.replicas import Replicas
from lowering.rules.slicing import whole_bytes
from mini_jax.core import dtypes
from mini_jax.core.types import array_type
from mini_jax.lax import collectives
from mini_jax.lax.dot import dot_general_p
from mini_jax.lax.products import pdot_p


def _among(e, groups: Sequence[Sequence[int]], operation: str) -> str:
    """The attributes that say who takes part."""
    if not e.axes.partitions:
        return _groups_text(groups)
    text = _groups_text(groups)
    channel = e.module.channels.setdefault(f"{operation} {text}", len(e.module.channels) + 1)
    ids = "" if operation == "all_to_all" else ", use_global_device_ids"
    return f"{text}, channel_handle = #stablehlo.channel_handle<handle = {channel}, type = 1>{ids}"


def _groups_text(groups: Sequence[Sequence[int]]) -> str:
    width = max(map(len, groups))
    rows = [[*group, *[-1] * (width - len(group))] for group in groups]             # -1 pads groups that are smaller
    return f"replica_groups = dense<{rows}> : tensor<{len(rows)}x{width}xi64>"


def _region(operation: str, dtype) -> str:
    """The reduction of two scalars, as a region; its names are its own, so equal collectives have equal text."""
    scalar = array_type((), dtype).mlir
    return (f"({{\n    ^bb0(%lhs: {scalar}, %rhs: {scalar}):\n      %both = stablehlo.{operation} %lhs, %rhs : {scalar}\n"
            f"      stablehlo.return %both : {scalar}\n    }})")


@lowers(collectives.psum_p, collectives.pmax_p, collectives.pmin_p)
def _all_reduce(e, eqn, *operands):
    """One all_reduce for all operands of a dtype; among partitions, of which XLA takes one operand only, the small ones travel as one array."""
    groups = e.axes.groups(eqn.params["axes"], eqn.params["groups"])
    if len(groups) == e.axes.count:
        return list(operands)
    operation = {collectives.psum_p: "add", collectives.pmax_p: "maximum", collectives.pmin_p: "minimum"}[eqn.primitive]
    out: list = [None] * len(operands)
    for dtype in dict.fromkeys(t.dtype for t in eqn.in_types):
        wide, places = whole_bytes(dtype), [i for i, t in enumerate(eqn.in_types) if t.dtype == dtype]
        types = [eqn.in_types[i].update(dtype=wide) for i in places]
        inputs = [e.convert(operands[i], eqn.in_types[i], wide) for i in places]
        if e.axes.partitions:
            results = _joined(e, inputs, types, lambda x, t: _reduced(e, [x], [t], groups, operation)[0])
        else:
            results = _reduced(e, inputs, types, groups, operation)
        for i, result, t in zip(places, results, types):
            out[i] = e.convert(result, t, dtype)
    return out


def _reduced(e, inputs: Sequence[str], types: Sequence, groups, operation: str) -> list[str]:
    kinds = ", ".join([t.mlir for t in types])
    return e.emit_many(f'"stablehlo.all_reduce"({", ".join(inputs)}) <{{{_among(e, groups, operation)}}}> {_region(operation, types[0].dtype)} '
                       f': ({kinds}) -> ({kinds})', len(inputs))


_SMALL = 2 ** 20                                         # bytes; the copy of a larger array would cost more than its own journey


def _joined(e, inputs: Sequence[str], types: Sequence, send) -> list[str]:
    """send(x, type) of each of the arrays, which have one dtype: small ones put together, larger ones alone."""
    small = [i for i, t in enumerate(types) if t.size * t.dtype.itemsize <= _SMALL]
    if len(small) < 2:
        return [send(x, t) for x, t in zip(inputs, types)]
    flat = {i: e.reshape(inputs[i], types[i], (types[i].size,)) for i in small}
    kinds = {i: types[i].update(shape=(types[i].size,)) for i in small}
    whole = types[0].update(shape=(sum([types[i].size for i in small]),))
    together = send(e.emit(f"stablehlo.concatenate {', '.join(flat.values())}, dim = 0 : ({', '.join([t.mlir for t in kinds.values()])}) -> {whole.mlir}"),
                    whole)
    out, start = {}, 0
    for i, kind in kinds.items():
        piece = e.emit(f"stablehlo.slice {together} [{start}:{start + kind.size}] : ({whole.mlir}) -> {kind.mlir}")
        out[i], start = e.reshape(piece, kind, types[i].shape), start + kind.size
    return [out[i] if i in out else send(x, t) for i, (x, t) in enumerate(zip(inputs, types))]


def collective(e, axes: Replicas, names: Sequence, operation: str, attributes: str, x: str, have, shape: tuple, *,
               index_groups=None, reduction: str = "") -> str:
    """A collective over named axes of an operand of type `have`, with a result of `shape`; none where each group has one member.

    In whole bytes: XLA's CPU backend has no reductions of two bits, and gathers what shares a byte wrongly.
    """
    groups, wide = axes.groups(names, index_groups), whole_bytes(have.dtype)
    if len(groups) == axes.count:
        return x
    ins, out = have.update(dtype=wide), have.update(dtype=wide, shape=shape)
    region = f" {_region(reduction, wide)}" if reduction else ""
    x = e.convert(x, have, wide)
    result = e.emit(f'"stablehlo.{operation}"({x}) <{{{attributes}, {_among(e, groups, operation)}}}>{region} : ({ins.mlir}) -> {out.mlir}')
    return e.convert(result, out, have.dtype)


@lowers(collectives.all_gather_p, collectives.psum_scatter_p)
def _move(e, eqn, x):
    params, d = eqn.params, eqn.params["dimension"]
    operation, attributes, reduction = {
        collectives.all_gather_p: ("all_gather", f"all_gather_dim = {d} : i64", ""),
        collectives.psum_scatter_p: ("reduce_scatter", f"scatter_dimension = {d} : i64", "add"),
    }[eqn.primitive]
    return collective(e, e.axes, params["axes"], operation, attributes, x, eqn.invars[0].aval, eqn.outvars[0].aval.shape,
                      index_groups=params["groups"], reduction=reduction)


@lowers(collectives.all_to_all_p)
def _exchange(e, eqn, x):
    """The dimension of the parts together with that which follows: XLA's CPU backend makes copies of memory of parts that are whole slices,
    and loops of what it must give a dimension of one."""
    have, d = eqn.invars[0].aval, eqn.params["dimension"]
    shape, parts = have.shape, have.shape[d]
    flat = have.update(shape=(*shape[:d], math.prod(shape[d:d + 2]), *shape[d + 2:]))
    attributes = f"concat_dimension = {d} : i64, split_count = {parts} : i64, split_dimension = {d} : i64"
    moved = collective(e, e.axes, eqn.params["axes"], "all_to_all", attributes, e.reshape(x, have, flat.shape), flat, flat.shape,
                       index_groups=eqn.params["groups"])
    return e.reshape(moved, flat, shape)


@lowers(pdot_p)
def _product(e, eqn, x, y):
    params = {name: value for name, value in eqn.params.items() if name != "axes"}
    summed = lambda x, y: collectives.psum_p.bind(dot_general_p.bind(x, y, **params), axes=eqn.params["axes"], groups=None)
    return e.via(summed, eqn.in_types, (x, y))[0]


@lowers(collectives.pvary_p)
def _vary(e, eqn, x):
    return x


@lowers(collectives.ppermute_p)
def _collective_permute(e, eqn, x):
    aval, groups = eqn.invars[0].aval, e.axes.groups(eqn.params["axes"])
    pairs = [[group[source], group[destination]] for group in groups for source, destination in eqn.params["perm"]]
    if not pairs:
        return e.constant(0, aval)
    kind = aval.update(dtype=whole_bytes(aval.dtype))
    channel = ", channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>" if e.axes.partitions else ""
    result = e.emit(f'"stablehlo.collective_permute"({e.convert(x, aval, kind.dtype)}) <{{source_target_pairs = dense<{pairs}> : '
                    f'tensor<{len(pairs)}x2xi64>{channel}}}> : ({kind.mlir}) -> {kind.mlir}')
    return e.convert(result, kind, aval.dtype)


def replica_index(e, axes: Replicas, name) -> str:
    """The index of the replica along an axis, ui32[]."""
    size, stride, u32 = axes.size(name), axes.stride(name), array_type((), dtypes.uint32)
    index = e.emit(f"stablehlo.{'partition' if axes.partitions else 'replica'}_id : tensor<ui32>")
    if axes.order:                                      # partition -> its place in the mesh
        places = array_type((axes.count,), dtypes.uint32)
        table = e.emit(f"stablehlo.constant dense<{np.argsort(axes.order).tolist()}> : {places.mlir}")
        row = e.emit(f"stablehlo.dynamic_slice {table}, {index}, sizes = [1] : ({places.mlir}, tensor<ui32>) -> tensor<1xui32>")
        index = e.emit(f"stablehlo.reshape {row} : (tensor<1xui32>) -> tensor<ui32>")
    if stride != 1:
        index = e.emit(f"stablehlo.divide {index}, {e.constant(stride, u32)} : tensor<ui32>")
    if size * stride != axes.count:
        index = e.emit(f"stablehlo.remainder {index}, {e.constant(size, u32)} : tensor<ui32>")
    return index


@lowers(collectives.axis_index_p)
def _axis_index(e, eqn):
    return e.convert(replica_index(e, e.axes, eqn.params["axis_name"]), array_type((), dtypes.uint32), dtypes.int32)
