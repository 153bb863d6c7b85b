"""Reductions over windows: sums, extrema and any other repetition of an operation over what stands under a window, at each of its places."""
from __future__ import annotations

import operator
from itertools import product
from typing import Any, Callable, Sequence

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.linear import Zero, zero_like
from mini_jax.core.primitive import Primitive
from mini_jax.core.pytree import flatten
from mini_jax.core.trace import Tracer, typeof
from mini_jax.core.types import array_type
from mini_jax.lax import elementwise as ew
from mini_jax.lax.convolution import dilated, pad_pairs, padtype_to_pads, window_places
from mini_jax.lax.gather import batched_at
from mini_jax.lax.reductions import _combination, _repeated, identity, reduce_max_p, reduce_min_p, reduce_p
from mini_jax.lax.rows import BOOL, NUMBERS, REALS, dtype_list
from mini_jax.lax.selection import select_n
from mini_jax.lax.shapes import broadcast, expand_dims, linear_in_first, reduce_sum_p
from mini_jax.lax.slicing import concatenate, pad, slice

__all__ = ["reduce_window", "reduce_window_p", "reduce_window_sum_p", "reduce_window_max_p", "reduce_window_min_p",
           "select_and_scatter_add_p", "select_and_gather_add_p"]

reduce_window_sum_p = Primitive("reduce_window_sum", facts={"family": "windows", "dtypes": NUMBERS})
reduce_window_max_p = Primitive("reduce_window_max", facts={"family": "windows", "dtypes": REALS | BOOL})
reduce_window_min_p = Primitive("reduce_window_min", facts={"family": "windows", "dtypes": REALS | BOOL})
reduce_window_p = Primitive("reduce_window", multiple_results=True, facts={"family": "windows"})
select_and_gather_add_p = Primitive("select_and_gather_add", facts={"family": "windows"})
select_and_scatter_add_p = Primitive("select_and_scatter_add", facts={"family": "windows"})

_OVER_WINDOWS = {reduce_sum_p: reduce_window_sum_p, reduce_max_p: reduce_window_max_p, reduce_min_p: reduce_window_min_p}


def reduce_window(operand: Any, init_value: Any, computation: Callable[[Any, Any], Any], window_dimensions: Sequence[int],
                  window_strides: Sequence[int] | None = None, padding: str | Sequence[tuple[int, int]] = "VALID",
                  base_dilation: Sequence[int] | None = None, window_dilation: Sequence[int] | None = None):
    """out[s] = init ∘ x[s · stride + k₁] ∘ x[s · stride + k₂] ∘ …, over all k of the window; what lies outside of x is init.

    operand: an array or a pytree of arrays of one shape. init_value: a scalar for each, of its dtype. computation(a, b): combines
    two trees of scalars; it must be associative and commutative, with init_value as its identity, or the result is unspecified.
    window_dimensions, window_strides, base_dilation (holes in the operand), window_dilation: one integer for each dimension.
    padding: "SAME", "SAME_LOWER", "VALID" or a pair (low, high) for each dimension. Sums and extrema are recognised.
    Raises TypeError for windows, shapes and dtypes that do not fit, ValueError for trees that differ. (StableHLO: reduce_window)
    """
    flat, tree = flatten(operand)
    inits, init_tree = flatten(init_value)
    if init_tree != tree or not flat:
        raise ValueError(f"lax.reduce_window: operand and init_value must have one structure with arrays in it, got {tree} and {init_tree}")
    types = [typeof(x) for x in flat]
    inits = [np.asarray(init, t.dtype) if type(init) in dtypes.python_scalar_types else init for init, t in zip(inits, types)]
    ints = lambda values: (1,) * types[0].ndim if values is None else tuple([operator.index(v) for v in values])
    window, strides = ints(window_dimensions), ints(window_strides)
    base, holes = ints(base_dilation), ints(window_dilation)
    if isinstance(padding, str):
        padding = padtype_to_pads([dilated(n, d) for n, d in zip(types[0].shape, base)], [dilated(k, d) for k, d in zip(window, holes)],
                                  strides, padding)
    params = dict(window_dimensions=window, window_strides=strides, padding=pad_pairs("lax.reduce_window", padding), base_dilation=base,
                  window_dilation=holes)
    jaxpr = _combination(computation, tree, [array_type((), t.dtype) for t in types])
    repeated = _repeated(jaxpr) if len(flat) == 1 and not isinstance(inits[0], Tracer) else None
    primitive = _OVER_WINDOWS.get(repeated)
    if (primitive is not None and types[0].dtype in primitive.facts["dtypes"] and typeof(inits[0]).dtype == types[0].dtype
            and typeof(inits[0]).shape == () and _is_identity(inits[0], repeated, types[0].dtype)):
        return tree.unflatten([primitive.bind(flat[0], **params)])
    return tree.unflatten(reduce_window_p.bind(*flat, *inits, jaxpr=jaxpr, **params))


def _is_identity(init, primitive, dtype) -> bool:
    value = np.asarray(init)
    if primitive is not reduce_sum_p and dtypes.is_floating(dtype):
        limits = dtypes.finfo(dtype)                # the least finite number serves as -inf, as far as one can tell
        return value == identity(primitive, dtype) or value == np.asarray(limits.min if primitive is reduce_max_p else limits.max, dtype)
    return bool(value == identity(primitive, dtype))


# --- what stands under the window -----------------------------------------------------------------------------------------------

def places_of(shape, *, window_dimensions, window_strides, padding, base_dilation, window_dilation) -> tuple[int, ...]:
    """In how many places the window fits, by dimension."""
    return tuple([window_places(*each) for each in zip(shape, window_dimensions, window_strides, padding, base_dilation, window_dilation)])


def offsets_of(params) -> list[tuple[int, ...]]:
    """Where the entries of the window stand, counted from its first."""
    return list(product(*[range(0, dilated(k, d), d) for k, d in zip(params["window_dimensions"], params["window_dilation"])]))


def under_window(x, fill, **params) -> list:
    """For each entry of the window, in order, the array of what stands under it in each place; `fill` where that is outside of x."""
    x_type, strides = typeof(x), params["window_strides"]
    places = places_of(x_type.shape, **params)
    config = [(low, high, base - 1) for (low, high), base in zip(params["padding"], params["base_dilation"])]
    if 0 in places:
        return [broadcast(fill, places)] * len(offsets_of(params))
    padded = pad(x, fill, config) if any([any(entry) for entry in config]) else x
    spans = [dilated(m, s) for m, s in zip(places, strides)]
    return [slice(padded, offset, [i + span for i, span in zip(offset, spans)], strides) for offset in offsets_of(params)]


def put_back(y, offset, shape, **params):
    """The transpose of one entry of `under_window`: an array of `shape`, in which y stands where it was taken from, and else zeros."""
    config, steps, limits = [], params["base_dilation"], []
    for size, m, at, stride, (low, high), base in zip(shape, y.shape, offset, params["window_strides"], params["padding"], steps):
        whole = dilated(size, base)
        config.append((at - low, whole + low - at - dilated(m, stride), stride - 1))
        limits.append(whole)
    return slice(pad(y, np.zeros((), y.dtype)[()], config), (0,) * len(shape), limits, steps)


def _check_windows(where: str, x, *, window_dimensions, window_strides, padding, base_dilation, window_dilation) -> tuple[int, ...]:
    """The shape of the result; TypeError and ValueError say what is wrong."""
    for name, values in (("window_dimensions", window_dimensions), ("window_strides", window_strides), ("base_dilation", base_dilation),
                         ("window_dilation", window_dilation)):
        if len(values) != x.ndim or any([v < 1 for v in values]):
            raise TypeError(f"{where}: {name}={values} must be positive integers, one for each of the {x.ndim} dimensions")
    if len(padding) != x.ndim:
        raise ValueError(f"{where}: padding={padding} must have a pair (low, high) for each of the {x.ndim} dimensions")
    if any([dilated(n, d) + low + high < 0 for n, d, (low, high) in zip(x.shape, base_dilation, padding)]):
        raise ValueError(f"{where}: padding={padding} takes away more than there is")
    return places_of(x.shape, window_dimensions=window_dimensions, window_strides=window_strides, padding=padding,
                     base_dilation=base_dilation, window_dilation=window_dilation)


def _with_whole_dimension(d: int, params: dict) -> dict:
    """The same windows in an array with one more dimension, d, along which nothing is reduced."""
    entries = dict(window_dimensions=1, window_strides=1, padding=(0, 0), base_dilation=1, window_dilation=1)
    return params | {name: (*params[name][:d], entry, *params[name][d:]) for name, entry in entries.items()}


# --- sums and extrema ---------------------------------------------------------------------------------------------------------------

def _type_rule(primitive: Primitive) -> Callable:
    def rule(x, **params):
        where = f"lax.{primitive.name}({x})"
        if x.dtype not in primitive.facts["dtypes"]:
            raise TypeError(f"{where}: dtype {x.dtype} is not accepted; it takes {dtype_list(primitive.facts['dtypes'])}")
        return x.update(shape=_check_windows(where, x, **params))
    return rule


def _batch_rule(primitive: Primitive) -> Callable:
    def rule(axis, args, dims, **params):
        return primitive.bind(args[0], **_with_whole_dimension(dims[0], params)), dims[0]
    return rule


for _primitive in (reduce_window_sum_p, reduce_window_max_p, reduce_window_min_p):
    _primitive.type_rule, _primitive.batch = _type_rule(_primitive), _batch_rule(_primitive)


def _sum_transpose(ct, x, *, window_dimensions, window_strides, padding, base_dilation, window_dilation):
    """The sum over windows of ct, in which strides and dilation of the operand change places: the transpose of a convolution with ones."""
    if 0 in (typeof(ct).size, x.size):
        return
    pads = []
    for size, window, count, stride, (low, _), base, holes in zip(x.shape, window_dimensions, ct.shape, window_strides, padding,
                                                                   base_dilation, window_dilation):
        before = dilated(window, holes) - 1 - low
        pads.append((before, dilated(size, base) + dilated(window, holes) - 1 - dilated(count, stride) - before))
    x.add(reduce_window_sum_p.bind(ct, window_dimensions=window_dimensions, window_strides=base_dilation, padding=tuple(pads),
                                   base_dilation=window_strides, window_dilation=window_dilation))


reduce_window_sum_p.transpose = _sum_transpose
linear_in_first(reduce_window_sum_p)


def _extremum_jvp(primitive: Primitive, select: str) -> Callable:
    """The tangent of the first entry of each window that is its extremum."""
    def rule(primals, tangents, **params):
        (x,), (t,) = primals, tangents
        y = primitive.bind(x, **params)
        return y, zero_like(y) if type(t) is Zero else select_and_gather_add_p.bind(t, x, select_prim=select, **params)
    return rule


reduce_window_max_p.jvp, reduce_window_min_p.jvp = _extremum_jvp(reduce_window_max_p, "ge"), _extremum_jvp(reduce_window_min_p, "le")


# --- the extremum's tangent and cotangent ---------------------------------------------------------------------------------------------
#
# Of each window one entry of `operand` is selected: the first that is `ge` (or `le`) all others; entries outside are never selected.
# select_and_gather_add gathers the entries of `tangents` that stand where the selected ones do. select_and_scatter_add, its
# transpose, adds each entry of `source`, of the shape of the places, where the selected one stands.

def _check_selection(where, x, select_prim, params):
    if x.dtype not in REALS:
        raise TypeError(f"{where}: dtype {x.dtype} of operand has no order; it takes {dtype_list(REALS)}")
    if select_prim not in ("ge", "le"):
        raise ValueError(f"{where}: select_prim must be 'ge' or 'le', got {select_prim!r}")
    return _check_windows(where, x, **params)


def _gather_add_type(t, x, *, select_prim, **params):
    where = f"select_and_gather_add({t}, {x})"
    if t.shape != x.shape:
        raise TypeError(f"{where}: tangents and operand must have one shape")
    return t.update(shape=_check_selection(where, x, select_prim, params))


def _scatter_add_type(source, x, *, select_prim, **params):
    where = f"select_and_scatter_add({source}, {x})"
    places = _check_selection(where, x, select_prim, params)
    if source.shape != places:
        raise TypeError(f"{where}: source must have the shape of the windows' places, {places}")
    return source.update(shape=x.shape)


def _selection_batch(primitive: Primitive) -> Callable:
    def rule(axis, args, dims, *, select_prim, **params):
        d = dims[0] if dims[0] is not None else dims[1]
        args = [batched_at(axis, x, dim, d) for x, dim in zip(args, dims)]
        return primitive.bind(*args, select_prim=select_prim, **_with_whole_dimension(d, params)), d
    return rule


def _transposed_by(other: Primitive) -> Callable:
    def rule(ct, t, x, **params):
        t.add(other.bind(ct, x, **params))
    return rule


select_and_gather_add_p.type_rule, select_and_scatter_add_p.type_rule = _gather_add_type, _scatter_add_type
select_and_gather_add_p.transpose = _transposed_by(select_and_scatter_add_p)
select_and_scatter_add_p.transpose = _transposed_by(select_and_gather_add_p)
for _primitive in (select_and_gather_add_p, select_and_scatter_add_p):
    _primitive.batch = _selection_batch(_primitive)
    linear_in_first(_primitive)


def selected_entry(x, *, select_prim, **params):
    """Which entry of the window is selected, as its position among `offsets_of`; their number where all lie outside."""
    select, fill = (ew.ge, reduce_max_p) if select_prim == "ge" else (ew.le, reduce_min_p)
    entries = under_window(x, identity(fill, x.dtype), **params)
    inside = None
    if any([low > 0 or high > 0 for low, high in params["padding"]]) or any([d > 1 for d in params["base_dilation"]]):
        inside = under_window(broadcast(np.True_, x.shape), np.False_, **params)
    best, where = entries[0], np.int32(0)
    chosen = broadcast(where, best.shape) if inside is None else select_n(inside[0], np.int32(len(entries)), where)
    for k, entry in enumerate(entries[1:], 1):
        takes = ew.bitwise_not(select(best, entry))
        if inside is not None:
            takes = ew.bitwise_and(inside[k], ew.bitwise_or(takes, ew.eq(chosen, np.int32(len(entries)))))
        best = select_n(takes, best, entry)
        chosen = select_n(takes, chosen, broadcast(np.int32(k), best.shape))
    return chosen


# --- any other operation --------------------------------------------------------------------------------------------------------------

def _reduce_window_type(*types, jaxpr, **params):
    n = len(types) // 2
    where = f"lax.reduce_window({', '.join(map(str, types[:n]))})"
    for x, init, out in zip(types[:n], types[n:], jaxpr.out_types):
        if x.shape != types[0].shape:
            raise TypeError(f"{where}: operands must have one shape")
        if init.shape or init.dtype != x.dtype:
            raise TypeError(f"{where}: an init value must be a scalar of the dtype of its operand, got {init} for an operand {x}")
        if out.shape or out.dtype != x.dtype:
            raise TypeError(f"{where}: computation must return scalars of the operands' dtypes, and returned {out} for an operand {x}")
    shape = _check_windows(where, types[0], **params)
    return [x.update(shape=shape) for x in types[:n]]


def _by_entries(*args, jaxpr, **params) -> list:
    """What reduce_window computes, as a reduction over the entries of the window."""
    n = len(args) // 2
    stacks = [concatenate([expand_dims(entry, (0,)) for entry in under_window(x, init, **params)], 0) for x, init in zip(args[:n], args[n:])]
    return reduce_p.bind(*stacks, *args[n:], jaxpr=jaxpr, dimensions=(0,))


def _reduce_window_jvp(primals, tangents, **params):
    """The derivative of the reduction over the entries of the window."""
    from mini_jax.transforms.jvp import jvp_flat              # the derivative of a program is made above us
    if all([type(t) is Zero for t in tangents]):
        outs = reduce_window_p.bind(*primals, **params)
        return outs, [zero_like(y) for y in outs]
    return jvp_flat(lambda *args: _by_entries(*args, **params), primals, tangents)


def _reduce_window_batch(axis, args, dims, *, jaxpr, **params):
    """One more dimension; with an init for each, the reduction over the entries of the window is batched."""
    from mini_jax.transforms.vmap import batch_flat           # so is its batching
    n = len(args) // 2
    if any([d is not None for d in dims[n:]]):
        return batch_flat(lambda *xs: _by_entries(*xs, jaxpr=jaxpr, **params), axis, args, dims)
    xs = [batched_at(axis, x, d, 0) for x, d in zip(args[:n], dims)]
    return reduce_window_p.bind(*xs, *args[n:], jaxpr=jaxpr, **_with_whole_dimension(0, params)), [0] * n


reduce_window_p.type_rule, reduce_window_p.jvp, reduce_window_p.batch = _reduce_window_type, _reduce_window_jvp, _reduce_window_batch
