"""How slices, padding, concatenation, reversal and iota are written."""
from typing import Sequence

from lowering.emit import lowers
from mini_jax.core import dtypes
from mini_jax.core.types import array_type
from mini_jax.lax import slicing


def slice_text(x: str, have, out, start: Sequence[int], limit: Sequence[int], strides: Sequence[int] | None = None) -> str:
    """stablehlo.slice of `x`, of type `have`, to type `out`."""
    bounds = ", ".join([f"{a}:{b}" if s == 1 else f"{a}:{b}:{s}" for a, b, s in zip(start, limit, strides or (1,) * len(start))])
    return f"stablehlo.slice {x} [{bounds}] : ({have.mlir}) -> {out.mlir}"


@lowers(slicing.slice_p)
def _slice(e, eqn, x):
    aval, out, p = eqn.invars[0].aval, eqn.outvars[0].aval, eqn.params
    return e.emit(slice_text(x, aval, out, p["start_indices"], p["limit_indices"], p["strides"]))


@lowers(slicing.split_p)
def _split(e, eqn, x):
    aval, axis, start, parts = eqn.invars[0].aval, eqn.params["axis"], 0, []
    for out in eqn.out_types:
        low, high = [0] * aval.ndim, list(aval.shape)
        low[axis], high[axis] = start, start + out.shape[axis]
        parts.append(e.emit(slice_text(x, aval, out, low, high)))
        start = high[axis]
    return parts


def index_operands(e, operands: Sequence[str], types: Sequence) -> tuple[list[str], str]:
    """Integer operands of any dtypes at one that XLA indexes with safely, and its type's name: int32 unless one is wider.

    In a narrow dtype XLA's bounds checks overflow: a dimension of size 300 has no place in uint8.
    """
    wide = any([dtypes.itemsize_bits(t.dtype) > 32 or t.dtype == dtypes.uint32 for t in types])
    dtype = dtypes.int64 if wide else dtypes.int32
    out = []
    for x, t in zip(operands, types):
        if t.dtype == dtypes.uint64:                     # what int64 can't hold is out of bounds in any case
            x = e.emit(f"stablehlo.minimum {x}, {e.constant(2**62, t)} : {t.mlir}")
        out.append(e.convert(x, t, dtype))
    return out, dtype


@lowers(slicing.dynamic_slice_p)
def _dynamic_slice(e, eqn, x, *starts):
    aval, out = eqn.invars[0].aval, eqn.outvars[0].aval
    if not starts:
        return x
    starts, dtype = index_operands(e, starts, eqn.in_types[1:])
    kinds = ", ".join([aval.mlir, *[array_type((), dtype).mlir] * len(starts)])
    return e.emit(f"stablehlo.dynamic_slice {x}, {', '.join(starts)}, sizes = {list(out.shape)} : ({kinds}) -> {out.mlir}")


@lowers(slicing.dynamic_update_slice_p)
def _dynamic_update_slice(e, eqn, x, update, *starts):
    aval, new = eqn.in_types[:2]
    if not starts:
        return update
    starts, dtype = index_operands(e, starts, eqn.in_types[2:])
    kinds = ", ".join([aval.mlir, new.mlir, *[array_type((), dtype).mlir] * len(starts)])
    return e.emit(f"stablehlo.dynamic_update_slice {', '.join([x, update, *starts])} : ({kinds}) -> {aval.mlir}")


def whole_bytes(dtype):
    """The dtype, or one of whole bytes that holds its values: XLA's CPU compiler aborts on some operations on parts of a byte."""
    if dtypes.is_extended(dtype) or dtypes.itemsize_bits(dtype) >= 8:
        return dtype
    return dtypes.int8 if dtypes.is_signed(dtype) else dtypes.uint8 if dtypes.is_integer(dtype) else dtypes.bfloat16


@lowers(slicing.pad_p)
def _pad(e, eqn, x, value):
    aval, scalar = eqn.in_types
    low, high, interior = [[entry[k] for entry in eqn.params["padding_config"]] for k in range(3)]
    if not aval.ndim:
        return x
    out, dtype = eqn.outvars[0].aval, whole_bytes(aval.dtype)
    wide, kinds = out.update(dtype=dtype), (aval.update(dtype=dtype), scalar.update(dtype=dtype))
    padded = e.emit(f"stablehlo.pad {e.convert(x, aval, dtype)}, {e.convert(value, scalar, dtype)}, low = {low}, high = {high}, "
                    f"interior = {interior} : ({kinds[0].mlir}, {kinds[1].mlir}) -> {wide.mlir}")
    return e.convert(padded, wide, out.dtype)


@lowers(slicing.concatenate_p)
def _concatenate(e, eqn, *operands):
    out = eqn.outvars[0].aval
    dtype = whole_bytes(out.dtype)
    operands = [e.convert(x, t, dtype) for x, t in zip(operands, eqn.in_types)]
    wide, kinds = out.update(dtype=dtype), ", ".join([t.update(dtype=dtype).mlir for t in eqn.in_types])
    joined = e.emit(f"stablehlo.concatenate {', '.join(operands)}, dim = {eqn.params['dimension']} : ({kinds}) -> {wide.mlir}")
    return e.convert(joined, wide, out.dtype)


@lowers(slicing.rev_p)
def _rev(e, eqn, x):
    return e.emit(f"stablehlo.reverse {x}, dims = {list(eqn.params['dimensions'])} : {eqn.outvars[0].aval.mlir}")


@lowers(slicing.iota_p)
def _iota(e, eqn):
    out, dimension = eqn.outvars[0].aval, eqn.params["dimension"]
    counted = out
    if dtypes.is_complex(out.dtype) or dtypes.itemsize_bits(out.dtype) < 16:        # XLA counts in numbers of 16 bits and more
        counted = out.update(dtype=dtypes.to_real(out.dtype) if dtypes.is_complex(out.dtype) else dtypes.int32)
    return e.convert(e.emit(f"stablehlo.iota dim = {dimension} : {counted.mlir}"), counted, out.dtype)
