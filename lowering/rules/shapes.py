"""How broadcasts, sums of cotangents, reshapes and conversions are written."""
from lowering.emit import lowers
from mini_jax.core import dtypes
from mini_jax.core.program import Literal
from mini_jax.lax import shapes


@lowers(shapes.broadcast_in_dim_p)
def _broadcast_in_dim(e, eqn, x):
    aval, out = eqn.invars[0].aval, eqn.outvars[0].aval
    if aval.shape == out.shape:
        return x
    if type(eqn.invars[0]) is Literal:
        return e.constant(eqn.invars[0].val, out)
    return e.broadcast(x, aval, out.shape, eqn.params["broadcast_dimensions"])


@lowers(shapes.reshape_p, shapes.squeeze_p)
def _reshape(e, eqn, x):
    return e.reshape(x, eqn.invars[0].aval, eqn.outvars[0].aval.shape)


@lowers(shapes.transpose_p)
def _transpose(e, eqn, x):
    aval, out = eqn.invars[0].aval, eqn.outvars[0].aval
    return e.emit(f"stablehlo.transpose {x}, dims = {list(eqn.params['permutation'])} : ({aval.mlir}) -> {out.mlir}")


@lowers(shapes.add_any_p)
def _add_any(e, eqn, x, y):
    return e.emit(f"stablehlo.add {x}, {y} : {eqn.outvars[0].aval.mlir}")


@lowers(shapes.convert_element_type_p)
def _convert(e, eqn, x):
    aval, dtype = eqn.invars[0].aval, eqn.params["new_dtype"]
    if dtypes.is_complex(aval.dtype) and not dtypes.is_complex(dtype) and dtype != dtypes.bool_:
        real = aval.update(dtype=dtypes.to_real(aval.dtype))
        x, aval = e.emit(f"stablehlo.real {x} : ({aval.mlir}) -> {real.mlir}"), real
    if dtype == dtypes.bool_ and aval.dtype != dtypes.bool_:        # a conversion to i1 would keep the lowest bit only
        kind = "FLOAT" if dtypes.is_inexact(aval.dtype) else "SIGNED" if dtypes.is_signed(aval.dtype) else "UNSIGNED"
        return e.emit(f"stablehlo.compare NE, {x}, {e.constant(0, aval)}, {kind} : ({aval.mlir}, {aval.mlir}) -> {eqn.outvars[0].aval.mlir}")
    return e.convert(x, aval, dtype)
