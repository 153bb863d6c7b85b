"""map: a function applied to one row after the other, or to one batch of rows after the other."""
from __future__ import annotations

from typing import Callable, Sequence

import numpy as np

from mini_jax.core.program import ProgramInfo
from mini_jax.core.trace import typeof
from mini_jax.core.tracebacks import boundary
from mini_jax.lax import shapes, slicing
from mini_jax.runtime import dispatch
from mini_jax.transforms.control.bodies import check_callable, flat_result, flatten
from mini_jax.transforms.control.scan import in_python, scan_flat, steps
from mini_jax.transforms.vmap import vmap

__all__ = ["map"]

_no_carry = flatten(())[1]


@boundary
def map(f: Callable, xs, *, batch_size: int | None = None):
    """f applied to each row of `xs`, one after the other: [f(x) for x in xs], stacked.

    xs: a pytree of arrays of one leading size; f: one row of each -> a pytree of arrays. The work is that of a scan, with memory for
    one row at a time; vmap does all at once.
    batch_size: rows done at once, by vmap; what doesn't fill a batch is done last.
    Raises ValueError where leading sizes disagree, or for a batch size that is not positive.
    """
    check_callable(f, "map: f")
    leaves, tree = flatten(xs)
    count = steps("map", leaves, tree)
    if batch_size is None:
        return _rows(f, _apply, leaves, tree, count)
    if not isinstance(batch_size, (int, np.integer)) or batch_size < 1:
        raise ValueError(f"map: batch_size is a number of rows, at least 1, got {batch_size!r}")
    full, left = divmod(count, int(batch_size))
    parts = []
    if full or not count:
        parts.append((full, int(batch_size), 0))
    if left:
        parts.append((1, left, full * int(batch_size)))
    results = [_rows(f, _apply_batch, [_batches(x, *part) for x in leaves], tree, part[0]) for part in parts]
    flat = [flatten(result) for result in results]
    ys = [[_unbatched(y) for y in ys] for ys, _ in flat]
    return flat[0][1].unflatten(ys[0] if len(ys) == 1 else [slicing.concatenate(pair, 0) for pair in zip(*ys)])


def _apply(f: Callable, info: ProgramInfo, x):
    ys, tree = flat_result(f(x), info)
    return ys, (_no_carry, tree)


def _apply_batch(f: Callable, info: ProgramInfo, x):
    return _apply(vmap(f), info, x)


def _rows(f: Callable, apply: Callable, leaves: Sequence, tree, count: int):
    if dispatch.disabled():
        batched = f if apply is _apply else vmap(f)
        return in_python(lambda carry, x: (carry, batched(x)), (), leaves, tree, count, False)[1]
    arguments = flatten((tree.unflatten(leaves),))[1]
    outs, (_, out_tree) = scan_flat(f, "map", apply, arguments, [], _no_carry, leaves, count, False, 1)
    return out_tree.unflatten(outs)


def _batches(x, number: int, size: int, start: int):
    """Rows from `start` on as `number` batches of `size`."""
    shape = typeof(x).shape
    return shapes.reshape(slicing.slice_in_dim(x, start, start + number * size), (number, size, *shape[1:]))


def _unbatched(y):
    number, size, *row = typeof(y).shape
    return shapes.reshape(y, (number * size, *row))
