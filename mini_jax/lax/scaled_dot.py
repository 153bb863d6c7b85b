"""Scaled products: of matrices in narrow dtypes, blocks of which have a scale in common (OCP Microscaling Formats, 2023)."""
from __future__ import annotations

from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.lax import elementwise
from mini_jax.lax.dot import DotDimensionNumbers, dot_general
from mini_jax.lax.shapes import broadcast_in_dim, convert_element_type, reshape

__all__ = ["scaled_dot"]


def scaled_dot(lhs, rhs, *, lhs_scale=None, rhs_scale=None, dimension_numbers: DotDimensionNumbers | None = None, preferred_element_type=None):
    """(lhs · lhs_scale) (rhs · rhs_scale), computed in preferred_element_type.

    lhs, rhs: of floating dtypes. lhs_scale, rhs_scale: of the operand's shape, but that in a contracted dimension one entry serves a block of
    entries, of equal sizes; None is 1. dimension_numbers: as for dot_general; by default those of matrices, or of stacks of matrices.
    preferred_element_type: bfloat16 (the default) or float32. Raises TypeError for shapes and dtypes that don't fit.
    """
    a, b = typeof(lhs), typeof(rhs)
    where = f"lax.scaled_dot({a}, {b})"
    if dimension_numbers is None:
        if a.ndim != b.ndim or a.ndim not in (2, 3):
            raise TypeError(f"{where}: without dimension_numbers both operands must have two dimensions, or both three")
        k = a.ndim - 1
        dimension_numbers = ((k,), (k - 1,)), (tuple(range(k - 1)),) * 2
    dtype = dtypes.bfloat16 if preferred_element_type is None else dtypes.canonicalize(preferred_element_type)
    if dtype not in (dtypes.bfloat16, dtypes.float32):
        raise TypeError(f"{where}: preferred_element_type must be bfloat16 or float32, got {dtype}")
    try:
        (contract, rhs_contract), _ = dimension_numbers
        contract, rhs_contract = tuple(contract), tuple(rhs_contract)
    except (TypeError, ValueError):
        raise TypeError(f"{where}: dimension_numbers must be as for dot_general, got {dimension_numbers!r:.200}") from None
    x = _scaled(where, "lhs_scale", lhs, lhs_scale, contract, dtype)
    return dot_general(x, _scaled(where, "rhs_scale", rhs, rhs_scale, rhs_contract, dtype), dimension_numbers, preferred_element_type=dtype)


def _scaled(where: str, name: str, x, scale, contract, dtype):
    """x in dtype, each block times its scale."""
    aval = typeof(x)
    if not dtypes.is_floating(aval.dtype):
        raise TypeError(f"{where}: operands must be floating")
    x = convert_element_type(x, dtype)
    if scale is None:
        return x
    s = typeof(scale)
    if s.ndim != aval.ndim or not dtypes.is_floating(s.dtype):
        raise TypeError(f"{where}: {name} must be floating, with as many dimensions as its operand, got {s}")
    for d, (n, blocks) in enumerate(zip(aval.shape, s.shape)):
        if n != blocks and (d not in contract or not blocks or n % blocks):
            raise TypeError(f"{where}: {name}, {s}, must have its operand's size in dimension {d}"
                            + (", or divide it" if d in contract else ", which is not contracted"))
    parts = [part for n, blocks in zip(aval.shape, s.shape) for part in (blocks, n // blocks if blocks else 0)]
    wide = broadcast_in_dim(convert_element_type(scale, dtype), tuple(parts), tuple(range(0, 2 * s.ndim, 2)))
    return elementwise.mul(x, reshape(wide, aval.shape))
