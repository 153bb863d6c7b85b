"""How convolutions are written: as products where nothing slides, and in the dtypes of XLA's fast kernels."""
from __future__ import annotations

from lowering.emit import lowers
from lowering.rules.reductions import compare
from mini_jax.core import dtypes
from mini_jax.lax.convolution import conv_general_dilated_p, dilated
from mini_jax.lax.dot import dot_general
from mini_jax.lax.shapes import reshape, transpose
from mini_jax.lax.slicing import pad, slice


@lowers(conv_general_dilated_p)
def _conv_general_dilated(e, eqn, lhs, rhs):
    a, b, out = eqn.invars[0].aval, eqn.invars[1].aval, eqn.outvars[0].aval
    if 0 in (a.size, b.size, out.size):
        return e.constant(0, out)
    if _nothing_slides(eqn.params, b.shape, out.shape):
        return e.via(lambda x, w: [_product(x, w, out, **eqn.params)], eqn.in_types, (lhs, rhs))[0]
    dtype = _compute_dtype(a.dtype, out.dtype)
    lhs, rhs = e.convert(lhs, a, dtype), e.convert(rhs, b, dtype)
    a, b, result = a.update(dtype=dtype), b.update(dtype=dtype), out.update(dtype=dtype)
    if not dtypes.is_complex(dtype):
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
    numbers, n = params["dimension_numbers"], a.ndim - 2
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


def _complex_convolution(e, params, lhs, a, rhs, b, out) -> str:
    """(p + iq) ∗ (r + is) = (p∗r - q∗s) + i(p∗s + q∗r): real convolutions, for which XLA has fast kernels."""
    real = lambda t: t.update(dtype=dtypes.to_real(t.dtype))
    part = lambda which, x, t: e.emit(f"stablehlo.{which} {x} : ({t.mlir}) -> {real(t).mlir}")
    (p, q), (r, s) = [[part(which, x, t) for which in ("real", "imag")] for x, t in ((lhs, a), (rhs, b))]
    times = lambda x, y: _convolution(e, params, x, real(a), y, real(b), real(out))
    re = e.emit(f"stablehlo.subtract {times(p, r)}, {times(q, s)} : {real(out).mlir}")
    im = e.emit(f"stablehlo.add {times(p, s)}, {times(q, r)} : {real(out).mlir}")
    return e.emit(f"stablehlo.complex {re}, {im} : {out.mlir}")


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
