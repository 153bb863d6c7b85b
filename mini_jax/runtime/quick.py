"""With which of XLA's options an operation that runs by itself is compiled on CPU: the fastest to compile of those that run as fast.

Most of the time goes to XLA's fusion emitters (where there is but one operation, there is nothing to fuse) and to LLVM's optimisations (for a
few numbers, dispatch takes longer than the worst code). What is left out where, and what that was found to gain and to cost, kind by kind and
size by size, is in docs/performance_on_cpu.md. LLVM's optimisations also contract a * b + c into one rounding; where they might do that,
they are left on, so that an operation gives the same bits alone as within jit.
"""
from __future__ import annotations

import math
import re

from mini_jax.runtime import xla

TINY, SMALL = 64, 4096                            # entries of the largest array

# Operations that take entries from one place to another.
MOVES = frozenset("""bitcast_convert broadcast_in_dim compare concatenate constant convert dynamic_slice dynamic_update_slice gather iota pad reshape
    return reverse select slice transpose""".split())
# Operations whose machine code rounds alike whether LLVM optimises it or not (among real numbers).
EXACT = MOVES | frozenset("""abs add and ceil clamp count_leading_zeros divide erf exponential floor is_finite log maximum minimum multiply negate
    not or popcnt power reduce remainder round_nearest_afz round_nearest_even shift_left shift_right_arithmetic shift_right_logical sign sine
    cosine sqrt subtract xor""".split())
# Others that XLA writes as one loop over the result.
PLAIN = EXACT | frozenset("""acos acosh asin asinh atan2 atanh bessel_i1e cbrt complex cosh digamma erf_inv erfc exponential_minus_one imag lgamma
    log_plus_one logistic next_after polygamma real reduce_precision rsqrt sinh square tan tanh zeta""".split())

_NO_EMITTERS = {"xla_cpu_use_fusion_emitters": False} if xla.jaxlib_version < (0, 11) else {}        # 0.12 has nothing else
_NO_LLVM = {**_NO_EMITTERS, "xla_backend_optimization_level": 0}

_OPERATION = re.compile(r"hlo\.(\w+)")               # stablehlo.add, chlo.erf
_ATTRIBUTES = frozenset(["num_partitions", "num_replicas", "frontend_attributes"])      # mhlo.num_replicas
_SHAPE = re.compile(r"tensor<((?:\d+x)+)")
_FLOAT = re.compile(r"tensor<(?:\d+x)*b?f\d")


def options(text: str) -> dict:
    """XLA's options for a program of one device, an operation or a function of the library, by its text without places."""
    operations = _OPERATION.findall(text)
    used = frozenset(operations) - _ATTRIBUTES
    size = max([math.prod(map(int, shape[:-1].split("x"))) for shape in set(_SHAPE.findall(text))], default=1)
    if size <= TINY and used <= EXACT and "complex<" not in text and not _contracts(used, text):
        return _NO_LLVM
    if used <= PLAIN:
        computes = sum([operations.count(name) for name in used - MOVES])
        return _NO_EMITTERS if size <= SMALL or computes <= 1 else {}       # of several in one loop, the emitters make the better
    # Loops of arithmetic, and scatters, run faster by the emitters, whatever their size.
    return {} if size > TINY or "scatter" in used or used >= {"while", "divide"} else _NO_EMITTERS


def _contracts(used: frozenset, text: str) -> bool:
    """Might LLVM make one rounding of a product and a sum?"""
    return "multiply" in used and bool(used & {"add", "subtract"}) and _FLOAT.search(text) is not None
