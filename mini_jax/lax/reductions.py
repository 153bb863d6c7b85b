"""Reductions: a dimension goes, and of all that stood along it one value stays.

The sum, which is the transpose of broadcasting, stands in shapes.py. Derivatives: maximal entries that tie share the
cotangent equally; of a product each factor's derivative is the product of all others, so zeros need no care.
"""
from __future__ import annotations

import operator
from typing import Any, Callable, Sequence

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.linear import Zero, zero_like
from mini_jax.core.primitive import Primitive
from mini_jax.core.program import Jaxpr, Literal, Var
from mini_jax.core.pytree import flatten
from mini_jax.core.staging import eval_jaxpr, stage
from mini_jax.core.trace import Tracer, typeof
from mini_jax.core.types import array_type
from mini_jax.lax import elementwise as ew
from mini_jax.lax import shapes
from mini_jax.lax.cumulative import shifted_products
from mini_jax.lax.gather import batched_at
from mini_jax.lax.rows import ANY, BOOL, INTS, NUMBERS, REALS, UINTS, dtype_list
from mini_jax.lax.shapes import reduce_sum, reduce_sum_p
from mini_jax.lax.slicing import concatenate, slice_in_dim

__all__ = ["reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor", "argmax", "argmin",
           "reduce", "reduce_max_p", "reduce_min_p", "reduce_prod_p", "reduce_and_p", "reduce_or_p",
           "reduce_xor_p", "argmax_p", "argmin_p", "reduce_p"]


def _check_axes(name: str, x, axes) -> None:
    if not all([0 <= a < x.ndim for a in axes]):
        raise ValueError(f"lax.{name}({x}, axes={axes}): an axis is out of bounds; axes lie between 0 and {x.ndim - 1}, negative "
                         "ones are not accepted here")
    if len(set(axes)) != len(axes):
        raise ValueError(f"lax.{name}({x}, axes={axes}): duplicate value in axes")


def _reduction(name: str, accepts: frozenset) -> Primitive:
    """A primitive that reduces over `axes`; its values have the operand's dtype."""
    primitive = Primitive(name, facts={"family": "reductions", "dtypes": accepts})

    def type_rule(x, *, axes):
        _check_axes(name, x, axes)
        if x.dtype not in accepts:
            raise TypeError(f"lax.{name}({x}): dtype {x.dtype} is not accepted; it takes {dtype_list(accepts)}")
        return x.update(shape=tuple([n for i, n in enumerate(x.shape) if i not in axes]))

    primitive.type_rule = type_rule
    primitive.batch = shapes.reduction_batch(primitive)
    return primitive


def _apply(primitive: Primitive, operand, axes):
    axes = tuple([operator.index(a) for a in axes])
    return operand if not axes and hasattr(operand, "aval") else primitive.bind(operand, axes=axes)


def _over(y, x, axes):
    """A result of reducing x over `axes`, repeated along them to the shape of x."""
    shape = typeof(x).shape
    return shapes.broadcast_in_dim(y, shape, tuple([i for i in range(len(shape)) if i not in axes]))


# --- maximum, minimum, product, bits ---------------------------------------------------------------------------------------

reduce_max_p = _reduction("reduce_max", ANY)
reduce_min_p = _reduction("reduce_min", ANY)
reduce_max_number_p = _reduction("reduce_max_number", REALS)
reduce_prod_p = _reduction("reduce_prod", NUMBERS)
reduce_and_p = _reduction("reduce_and", INTS | UINTS | BOOL)
reduce_or_p = _reduction("reduce_or", INTS | UINTS | BOOL)
reduce_xor_p = _reduction("reduce_xor", INTS | UINTS | BOOL)


def reduce_max(operand, axes: Sequence[int]):
    """The greatest value along `axes`, NaN if one is NaN; of nothing -inf, the least integer or False.

    operand: any dtype; complex numbers are ordered lexicographically. Raises ValueError unless axes are distinct and in [0, ndim).
    """
    return _apply(reduce_max_p, operand, axes)


def reduce_max_number(operand, axes: Sequence[int]):
    """The greatest value along `axes`, where NaN may be passed over: what exponents are shifted by, since it is faster to find.

    operand: real numbers. Raises TypeError for others, ValueError unless axes are distinct and in [0, ndim).
    """
    return _apply(reduce_max_number_p, operand, axes)


def reduce_min(operand, axes: Sequence[int]):
    """The least value along `axes`, NaN if one is NaN; of nothing inf, the greatest integer or True.

    operand: any dtype; complex numbers are ordered lexicographically. Raises ValueError unless axes are distinct and in [0, ndim).
    """
    return _apply(reduce_min_p, operand, axes)


def reduce_prod(operand, axes: Sequence[int]):
    """The product over `axes`; 1 where there is nothing to multiply.

    operand: numbers; 16-bit floats are multiplied in 32 bits, integers wrap. Raises TypeError for booleans, ValueError unless
    axes are distinct and in [0, ndim).
    """
    return _apply(reduce_prod_p, operand, axes)


def reduce_and(operand, axes: Sequence[int]):
    """The conjunction over `axes`, bit by bit for integers; True or all bits set where there is nothing.

    Raises TypeError for floating and complex operands, ValueError unless axes are distinct and in [0, ndim).
    """
    return _apply(reduce_and_p, operand, axes)


def reduce_or(operand, axes: Sequence[int]):
    """The disjunction over `axes`, bit by bit for integers; False or 0 where there is nothing.

    Raises TypeError for floating and complex operands, ValueError unless axes are distinct and in [0, ndim).
    """
    return _apply(reduce_or_p, operand, axes)


def reduce_xor(operand, axes: Sequence[int]):
    """The exclusive disjunction over `axes`, bit by bit for integers; False or 0 where there is nothing.

    Raises TypeError for floating and complex operands, ValueError unless axes are distinct and in [0, ndim).
    """
    return _apply(reduce_xor_p, operand, axes)


def _extremum_jvp(primitive: Primitive) -> Callable:
    """The mean of the tangents of the entries that are the extremum."""
    def rule(primals, tangents, *, axes):
        (x,), (t,) = primals, tangents
        y = primitive.bind(x, axes=axes)
        if type(t) is Zero:
            return y, zero_like(y)
        chosen = shapes.convert_element_type(ew.eq(x, _over(y, x, axes)), typeof(t).dtype)
        return y, ew.div(reduce_sum(ew.mul(t, chosen), axes), reduce_sum(chosen, axes))
    return rule


def _prod_jvp(primals, tangents, *, axes):
    """d Π xᵢ = Σ dxᵢ · Π_{j≠i} xⱼ, the latter being the product of all before i times that of all after i."""
    (x,), (t,) = primals, tangents
    y = reduce_prod_p.bind(x, axes=axes)
    if type(t) is Zero:
        return y, zero_like(y)
    if not axes:
        return y, t
    x, t = _flat(x, axes), _flat(t, axes)
    others = ew.mul(shifted_products(x, 0, reverse=False), shifted_products(x, 0, reverse=True))
    return y, reduce_sum(ew.mul(t, others), (0,))


def _flat(x, axes):
    """x with the dimensions `axes` made one, the first."""
    shape = typeof(x).shape
    kept = [i for i in range(len(shape)) if i not in axes]
    size = int(np.prod([shape[a] for a in axes]))
    return shapes.reshape(shapes.transpose(x, [*axes, *kept]), (size, *[shape[i] for i in kept]))


reduce_prod_p.jvp = _prod_jvp
for _primitive in (reduce_max_p, reduce_min_p, reduce_max_number_p):
    _primitive.jvp = _extremum_jvp(_primitive)


def _no_derivative(primitive: Primitive) -> Callable:
    """The jvp rule of a primitive whose values are integers or booleans."""
    def rule(primals, tangents, **params):
        y = primitive.bind(*primals, **params)
        return y, zero_like(y)
    return rule


for _primitive in (reduce_and_p, reduce_or_p, reduce_xor_p):
    _primitive.jvp = _no_derivative(_primitive)


# --- where the extremum is ------------------------------------------------------------------------------------------------

def _arg_reduction(name: str) -> Primitive:
    primitive = Primitive(name, facts={"family": "reductions", "dtypes": REALS | BOOL})

    def type_rule(x, *, axes, index_dtype):
        axis, = axes
        if not 0 <= axis < x.ndim:
            raise ValueError(f"lax.{name}({x}): invalid axis {axis} for an operand of {x.ndim} dimensions")
        if x.dtype not in REALS | BOOL:
            raise TypeError(f"lax.{name}({x}): dtype {x.dtype} has no order; it takes {dtype_list(REALS | BOOL)}")
        if not dtypes.is_integer(index_dtype):
            raise TypeError(f"lax.{name}: index_dtype must be an integer dtype, got {index_dtype}")
        if x.shape[axis] == 0:
            raise ValueError(f"lax.{name}({x}): there is no extremum along axis {axis}, whose size is 0")
        return array_type(x.shape[:axis] + x.shape[axis + 1:], index_dtype)

    primitive.type_rule, primitive.jvp = type_rule, _no_derivative(primitive)
    primitive.batch = shapes.reduction_batch(primitive)
    return primitive


argmax_p, argmin_p = _arg_reduction("argmax"), _arg_reduction("argmin")


def argmax(operand, axis: int, index_dtype):
    """The index, of dtype index_dtype, of the first greatest entry along `axis`; of the first NaN, if there is one.

    Raises ValueError for an axis not in [0, ndim) or of size 0, TypeError for complex operands and for an index_dtype
    that is no integer dtype.
    """
    return argmax_p.bind(operand, axes=(operator.index(axis),), index_dtype=dtypes.canonicalize(index_dtype))


def argmin(operand, axis: int, index_dtype):
    """The index, of dtype index_dtype, of the first least entry along `axis`; of the first NaN, if there is one.

    Raises ValueError for an axis not in [0, ndim) or of size 0, TypeError for complex operands and for an index_dtype
    that is no integer dtype.
    """
    return argmin_p.bind(operand, axes=(operator.index(axis),), index_dtype=dtypes.canonicalize(index_dtype))


# --- reduce, by a function of the user's ------------------------------------------------------------------------------------

reduce_p = Primitive("reduce", multiple_results=True, facts={"family": "reductions"})

_REPEATED = {ew.add_p: reduce_sum_p, ew.mul_p: reduce_prod_p, ew.max_p: reduce_max_p, ew.min_p: reduce_min_p, ew.and_p: reduce_and_p,
             ew.or_p: reduce_or_p, ew.xor_p: reduce_xor_p}


def identity(primitive: Primitive, dtype):
    """The scalar of `dtype` that a reduction gives of nothing."""
    if primitive in (reduce_max_p, reduce_max_number_p):
        return least(dtype)
    if primitive is reduce_min_p:
        return greatest(dtype)
    if primitive is reduce_and_p and not dtypes.is_bool(dtype):
        return np.array(-1).astype(dtype)[()]
    return np.array(primitive in (reduce_prod_p, reduce_and_p)).astype(dtype)[()]


def least(dtype):
    """The scalar of `dtype` that no other is less than: -inf, where there is one."""
    return _bound(dtype, False)


def greatest(dtype):
    """The scalar of `dtype` that no other is greater than: inf, where there is one."""
    return _bound(dtype, True)


def _bound(dtype, upper: bool):
    if dtypes.is_bool(dtype):
        return np.bool_(upper)
    if dtypes.is_integer(dtype):
        limits = dtypes.iinfo(dtype)
        return np.array(int(limits.max if upper else limits.min)).astype(dtype)[()]
    inf = np.array(np.inf if upper else -np.inf).astype(dtype)[()]
    limits = dtypes.finfo(dtypes.to_real(dtype))
    return inf if not np.isfinite(inf) and not np.isnan(inf) else dtype.type(limits.max if upper else limits.min)


def reduce(operands: Any, init_values: Any, computation: Callable[[Any, Any], Any], dimensions: Sequence[int], out_sharding=None):
    """The repetition of `computation` over `dimensions`: init ∘ x₁ ∘ x₂ ∘ …, in no particular order.

    operands: an array or a pytree of arrays of one shape. init_values: a scalar for each, of its dtype.
    computation(a, b): combines two trees of scalars like init_values; it must be associative and commutative, with
    init_values as its identity, or the result is unspecified. Returns a tree of arrays without `dimensions`.
    Raises ValueError for dimensions not in [0, ndim) and trees that differ, TypeError for shapes or dtypes that do not fit.
    A sum, product, maximum, … is recognised and becomes reduce_sum, reduce_prod, … (StableHLO: reduce)
    """
    if out_sharding is not None:
        raise NotImplementedError("lax.reduce: out_sharding must be None; constrain the result's sharding instead")
    flat, tree = flatten(operands)
    inits, init_tree = flatten(init_values)
    if init_tree != tree:
        raise ValueError(f"lax.reduce: operands and init_values must have one structure, got {tree} and {init_tree}")
    types = [typeof(x) for x in flat]
    inits = [np.asarray(init, t.dtype) if type(init) in dtypes.python_scalar_types else init for init, t in zip(inits, types)]
    dimensions = tuple([operator.index(d) for d in dimensions])
    jaxpr = _combination(computation, tree, [array_type((), t.dtype) for t in types])
    if len(flat) == 1 and (primitive := _repeated(jaxpr)) is not None and types[0].dtype in primitive.facts.get("dtypes", NUMBERS):
        _check_reduce(types, [typeof(init) for init in inits], jaxpr, dimensions)
        out = primitive.bind(flat[0], axes=dimensions)
        init, = inits
        if isinstance(init, Tracer) or np.asarray(init) != identity(primitive, types[0].dtype):
            out = jaxpr.eqns[0].primitive.bind(out, init)
        return tree.unflatten([out])
    return tree.unflatten(reduce_p.bind(*flat, *inits, jaxpr=jaxpr, dimensions=dimensions))


def _combination(computation: Callable, tree, types: Sequence) -> Jaxpr:
    """The program of `computation` on scalars. Scalars that it closes over become literals."""
    if not callable(computation):
        raise TypeError(f"lax.reduce: computation is a function of two scalars, got {computation!r:.200} of type {type(computation).__name__}")
    def fun(*scalars):
        n = len(types)
        out, out_tree = flatten(computation(tree.unflatten(scalars[:n]), tree.unflatten(scalars[n:])))
        if out_tree != tree:
            raise TypeError(f"lax.reduce: computation must return the structure of the operands, {tree}, and returned {out_tree}")
        return out

    jaxpr, consts = stage(fun, [*types, *types])
    literals = {}
    for var, value in zip(jaxpr.constvars, consts):
        if isinstance(value, Tracer) or var.aval.shape:
            raise NotImplementedError(f"lax.reduce: computation closes over a value of type {var.aval}; it may close over known "
                                      "scalars only. Pass other values as operands, broadcast to the operands' shape")
        literals[var] = Literal(np.asarray(value)[()], var.aval)
    if not literals:
        return jaxpr
    known = lambda atoms: [literals.get(a, a) if type(a) is Var else a for a in atoms]
    return jaxpr.replace(constvars=(), eqns=[eqn.replace(invars=known(eqn.invars)) for eqn in jaxpr.eqns], outvars=known(jaxpr.outvars))


def _repeated(jaxpr: Jaxpr) -> Primitive | None:
    """The reduction that repeats the one operation of which the program consists."""
    if len(jaxpr.eqns) == 1 and jaxpr.outvars[0] is jaxpr.eqns[0].outvars[0] and set(jaxpr.eqns[0].invars) == set(jaxpr.invars):
        return _REPEATED.get(jaxpr.eqns[0].primitive)
    return None


def _check_reduce(types, inits, jaxpr, dimensions):
    for x, init, out in zip(types, inits, jaxpr.out_types):
        if x.shape != types[0].shape:
            raise TypeError(f"lax.reduce: operands must have one shape, got {', '.join(map(str, types))}")
        if init.shape:
            raise TypeError(f"lax.reduce: init_values must be scalars, got one of type {init}")
        if init.dtype != x.dtype:
            raise TypeError(f"lax.reduce: an init value must have the dtype of its operand, got {init} for an operand {x}")
        if out.shape or out.dtype != x.dtype:
            raise TypeError(f"lax.reduce: computation must return scalars of the operands' dtypes, and returned {out} for an operand {x}")
    _check_axes("reduce", types[0], dimensions)


def _reduce_type(*types, jaxpr, dimensions):
    n = len(types) // 2
    _check_reduce(types[:n], types[n:], jaxpr, dimensions)
    return [t.update(shape=tuple([s for i, s in enumerate(t.shape) if i not in dimensions])) for t in types[:n]]


def _folded(jaxpr: Jaxpr, operands: Sequence, inits: Sequence, dimensions) -> list:
    """What reduce computes, in terms of other primitives: neighbours are combined, until there is one entry."""
    from mini_jax.transforms.vmap import Axis, batch_flat     # a program on scalars is to be applied to arrays; vmap stands above us

    def combine(left, right):
        size = typeof(left[0]).size
        shape = typeof(left[0]).shape
        lines = [shapes.reshape(x, (size,)) for x in (*left, *right)]
        outs, dims = batch_flat(lambda *xs: eval_jaxpr(jaxpr, (), *xs), Axis(size), lines, [0] * len(lines))
        return [shapes.broadcast(x, shape) if d is None else shapes.reshape(x, shape) for x, d in zip(outs, dims)]

    xs = [_flat(x, dimensions) for x in operands]
    kept = typeof(xs[0]).shape[1:]
    inits = [init if typeof(init).shape == kept else shapes.broadcast(init, kept) for init in inits]
    while (n := typeof(xs[0]).shape[0]) > 1:
        pairs = combine([slice_in_dim(x, 0, n - n % 2, 2) for x in xs], [slice_in_dim(x, 1, n, 2) for x in xs])
        xs = [concatenate([pair, slice_in_dim(x, n - 1, n)], 0) for pair, x in zip(pairs, xs)] if n % 2 else pairs
    return combine(inits, [shapes.reshape(x, kept) for x in xs]) if n else inits


def _reduce_jvp(primals, tangents, *, jaxpr, dimensions):
    """The derivative of the fold, since a program's own derivative need not be a monoid."""
    from mini_jax.transforms.jvp import jvp_flat              # the derivative of a program is made above us
    n = len(primals) // 2
    if all([type(t) is Zero for t in tangents]):
        outs = reduce_p.bind(*primals, jaxpr=jaxpr, dimensions=dimensions)
        return outs, [zero_like(y) for y in outs]
    return jvp_flat(lambda *xs: _folded(jaxpr, xs[:n], xs[n:], dimensions), primals, tangents)


def _reduce_batch(axis, args, dims, *, jaxpr, dimensions):
    n = len(args) // 2
    xs = [batched_at(axis, x, d, 0) for x, d in zip(args[:n], dims)]
    shifted = tuple([d + 1 for d in dimensions])
    if all([d is None for d in dims[n:]]):
        return reduce_p.bind(*xs, *args[n:], jaxpr=jaxpr, dimensions=shifted), [0] * n
    kept = [s for i, s in enumerate(typeof(xs[0]).shape) if i not in shifted]
    inits = [init if d is None else shapes.broadcast_in_dim(init, tuple(kept), (0,)) for init, d in zip(args[n:], dims[n:])]
    return _folded(jaxpr, xs, inits, shifted), [0] * n


reduce_p.type_rule, reduce_p.jvp, reduce_p.batch = _reduce_type, _reduce_jvp, _reduce_batch
