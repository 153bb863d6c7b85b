"""With which of XLA's options a large program is compiled on CPU: what is compiled then is the same kernels, and sooner.

XLA gives each kept call a copy of the function in its own program, and by default does so before it optimises: it then optimises every copy.
And by default products of floats are each set up by YNNPACK at their first run, which takes 1 to 3 ms a product. Eigen's take nothing, and run as fast;
where operands are of 16 or 8 bits YNNPACK's run two to four times as fast, and stay.
"""
from __future__ import annotations

from mini_jax.runtime import xla

MANY_PRODUCTS = 8

_COPIED_LATE = {xla.EXTRA_OPTIONS: "xla_cpu_flatten_after_fusion"}
_PRODUCTS_OF_EIGEN = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION,LIBRARY_FUSION_TYPE_REDUCE"}


def options(text: str) -> dict:
    """XLA's options for a program of one that the user wrote."""
    kept = 'inlineable = "false"' in text
    many = kept or text.count("stablehlo.dot_general") >= MANY_PRODUCTS
    narrow = many and ("f16>" in text or "i8>" in text or "xf8" in text)
    return {**(_COPIED_LATE if kept else {}), **(_PRODUCTS_OF_EIGEN if many and not narrow else {})}
