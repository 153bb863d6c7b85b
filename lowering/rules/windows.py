"""How reductions over windows are written: small windows entry by entry, which XLA makes one loop of; large ones as reduce_window."""
from __future__ import annotations

from functools import reduce
from itertools import product
from math import prod

from lowering.emit import KEPT, lowers
from lowering.rules.reductions import combine, compare, misses_nan, narrow_to_order, squares, wide_dtype, with_nan
from mini_jax.core import dtypes
from mini_jax.core.staging import stage
from mini_jax.lax import elementwise as ew
from mini_jax.lax.reductions import identity, reduce_max_p, reduce_min_p
from mini_jax.lax.selection import select_n
from mini_jax.lax.shapes import broadcast, broadcast_in_dim, expand_dims, reduce_sum_p, reshape, transpose
from mini_jax.lax.slicing import concatenate, pad
from mini_jax.lax.windows import (offsets_of, put_back, reduce_window_max_p, reduce_window_min_p, reduce_window_p, reduce_window_sum_p,
                                  select_and_gather_add_p, select_and_scatter_add_p, selected_entry, under_window)

_FEW = 32                                                    # entries of a window that is written entry by entry

_MONOIDS = {reduce_window_sum_p: ("add", reduce_sum_p), reduce_window_max_p: ("maximum", reduce_max_p),
            reduce_window_min_p: ("minimum", reduce_min_p)}


@lowers(reduce_window_sum_p, reduce_window_max_p, reduce_window_min_p)
def _reduce_window_monoid(e, eqn, x):
    aval, out = eqn.invars[0].aval, eqn.outvars[0].aval
    operation, reduction = _MONOIDS[eqn.primitive]
    fill = identity(reduction, aval.dtype)
    if 0 in out.shape:
        return e.constant(0, out)
    dtype = (wide_dtype if operation == "add" else narrow_to_order)(aval.dtype)
    wide, result = aval.update(dtype=dtype), out.update(dtype=dtype)
    x = e.convert(x, aval, dtype)
    if dtypes.is_bool(dtype):
        operation = {"maximum": "or", "minimum": "and"}[operation]
    fill = fill.astype(dtype)
    few = prod(eqn.params["window_dimensions"]) <= _FEW
    if operation == "add" and aval.size and _spreads(eqn.params, few):
        y, = e.via(lambda x: [_spread(x, result.shape, **eqn.params)], [wide], [x])
    elif few:
        y, *entries = e.via(lambda x: under_window(x, fill, **eqn.params), [wide], [x])
        for entry in entries:
            y = combine(e, operation, y, entry, result)
    else:
        scalar = wide.update(shape=())

        def over_windows(operation, x, fill):
            region = lambda inner, a, b: [(combine(inner, operation, a, b, scalar), scalar.mlir)]
            return _native(e, eqn.params, [x], [wide], [e.constant(fill, scalar)], [result], region)[0]
        y = over_windows(operation, x, fill)
        if operation != "add" and misses_nan(e, wide):
            y = with_nan(e, y, over_windows("add", squares(e, x, wide), 0), result)
    return e.convert(y, result, out.dtype)


def _native(e, params, operands, types, inits, outs, region) -> list[str]:
    """stablehlo.reduce_window of operands and inits of these types."""
    scalars = [t.update(shape=()).mlir for t in types]
    body = e.region(scalars * 2, region)
    ints = lambda name: f"array<i64: {', '.join(map(str, params[name]))}>" if params[name] else "array<i64>"
    pads = f"dense<{[list(pair) for pair in params['padding']] or ''}> : tensor<{len(params['padding'])}x2xi64>"
    ins = ", ".join([t.mlir for t in types] + scalars)
    return e.emit_many(
        f'"stablehlo.reduce_window"({", ".join([*operands, *inits])}) ({body}) {{window_dimensions = {ints("window_dimensions")}, '
        f'window_strides = {ints("window_strides")}, base_dilations = {ints("base_dilation")}, window_dilations = {ints("window_dilation")}, '
        f"padding = {pads}}} : ({ins}) -> ({', '.join([t.mlir for t in outs])})", len(outs))


@lowers(reduce_window_p)
def _reduce_window(e, eqn, *operands):
    n, outs = len(operands) // 2, eqn.out_types
    jaxpr, params = eqn.params["jaxpr"], eqn.params
    if 0 in outs[0].shape:
        return [e.constant(0, out) for out in outs]
    scalars = [t.update(shape=()).mlir for t in outs]
    region = lambda inner, *xs: list(zip(inner.inline(jaxpr, xs), scalars))
    return _native(e, params, operands[:n], eqn.in_types[:n], operands[n:], outs, region)


# --- the extremum's tangent and cotangent -------------------------------------------------------------------------------------------

def _chosen(e, x, aval, params, places):
    """The selected entry of each window, in a call that XLA keeps: fused, it would be computed anew for every entry that it is compared
    with. Its name and its type."""
    jaxpr, _ = stage(lambda x: [selected_entry(x, **params)], (aval,))
    chosen = aval.update(shape=places, dtype=dtypes.int32)
    if e.module.platform != "cpu":
        return e.call(jaxpr, [x], "selected_entry")[0], chosen
    function = e.module.function(jaxpr, "selected_entry", e.axes)
    return e.emit(f"func.call @{function}({x}){KEPT} : ({aval.mlir}) -> {chosen.mlir}"), chosen


@lowers(select_and_gather_add_p)
def _select_and_gather_add(e, eqn, t, x):
    t_type, aval, out = eqn.invars[0].aval, eqn.invars[1].aval, eqn.outvars[0].aval
    params = {name: value for name, value in eqn.params.items() if name != "select_prim"}
    if 0 in out.shape:
        return e.constant(0, out)
    if prod(params["window_dimensions"]) <= _FEW:
        def gathered(t, chosen):
            zero = t.dtype.type(0)
            y = broadcast(zero, out.shape)
            for k, entry in enumerate(under_window(t, zero, **params)):
                y = select_n(ew.eq(chosen, chosen.dtype.type(k)), y, entry)
            return [y]
        chosen, chosen_type = _chosen(e, x, aval, eqn.params, out.shape)
        return e.via(gathered, [t_type, chosen_type], [t, chosen])[0]
    value, tangent = aval.update(shape=()), t_type.update(shape=())
    worst, flag = _worst(eqn.params, aval.dtype), value.update(dtype=dtypes.bool_).mlir

    def keep(inner, a, ta, b, tb):
        first = compare(inner, eqn.params["select_prim"].upper(), a, b, value)
        return [(inner.emit(f"stablehlo.select {first}, {p}, {q} : {flag}, {s.mlir}"), s.mlir) for p, q, s in ((a, b, value), (ta, tb, tangent))]
    return _native(e, params, [x, t], [aval, t_type], [e.constant(worst, value), e.constant(0, tangent)],
                   [aval.update(shape=out.shape), out], keep)[1]


@lowers(select_and_scatter_add_p)
def _select_and_scatter_add(e, eqn, source, x):
    s_type, aval, out = eqn.invars[0].aval, eqn.invars[1].aval, eqn.outvars[0].aval
    params = {name: value for name, value in eqn.params.items() if name != "select_prim"}
    if 0 in (*s_type.shape, *out.shape):
        return e.constant(0, out)
    dilations = (*params["base_dilation"], *params["window_dilation"])
    if prod(params["window_dimensions"]) <= _FEW or any([d > 1 for d in dilations]) or min([min(pair) for pair in params["padding"]]) < 0:
        def scattered(source, chosen):
            zero = source.dtype.type(0)
            parts = [(offset, select_n(ew.eq(chosen, chosen.dtype.type(k)), zero, source)) for k, offset in enumerate(offsets_of(params))]
            if all([d == 1 for d in params["base_dilation"]]):
                return [_interleaved(parts, zero, out.shape, params["window_strides"], params["padding"])]
            return [reduce(ew.add, [put_back(part, offset, out.shape, **params) for offset, part in parts])]
        chosen, chosen_type = _chosen(e, x, aval, eqn.params, s_type.shape)
        return e.via(scattered, [s_type, chosen_type], [source, chosen])[0]
    value, term = aval.update(shape=()), s_type.update(shape=())
    flag = value.update(dtype=dtypes.bool_).mlir
    select = e.region([value.mlir] * 2, lambda inner, a, b: [(compare(inner, eqn.params["select_prim"].upper(), a, b, value), flag)])
    scatter = e.region([term.mlir] * 2, lambda inner, a, b: [(inner.emit(f"stablehlo.add {a}, {b} : {term.mlir}"), term.mlir)])
    ints = lambda name: f"array<i64: {', '.join(map(str, params[name]))}>"
    pads = f"dense<{[list(pair) for pair in params['padding']]}> : tensor<{aval.ndim}x2xi64>"
    return e.emit(f'"stablehlo.select_and_scatter"({x}, {source}, {e.constant(0, term)}) ({select}, {scatter}) {{window_dimensions = '
                  f'{ints("window_dimensions")}, window_strides = {ints("window_strides")}, padding = {pads}}} : '
                  f"({aval.mlir}, {s_type.mlir}, {term.mlir}) -> {out.mlir}")


def _spreads(params, few: bool) -> bool:
    """Is this the transpose of a sum over strided windows, of few entries or side by side? It adds each entry to all that it was the sum of."""
    distances = params["base_dilation"]
    return (any([d > 1 for d in distances]) and all([s == 1 for s in params["window_strides"]])
            and (few or distances == params["window_dimensions"] and all([d == 1 for d in params["window_dilation"]])))


def _spread(x, shape, *, window_dimensions, base_dilation, window_dilation, padding, **_):
    """Each entry of x at all entries of its window, where windows stand base_dilation apart; what overlaps is added."""
    offsets = offsets_of(dict(window_dimensions=window_dimensions, window_dilation=window_dilation))
    before = [(max(offset) - low, 0) for offset, (low, _) in zip(zip(*offsets), padding)]
    return _interleaved([(offset, x) for offset in offsets], x.dtype.type(0), shape, base_dilation, before)


def _interleaved(parts, zero, shape, strides, padding):
    """The sum of arrays put back at their offsets, stride entries apart. Those whose offsets agree modulo the strides are added as they
    are, moved by whole steps; the sums are then interleaved."""
    places = parts[0][1].shape
    steps = [tuple([i // s for i, s in zip(offset, strides)]) for offset, _ in parts]
    sizes = [m + max(moves) for m, moves in zip(places, zip(*steps))]
    sums = []
    for residue in product(*map(range, strides)):
        moved = [pad(part, zero, [(step, size - m - step, 0) for step, size, m in zip(move, sizes, places)])
                 for move, (offset, part) in zip(steps, parts) if all([i % s == r for i, s, r in zip(offset, strides, residue)])]
        sums.append(reduce(ew.add, moved) if moved else broadcast(zero, sizes))
    n = len(shape)
    whole = [size * s for size, s in zip(sizes, strides)]
    if len({id(part) for _, part in parts}) == 1 and len(parts) == len(sums) and all([step == (0,) * n for step in steps]):
        twice = [d for size, s in zip(sizes, strides) for d in (size, s)]              # windows side by side: one part, repeated
        y = reshape(broadcast_in_dim(parts[0][1], twice, range(0, 2 * n, 2)), whole)
    elif len(sums) > 1:
        y = reshape(concatenate([expand_dims(y, (0,)) for y in sums], 0), (*strides, *sizes))
        y = reshape(transpose(y, [d for i in range(n) for d in (n + i, i)]), whole)
    else:
        y, = sums
    return pad(y, zero, [(-low, size + low - have, 0) for size, (low, _), have in zip(shape, padding, y.shape)])


def _worst(params, dtype):
    return identity(reduce_max_p if params["select_prim"] == "ge" else reduce_min_p, dtype)
