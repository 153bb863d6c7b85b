"""A loop that counts, for rules that write an operation as a loop."""
from __future__ import annotations

from typing import Callable, Sequence

from mini_jax.core import dtypes
from mini_jax.core.types import ShapedArray, array_type


def counted(e, start: int, stop: int, values: Sequence[str], types: Sequence[ShapedArray], body: Callable) -> list[str]:
    """The values after `values = body(e, i, index, *values)` for i from start to stop - 1; i is a scalar of type `index`."""
    index = array_type((), dtypes.int32 if stop < 2 ** 31 else dtypes.int64)
    kinds = [index.mlir, *[t.mlir for t in types]]

    def turn(e, i, *values):
        following = e.emit(f"stablehlo.add {i}, {e.constant(1, index)} : {index.mlir}")
        return list(zip([following, *body(e, i, index, *values)], kinds, strict=True))

    def goes_on(e, i, *_):
        less = e.emit(f"stablehlo.compare LT, {i}, {e.constant(stop, index)}, SIGNED : ({index.mlir}, {index.mlir}) -> tensor<i1>")
        return [(less, "tensor<i1>")]
    return e.emit_many(f'"stablehlo.while"({", ".join([e.constant(start, index), *values])}) ({e.region(kinds, goes_on)}, {e.region(kinds, turn)}) : '
                       f"({', '.join(kinds)}) -> ({', '.join(kinds)})", len(kinds))[1:]
