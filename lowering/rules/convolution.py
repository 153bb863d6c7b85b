"""How convolutions are written: in the dtypes of XLA's fast kernels."""
from __future__ import annotations

from lowering.emit import lowers
from lowering.rules.reductions import compare
from mini_jax.core import dtypes
from mini_jax.lax.convolution import conv_general_dilated_p


@lowers(conv_general_dilated_p)
def _conv_general_dilated(e, eqn, lhs, rhs):
    a, b, out = eqn.invars[0].aval, eqn.invars[1].aval, eqn.outvars[0].aval
    if 0 in (a.size, b.size, out.size):
        return e.constant(0, out)
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
