"""How convolutions are written: as products where nothing slides, and in the dtypes of XLA's fast kernels."""
from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from lowering.emit import lowers
from lowering.loops import counted
from lowering.rules.reductions import compare
from mini_jax.core import dtypes
from mini_jax.lax.convolution import conv_general_dilated_p, dilated
from mini_jax.lax.dot import dot_general
from mini_jax.lax.elementwise import add, div, mul, rem
from mini_jax.lax.shapes import broadcast_in_dim, expand_dims, reduce_sum, reshape, transpose
from mini_jax.lax.slicing import concatenate, dynamic_slice, dynamic_update_slice, pad, slice


@lowers(conv_general_dilated_p)
def _conv_general_dilated(e, eqn, lhs, rhs):
    a, b, out = eqn.invars[0].aval, eqn.invars[1].aval, eqn.outvars[0].aval
    if 0 in (a.size, b.size, out.size):
        return e.constant(0, out)
    if _nothing_slides(eqn.params, b.shape, out.shape):
        return e.via(lambda x, w: [_product(x, w, out, **eqn.params)], eqn.in_types, (lhs, rhs))[0]
    places = [out.shape[s] for s in eqn.params["dimension_numbers"].out_spec[2:]]
    each_alone = _one_feature_each(eqn.params, a.shape, b.shape)
    if eqn.params["batch_group_count"] > 1 and not each_alone and prod(places) <= _FEW:
        return e.via(lambda x, w: [_place_by_place(x, w, out, **eqn.params)], eqn.in_types, (lhs, rhs))[0]
    dtype = _compute_dtype(a.dtype, out.dtype)
    lhs, rhs = e.convert(lhs, a, dtype), e.convert(rhs, b, dtype)
    a, b, result = a.update(dtype=dtype), b.update(dtype=dtype), out.update(dtype=dtype)
    windows = [b.shape[k] for k in eqn.params["dimension_numbers"].rhs_spec[2:]]
    if each_alone and eqn.params["batch_group_count"] > 1 and prod(places) <= 4 * _FEW:
        y = _kernel_of_features(e, lhs, a, rhs, b, result, **eqn.params)
    elif each_alone and eqn.params["batch_group_count"] == 1 and prod(windows) <= _FEW:
        y = e.via(lambda x, w: [_feature_by_feature(x, w, out, **eqn.params)], (a, b), (lhs, rhs))[0]
    elif not dtypes.is_complex(dtype):
        y = _convolution(e, eqn.params, lhs, a, rhs, b, result)
    else:
        y = _complex_convolution(e, eqn.params, lhs, a, rhs, b, result)
    if dtypes.is_bool(out.dtype):
        return compare(e, "NE", y, e.constant(0, result), result)
    return e.convert(y, result, out.dtype)


def _compute_dtype(dtype, out):
    """Narrow numbers are multiplied and added in 32 bits; of booleans, products are counted."""
    if dtypes.is_complex(dtype):
        return out
    if dtypes.is_floating(out) or dtypes.is_bool(out):
        return dtypes.float64 if out == dtypes.float64 else dtypes.float32
    return dtypes.int32 if dtypes.itemsize_bits(out) < 32 else out


def _convolution(e, params, lhs, a, rhs, b, out) -> str:
    """XLA's CPU compiler has fast kernels for batch first and features last, and rewrites others so only outside of functions and loops."""
    numbers, n = params["dimension_numbers"], a.ndim - 2
    if e.module.platform == "cpu" and n:
        outer, spatial = range(n + 2), tuple(range(1, n + 1))
        wanted = ((0, n + 1, *spatial), (n + 1, n, *range(n)), (0, n + 1, *spatial))
        if numbers != wanted:
            orders = [[spec[want.index(d)] for d in outer] for spec, want in zip(numbers, wanted)]
            lhs, a = _moved(e, lhs, a, orders[0])
            rhs, b = _moved(e, rhs, b, orders[1])
            inner = out.update(shape=tuple([out.shape[d] for d in orders[2]]))
            y = _convolution(e, params | {"dimension_numbers": type(numbers)(*wanted)}, lhs, a, rhs, b, inner)
            return _moved(e, y, inner, [orders[2].index(d) for d in outer])[0]
    specs = []
    for spec, letters in zip(numbers, ("bf", "oi", "bf")):
        names = dict(zip(spec, (*letters, *range(n))))
        specs.append("[" + ", ".join([str(names[d]) for d in range(n + 2)]) + "]")
    window = [f"stride = {list(params['window_strides'])}", f"pad = {[list(pair) for pair in params['padding']]}",
              f"lhs_dilate = {list(params['lhs_dilation'])}", f"rhs_dilate = {list(params['rhs_dilation'])}"] if n else []
    precision = params["precision"]
    exact = (f", precision_config = [#stablehlo<precision {precision[0]}>, #stablehlo<precision {precision[1]}>]"
             if type(precision) is tuple else "")
    return e.emit(f"stablehlo.convolution({lhs}, {rhs}) dim_numbers = {specs[0]}x{specs[1]}->{specs[2]}, window = {{{', '.join(window)}}} "
                  f"{{batch_group_count = {params['batch_group_count']} : i64, feature_group_count = {params['feature_group_count']} : i64"
                  f"{exact}}} : ({a.mlir}, {b.mlir}) -> {out.mlir}")


def _moved(e, x, aval, order):
    """The operand with its dimensions in this order."""
    moved = aval.update(shape=tuple([aval.shape[d] for d in order]))
    if list(order) == list(range(aval.ndim)):
        return x, aval
    return e.emit(f"stablehlo.transpose {x}, dims = {list(order)} : ({aval.mlir}) -> {moved.mlir}"), moved


def _complex_convolution(e, params, lhs, a, rhs, b, out) -> str:
    """(p + iq) ∗ (r + is) = (p∗r - q∗s) + i(p∗s + q∗r): real convolutions, for which XLA has fast kernels."""
    real = lambda t: t.update(dtype=dtypes.to_real(t.dtype))
    part = lambda which, x, t: e.emit(f"stablehlo.{which} {x} : ({t.mlir}) -> {real(t).mlir}")
    (p, q), (r, s) = [[part(which, x, t) for which in ("real", "imag")] for x, t in ((lhs, a), (rhs, b))]
    times = lambda x, y: _convolution(e, params, x, real(a), y, real(b), real(out))
    re = e.emit(f"stablehlo.subtract {times(p, r)}, {times(q, s)} : {real(out).mlir}")
    im = e.emit(f"stablehlo.add {times(p, s)}, {times(q, r)} : {real(out).mlir}")
    return e.emit(f"stablehlo.complex {re}, {im} : {out.mlir}")


# --- groups -----------------------------------------------------------------------------------------------------------------------------
#
# XLA's CPU compiler has no fast kernels for groups, and writes batch groups as one convolution of everything with everything.

_FEW = 32                                                # windows or places that are written one by one


def _placed(lhs, params, place):
    """The parameters with which the convolution has one place, `place` of those it has."""
    lhs_spec, rhs_spec, _ = params["dimension_numbers"]
    pads = []
    for n, p, stride, (low, _), base, window in zip([lhs.shape[d] for d in lhs_spec[2:]], place, params["window_strides"], params["padding"],
                                                    params["lhs_dilation"], params["window"]):
        pads.append((low - p * stride, window - low + p * stride - dilated(n, base)))
    return {name: value for name, value in params.items() if name != "window"} | {"padding": tuple(pads)}


def _place_by_place(lhs, rhs, out, **params):
    """Each place of the window as a product: a few large ones, in the gradient of a kernel."""
    _, rhs_spec, out_spec = params["dimension_numbers"]
    params["window"] = [dilated(rhs.shape[k], holes) for k, holes in zip(rhs_spec[2:], params["rhs_dilation"])]
    places = [out.shape[s] for s in out_spec[2:]]
    one = out.update(shape=tuple([1 if d in out_spec[2:] else n for d, n in enumerate(out.shape)]))
    parts = [_product(lhs, rhs, one, **_placed(lhs, params, place)) for place in product(*map(range, places))]
    return _joined(concatenate([expand_dims(part, (0,)) for part in parts], 0), places, out, out_spec)


def _joined(parts, places, out, out_spec):
    """Parts of the result, one for each place, put together."""
    kept = [d for d in range(out.ndim) if d not in out_spec[2:]]
    whole = reshape(parts, (*places, *[out.shape[d] for d in kept]))
    return transpose(whole, [out_spec[2:].index(d) if d in out_spec[2:] else len(places) + kept.index(d) for d in range(out.ndim)])


def _one_feature_each(params, lhs_shape, rhs_shape) -> bool:
    """Is each output feature made of one feature (or of one entry of the batch) of its own?"""
    lhs_spec, rhs_spec, _ = params["dimension_numbers"]
    features = rhs_shape[rhs_spec[0]]
    return (params["feature_group_count"] == features == lhs_shape[lhs_spec[1]] > 1
            or params["batch_group_count"] == features == lhs_shape[lhs_spec[0]] > 1)


def _padded(x, dimension_numbers, padding, dilation):
    config = [(0, 0, 0)] * x.ndim
    for d, (low, high), base in zip(dimension_numbers.lhs_spec[2:], padding, dilation):
        config[d] = (low, high, base - 1)
    return pad(x, x.dtype.type(0), config)


def _kernel_of_features(e, lhs, a, rhs, b, out, *, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, **_):
    """The gradient of the kernel where each feature stands alone: for each place, one after the other, a sum of products."""
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    like, summed = dict(zip(lhs_spec, rhs_spec)), tuple([d for d in range(a.ndim) if d != lhs_spec[0]])
    x, weights = e.via(lambda x, w: [_padded(x, dimension_numbers, padding, lhs_dilation), transpose(w, [like[d] for d in range(a.ndim)])],
                       (a, b), (lhs, rhs))
    padded = {d: dilated(a.shape[d], base) + sum(pair) for d, pair, base in zip(lhs_spec[2:], padding, lhs_dilation)}
    x_type = a.update(shape=tuple([padded.get(d, n) for d, n in enumerate(a.shape)]))
    w_type = b.update(shape=tuple([b.shape[like[d]] for d in range(a.ndim)]))
    places, windows = [out.shape[s] for s in out_spec[2:]], [b.shape[k] for k in rhs_spec[2:]]
    parts = out.update(shape=(prod(places), a.shape[lhs_spec[0]]), dtype=a.dtype)

    def of_place(x, weights, i, parts):
        starts, sizes, steps, rest = [np.int32(0)] * x.ndim, list(x.shape), [1] * x.ndim, i
        for d, count, window, stride, holes in reversed(list(zip(lhs_spec[2:], places, windows, window_strides, rhs_dilation))):
            starts[d], rest = mul(rem(rest, np.int32(count)), np.int32(stride)), div(rest, np.int32(count))
            sizes[d], steps[d] = dilated(window, holes), holes
        under = slice(dynamic_slice(x, starts, sizes), (0,) * x.ndim, sizes, steps)
        return [dynamic_update_slice(parts, expand_dims(reduce_sum(mul(under, weights), summed), (0,)), (i, np.int32(0)))]
    found, = counted(e, 0, prod(places), [e.constant(0, parts)], [parts],
                     lambda e, i, index, found: e.via(of_place, (x_type, w_type, index, parts), (x, weights, i, found)))
    return e.via(lambda parts: [_joined(parts, places, out.update(dtype=a.dtype), out_spec)], (parts,), (found,))[0]


def _feature_by_feature(lhs, rhs, out, *, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, **_):
    """Sums of multiples of moved features."""
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    x = _padded(lhs, dimension_numbers, padding, lhs_dilation)
    windows, places = [rhs.shape[k] for k in rhs_spec[2:]], [out.shape[s] for s in out_spec[2:]]

    def moved(offset, counts, strides):
        start, limit, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
        for d, at, count, stride in zip(lhs_spec[2:], offset, counts, strides):
            start[d], limit[d], steps[d] = at, at + dilated(count, stride), stride
        return slice(x, start, limit, steps)

    kernel, total = transpose(rhs, rhs_spec), None
    for entry in product(*map(range, windows)):
        part = moved([k * holes for k, holes in zip(entry, rhs_dilation)], places, window_strides)
        weight = slice(kernel, (0, 0, *entry), (kernel.shape[0], 1, *[k + 1 for k in entry]))
        term = mul(part, broadcast_in_dim(reshape(weight, (kernel.shape[0],)), part.shape, (lhs_spec[1],)))
        total = term if total is None else add(total, term)
    like = {s: d for s, d in zip(out_spec, lhs_spec)}
    return transpose(total, [like[d] for d in range(x.ndim)])


# --- convolutions that are products --------------------------------------------------------------------------------------------------

def _nothing_slides(params, rhs_shape, out_shape) -> bool:
    """In each spatial dimension the window is one entry, or has one place."""
    _, rhs_spec, out_spec = params["dimension_numbers"]
    return all([1 in (rhs_shape[k], out_shape[s]) for k, s in zip(rhs_spec[2:], out_spec[2:])])


def _product(lhs, rhs, out, *, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, feature_group_count, batch_group_count,
             precision, preferred_element_type):
    """A convolution in which nothing slides: dimensions with a window of one entry are free, the others are contracted.

    XLA takes a convolution as it is, e.g. the gradient of a pointwise kernel as one with a window as large as the image, which
    costs seven times the product (jaxlib 0.10).
    """
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    config, limits, steps, free, summed = [(0, 0, 0)] * lhs.ndim, list(lhs.shape), [1] * lhs.ndim, [], []
    for d, k, s, stride, (low, high), base, holes in zip(lhs_spec[2:], rhs_spec[2:], out_spec[2:], window_strides, padding, lhs_dilation,
                                                         rhs_dilation):
        window, places = rhs.shape[k], out.shape[s]
        config[d] = (low, high, base - 1)
        steps[d], limits[d] = (stride, dilated(places, stride)) if window == 1 else (holes, dilated(window, holes))
        (free if window == 1 else summed).append((d, k, s))
    if any([any(entry) for entry in config]):
        lhs = pad(lhs, lhs.dtype.type(0), config)
    lhs = slice(lhs, (0,) * lhs.ndim, limits, steps)

    groups = feature_group_count * batch_group_count
    grouped = lhs_spec[0 if batch_group_count > 1 else 1]
    split = lambda x, d: reshape(x, (*x.shape[:d], groups, x.shape[d] // groups, *x.shape[d + 1:]))
    lhs, rhs = split(lhs, grouped), split(rhs, rhs_spec[0])
    at = lambda d: d + (d >= grouped)                    # where a dimension of lhs stands after the split: the part behind the groups
    of = lambda k: k + (k >= rhs_spec[0])
    y = dot_general(lhs, rhs, (((at(lhs_spec[1]), *[at(d) for d, _, _ in summed]), (of(rhs_spec[1]), *[of(k) for _, k, _ in summed])),
                               ((grouped,), (rhs_spec[0],))), precision, preferred_element_type)
    # y: (groups, the free dimensions of lhs in their order, those of rhs in theirs: its output features, windows of one entry)
    left = [lhs_spec[0], *[d for d, _, _ in free]]
    right = [rhs_spec[0], *[k for _, k, _ in free]]
    place = {("lhs", d): 1 + i for i, d in enumerate(sorted(left))} | {("rhs", k): 1 + len(left) + i for i, k in enumerate(sorted(right))}
    order = {out_spec[0]: [place["lhs", lhs_spec[0]]], out_spec[1]: [0, place["rhs", rhs_spec[0]]]}
    order |= {s: [place["lhs", d]] for d, _, s in free} | {s: [] for _, _, s in summed}
    ones = [place["rhs", k] for _, k, _ in free]
    return reshape(transpose(y, [*sum([order[d] for d in range(out.ndim)], []), *ones]), out.shape)
