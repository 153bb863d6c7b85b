"""associative_scan: all prefixes of a sequence under an associative operation, in logarithmic depth.

Halving the sequence again and again makes ever smaller operations, each with kernels of its own to compile. On a CPU, which gains
nothing from their parallelism, sequences of 1024 and less are therefore done one element after the other, by scan.
"""
from __future__ import annotations

from typing import Callable, NamedTuple, Sequence

from mini_jax.core.program import ProgramInfo
from mini_jax.core.trace import typeof
from mini_jax.core.tracebacks import boundary
from mini_jax.lax import shapes, slicing
from mini_jax.runtime import dispatch
from mini_jax.runtime.devices import current_device
from mini_jax.transforms.arguments import keyable
from mini_jax.transforms.control.bodies import body_info, check_callable, flat_result, flatten, record, tree_paths, value_types
from mini_jax.transforms.control.running import run
from mini_jax.transforms.control.scan import scan

__all__ = ["associative_scan"]


@boundary
def associative_scan(fn: Callable, elems, reverse: bool = False, axis: int = 0):
    """y[i] = elems[0] ∘ elems[1] ∘ … ∘ elems[i] along `axis`, where a ∘ b = fn(a, b) is associative.

    fn: (a, b) -> a ∘ b on pytrees of the structure of elems, element by element over whole arrays: it is given many pairs at a time.
    elems: a pytree of arrays of one size along axis. reverse: suffixes, y[i] = elems[i] ∘ … ∘ elems[-1], where fn is given the later
    element first. Takes about 2 n applications of fn to one element each, in 2 log₂ n rounds (Blelloch, "Prefix Sums and Their
    Applications", 1990).
    Raises ValueError where sizes disagree, TypeError where fn returns another structure.
    """
    check_callable(fn, "associative_scan: fn")
    leaves, tree = flatten(elems)
    fn = keyable(fn)
    info = body_info("associative_scan", fn, flatten((elems, elems))[1])
    types = value_types(leaves, info)
    paths = lambda: tree_paths(tree, "elems")
    for position, t in enumerate(types):
        if not -t.ndim <= axis < t.ndim:
            raise ValueError(f"associative_scan: axis {axis} is out of bounds for {paths()[position]} of type {t}")
    axes = [axis % t.ndim for t in types]
    if len({t.shape[a] for t, a in zip(types, axes)}) > 1:
        raise ValueError(f"associative_scan: the arrays of elems must have one size along axis {axis}, but\n" + "\n".join(
            [f"  {path} has size {t.shape[a]} (type {t})" for path, t, a in zip(paths(), types, axes)]))

    prefixes = _Prefixes(reverse, tuple(axes))
    if dispatch.disabled():
        return tree.unflatten(prefixes(fn, info, elems)[0])
    body = record(fn, "associative_scan", prefixes, flatten((elems,))[1], types, info)
    return tree.unflatten(run(body.jaxpr, [*body.consts, *leaves], "associative_scan"))


class _Prefixes(NamedTuple):
    """How fn is applied to elems: what `record` knows the program by, beside fn."""
    reverse: bool
    axes: tuple[int, ...]

    def __call__(self, fn: Callable, info: ProgramInfo, elems):
        values, tree = flatten(elems)

        def combine(a: Sequence, b: Sequence) -> list:
            out, out_tree = flat_result(fn(tree.unflatten(a), tree.unflatten(b)), info)
            if out_tree != tree:
                raise TypeError(f"associative_scan: {info.name} must return the structure of elems, {tree}, but returns {out_tree}")
            return out
        turned = (lambda values: [slicing.rev(v, (a,)) for v, a in zip(values, self.axes)]) if self.reverse else (lambda values: values)
        return turned(_prefixes(combine, turned(values), self.axes)), tree


_SHORT = 256


def _prefixes(combine: Callable, values: list, axes: Sequence[int]) -> list:
    """Pairs of neighbours are combined, their prefixes found by the same means, and these are the prefixes at odd places; one more
    application gives those at even places."""
    size = typeof(values[0]).shape[axes[0]] if values else 0
    if size < 2:
        return values
    if size <= _SHORT and current_device().platform == "cpu":
        return _one_by_one(combine, values, axes)

    def part(values, start, stop, step):
        return [slicing.slice_in_dim(v, start, stop, step, a) for v, a in zip(values, axes)]
    odd = _prefixes(combine, combine(part(values, 0, size - 1, 2), part(values, 1, size, 2)), axes)
    before = part(odd, 0, (size - 1) // 2, 1)
    even = part(values, 0, 1, 1)
    if size > 2:
        later = combine(before, part(values, 2, size, 2))
        even = [slicing.concatenate([first, rest], a) for first, rest, a in zip(even, later, axes)]
    return [_interleaved(e, o, a) for e, o, a in zip(even, odd, axes)]


def _one_by_one(combine: Callable, values: list, axes: Sequence[int]) -> list:
    """The prefixes, each from the one before it."""
    def step(before, rows):
        after = combine(before, [shapes.expand_dims(row, (a,)) for row, a in zip(rows, axes)])
        return after, [shapes.squeeze(v, (a,)) for v, a in zip(after, axes)]
    size = typeof(values[0]).shape[axes[0]]
    first, rest = [[slicing.slice_in_dim(v, start, stop, 1, a) for v, a in zip(values, axes)] for start, stop in ((0, 1), (1, size))]
    rest = scan(step, first, [shapes.moveaxis(v, a, 0) for v, a in zip(rest, axes)])[1]
    return [slicing.concatenate([one, shapes.moveaxis(rows, 0, a)], a) for one, rows, a in zip(first, rest, axes)]


def _interleaved(even, odd, axis: int):
    """even[0], odd[0], even[1], odd[1], … along axis; even may have one more."""
    shape = typeof(odd).shape
    count = shape[axis]
    last = typeof(even).shape[axis] > count
    pairs = slicing.concatenate([shapes.expand_dims(slicing.slice_in_dim(even, 0, count, 1, axis), (axis + 1,)),
                                 shapes.expand_dims(odd, (axis + 1,))], axis + 1)
    out = shapes.reshape(pairs, (*shape[:axis], 2 * count, *shape[axis + 1:]))
    return slicing.concatenate([out, slicing.slice_in_dim(even, count, count + 1, 1, axis)], axis) if last else out
