"""With which of XLA's options a program with kept calls (lowering/outline.py) is compiled on CPU: what runs is as fast, and starts sooner.

- XLA gives each kept call a copy of the function, by default before it optimises, and then optimises every copy. Here it copies late.
- x + y and copies are by default written by XLA's tiled emitter, which takes three times as long as the others for loops as fast.
- Products and sums of floats are by default run by YNNPACK, which sets up each of them at its first run, in 1 to 3 ms: thousands of calls
  take seconds. Eigen's products need nothing, and take as long; but not those with a transposed matrix and few rows, which are slower, nor
  those of 16 or 8 bits. Sums along rows are as fast as XLA's own loops, into which their terms are fused; sums along columns are not.
"""
from __future__ import annotations

import math
import re

from mini_jax.runtime import xla

FEW_ROWS, SMALL_MATRIX = 128, 128 * 128          # of products with a transposed matrix
LONG_ROW, LARGE_COLUMNS = 4096, 256 * 1024       # of sums: the terms of one, and all that is summed along columns

_EXTRA = "xla_cpu_flatten_after_fusion" + ",xla_cpu_disable_tiled_emitter" * (xla.jaxlib_version < (0, 11))     # (0.12 rounds otherwise by it)
_TYPES = "xla_cpu_experimental_ynn_fusion_type"
_PRODUCT = re.compile(r"dot_general [^:]*?contracting_dims = \[(\d)\] x \[(\d)\][^:]*: \(tensor<([\dx]+)x\w+>, tensor<([\dx]+)x\w+>\)")
_SUM = re.compile(r"stablehlo\.reduce\([^\n]*?across dimensions = \[([\d, ]*)\] : \(tensor<([\dx]+)x\w+>")
_NARROW = re.compile(r"tensor<(?:\d+x)*(?:b?f16|u?i8|f8\w+)>")


def options(text: str) -> dict:
    """XLA's options for a program that a user wrote."""
    if 'inlineable = "false"' not in text:
        return {}
    chosen = {xla.EXTRA_OPTIONS: _EXTRA}
    if _NARROW.search(text) is None and all([_fast_product(*found) for found in set(_PRODUCT.findall(text))]):
        kinds = ["LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION"]
        if all([_fast_sum(*found) for found in set(_SUM.findall(text))]):
            chosen["xla_disable_hlo_passes"] = "tree_reduction_rewriter"       # it makes of each sum two, for XLA's older loops
        else:
            kinds.append("LIBRARY_FUSION_TYPE_REDUCE")
        chosen[_TYPES] = ",".join(kinds)
    return chosen


def _sizes(shape: str) -> list[int]:
    return [int(n) for n in shape.split("x")]


def _fast_product(i: str, j: str, lhs: str, rhs: str) -> bool:
    """Is Eigen's product as fast, contracted over these dimensions?"""
    lhs, rhs = _sizes(lhs), _sizes(rhs)
    if int(j) != len(rhs) - 1 or len(rhs) < 2:
        return True                              # not transposed
    terms = rhs[-1]
    batch = math.prod(rhs[:-2])
    return math.prod(lhs) >= batch * terms * FEW_ROWS or math.prod(rhs) <= batch * SMALL_MATRIX


def _fast_sum(dims: str, shape: str) -> bool:
    """Are XLA's own loops as fast, and as precise?"""
    shape = _sizes(shape)
    summed = {int(d) for d in dims.split(",") if d}
    sized = [d for d, n in enumerate(shape) if n != 1]
    along_rows = sized[len(sized) - len(summed & set(sized)):] == sorted(summed & set(sized))
    return math.prod([shape[d] for d in summed]) <= LONG_ROW and (along_rows or math.prod(shape) <= LARGE_COLUMNS)
