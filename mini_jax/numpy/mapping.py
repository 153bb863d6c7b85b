"""Functions of elements, of vectors and of axes, applied to whole arrays: vectorize, apply_along_axis, apply_over_axes."""
from __future__ import annotations

import functools
import re
from typing import Callable, Sequence

import numpy as np

from mini_jax import lax
from mini_jax.core.trace import typeof
from mini_jax.lax.shapes import canonical_axis
from mini_jax.numpy.manipulation import expand_dims
from mini_jax.numpy.promotion import array_argument, arraylike, as_array

__all__ = ["vectorize", "apply_along_axis", "apply_over_axes"]

_ARGUMENT = r"\(\s*(?:\w+\s*(?:,\s*\w+\s*)*)?,?\s*\)"
_SIGNATURE = re.compile(rf"^\s*{_ARGUMENT}(?:\s*,\s*{_ARGUMENT})*\s*->\s*{_ARGUMENT}(?:\s*,\s*{_ARGUMENT})*\s*$")


def _parse(signature: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """'(n,m),(m)->(n)': the names of the core dimensions of each argument and of each result."""
    if not _SIGNATURE.match(signature):
        raise ValueError(f"not a valid gufunc signature: {signature!r}; one looks like '(n,k),(k)->(n)'")
    return tuple([[tuple(re.findall(r"\w+", part)) for part in re.findall(r"\(([^()]*)\)", side)] for side in signature.split("->")])


def vectorize(pyfunc: Callable, *, excluded=frozenset(), signature: str | None = None) -> Callable:
    """pyfunc on core dimensions, mapped over all leading dimensions of its arguments, which broadcast.

    signature: the core dimensions of arguments and results, such as '(n,k),(k)->(n)'; None: pyfunc takes and returns numbers.
    excluded: positions and names of arguments that are handed on as they are. Keyword arguments are always handed on.
    Raises ValueError where shapes do not fit the signature, TypeError for a wrong number of arguments.
    """
    if any([not isinstance(item, (str, int)) for item in excluded]):
        raise TypeError(f"vectorize: excluded must be a set of integers and strings, got {excluded!r}")
    if any([isinstance(item, int) and item < 0 for item in excluded]):
        raise ValueError(f"vectorize: excluded has negative positions: {excluded!r}")
    inputs, outputs = _parse(signature) if signature is not None else (None, None)

    @functools.wraps(pyfunc)
    def mapped(*args, **kwargs):
        dynamic = [i for i in range(len(args)) if i not in excluded]
        arrays = [as_array(x) for x in arraylike("vectorize", *[args[i] for i in dynamic])]
        names = [()] * len(arrays) if inputs is None else [dims for i, dims in enumerate(inputs) if i not in excluded or len(inputs) == len(arrays)]
        if len(names) != len(arrays):
            raise TypeError(f"wrong number of positional arguments: expected {len(names)}, got {len(arrays)}")
        sizes: dict[str, int] = {}
        for position, (x, dims) in enumerate(zip(arrays, names)):
            if x.ndim < len(dims):
                raise ValueError(f"vectorize: argument {position} with type {x.aval} does not have enough dimensions for the core dimensions {dims}")
            for name, n in zip(dims, x.shape[x.ndim - len(dims):]):
                if sizes.setdefault(name, n) != n:
                    raise ValueError(f"inconsistent size for core dimension {name!r}: {n} vs {sizes[name]}")

        def fun(*values):
            full = list(args)
            for i, value in zip(dynamic, values):
                full[i] = value
            out = pyfunc(*full, **kwargs)
            _check_results(out, outputs, sizes)
            return out
        return _map_leading(fun, arrays, [x.ndim - len(dims) for x, dims in zip(arrays, names)])
    return mapped


def _map_leading(fun: Callable, arrays: Sequence, ranks: Sequence[int]):
    """fun mapped over the leading dimensions (`ranks` many of each array), which broadcast: an axis of size 1 is the same for all."""
    from mini_jax.transforms.vmap import vmap
    shape = np.broadcast_shapes(*[x.shape[:rank] for x, rank in zip(arrays, ranks)])
    rank = len(shape)
    values, plans = [], []
    for x, have in zip(arrays, ranks):
        mapped = [i for i in range(have) if x.shape[i] != 1 or shape[rank - have + i] == 1]
        values.append(lax.squeeze(x, [i for i in range(have) if i not in mapped]))
        plans.append({rank - have + i for i in mapped})
    for axis in reversed(range(rank)):
        fun = vmap(fun, in_axes=tuple(0 if axis in plan else None for plan in plans), axis_size=shape[axis])
    return fun(*values)


def _check_results(out, outputs, sizes) -> None:
    if outputs is None:
        return
    results = out if isinstance(out, tuple) else (out,)
    if len(results) != len(outputs):
        raise TypeError(f"vectorize: output has {len(results)} elements, but the signature names {len(outputs)}")
    for x, dims in zip(results, outputs):
        shape = typeof(x).shape
        if len(shape) != len(dims):
            raise TypeError(f"vectorize: output shape {shape} does not match core dimensions {dims}")
        for name, n in zip(dims, shape):
            if sizes.setdefault(name, n) != n:
                raise ValueError(f"inconsistent size for core dimension {name!r}: {n} vs {sizes[name]}")


def apply_along_axis(func1d: Callable, axis: int, arr, *args, **kwargs):
    """func1d(vector, *args, **kwargs) for each vector along `axis`; what it returns stands in the place of that axis."""
    from mini_jax.transforms.vmap import vmap
    arr = array_argument("apply_along_axis", arr)
    axis = canonical_axis(axis, arr.ndim)
    fun = lambda vector: func1d(vector, *args, **kwargs)
    for i in range(1, arr.ndim - axis):
        fun = vmap(fun, in_axes=i, out_axes=-1)
    for i in range(axis):
        fun = vmap(fun)
    return fun(arr)


def apply_over_axes(func: Callable, a, axes: Sequence[int]):
    """func(a, axis) for each of `axes` in turn; a result that lacks the axis gets it back with size 1."""
    a = array_argument("apply_over_axes", a)
    for axis in axes:
        b = func(a, axis)
        if b.ndim == a.ndim:
            a = b
        elif b.ndim == a.ndim - 1:
            a = expand_dims(b, axis)
        else:
            raise ValueError("function is not returning an array of the correct shape")
    return a
