"""Shape operations: broadcast and its transpose the sum, reshape, transpose, squeeze; the ground that other families' rules stand on."""
from __future__ import annotations

import operator
from typing import Sequence

import numpy as np

from mini_jax.core import dtypes, linear
from mini_jax.core.linear import Accumulator, Zero
from mini_jax.core.primitive import Primitive
from mini_jax.core.errors import IncompatibleShapesError, TracerIntegerConversionError
from mini_jax.core.trace import Tracer, known_int, typeof

__all__ = ["broadcast_in_dim", "broadcast_in_dim_p", "broadcast", "reduce_sum", "reduce_sum_p", "reshape", "reshape_p", "transpose", "transpose_p",
           "squeeze", "squeeze_p", "expand_dims", "add_any_p", "convert_element_type", "convert_element_type_p"]

# --- arguments ---------------------------------------------------------------------------------------------------------

def canonical_shape(shape, function: str = "the function", argument: str = "the shape it is given") -> tuple[int, ...]:
    """A tuple of non-negative ints from what users pass as a shape; TypeError says what was wrong, for a traced size also where."""
    if type(shape) is tuple:
        for n in shape:
            if type(n) is not int or n < 0:
                break
        else:
            return shape                                                         # as it is: the usual case
    if isinstance(shape, (int, np.integer)):
        shape = (shape,)
    try:
        out = tuple([operator.index(n) for n in shape])
    except TracerIntegerConversionError:
        out = tuple([known_int(n, function, argument) for n in shape])           # raises, with better words
    except TypeError as error:
        if isinstance(shape, Tracer):
            known_int(shape, function, argument)                                 # raises, too
        raise TypeError(f"a shape is a sequence of integers, got {shape!r}") from error
    if any(n < 0 for n in out):
        raise TypeError(f"a shape has no negative sizes, got {out}")
    return out


def canonical_axis(axis, ndim: int) -> int:
    """axis in [0, ndim) from one in [-ndim, ndim); AxisError, a ValueError and IndexError, for another."""
    axis = operator.index(axis) if isinstance(axis, int) else known_int(axis, "the function", "axis")
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(f"axis {axis} is out of bounds for an array of dimension {ndim}")
    return axis + ndim if axis < 0 else axis


def canonical_axes(axes, ndim: int, name: str = "axes") -> tuple[int, ...]:
    """Distinct axes, each in [0, ndim), from an int, a sequence or None (all)."""
    if axes is None:
        return tuple(range(ndim))
    if type(axes) is int and 0 <= axes < ndim:
        return (axes,)
    if isinstance(axes, (int, np.integer)):
        axes = (axes,)
    out = tuple([canonical_axis(a, ndim) for a in axes])
    if len(set(out)) != len(out):
        raise ValueError(f"duplicate value in {name}: {tuple(axes)}")
    return out


def _is_array(x) -> bool:
    return hasattr(x, "aval")                        # an array or a tracer, which an identity may hand on as it is


# --- broadcast_in_dim and reduce_sum, each other's transpose ----------------------------------------------------------------

broadcast_in_dim_p = Primitive("broadcast_in_dim", facts={"family": "shapes"})
reduce_sum_p = Primitive("reduce_sum", facts={"family": "reductions"})


def broadcast_in_dim(operand, shape, broadcast_dimensions, *, out_sharding=None):
    """The array of `shape` whose dimension broadcast_dimensions[i] is the operand's dimension i, repeated where that has size 1.

    out_sharding: of no effect: how results lie on devices is the compiler's choice (lax.with_sharding_constraint decides it).
    Raises TypeError where a size is neither 1 nor the result's. (StableHLO: broadcast_in_dim)
    """
    shape = canonical_shape(shape)
    broadcast_dimensions = tuple(map(int, broadcast_dimensions))
    if _is_array(operand) and operand.shape == shape and broadcast_dimensions == tuple(range(len(shape))):
        return operand
    return broadcast_in_dim_p.bind(operand, shape=shape, broadcast_dimensions=broadcast_dimensions)


def broadcast(operand, sizes):
    """The operand, repeated along new leading dimensions of these sizes."""
    sizes, shape = canonical_shape(sizes), typeof(operand).shape
    return broadcast_in_dim(operand, sizes + shape, tuple(range(len(sizes), len(sizes) + len(shape))))


def reduce_sum(operand, axes):
    """The sum over `axes` (non-negative, distinct)."""
    return reduce_sum_p.bind(operand, axes=tuple(axes)) if axes else operand


def sum_all(operand):
    return reduce_sum(operand, tuple(range(typeof(operand).ndim)))


def _broadcast_type(x, *, shape, broadcast_dimensions):
    if len(broadcast_dimensions) != x.ndim or list(broadcast_dimensions) != sorted(set(broadcast_dimensions)):
        raise TypeError(f"lax.broadcast_in_dim({x}, shape={shape}): broadcast_dimensions {broadcast_dimensions} must name one "
                        "dimension of the result, in increasing order, for each of the operand's")
    for size, d in zip(x.shape, broadcast_dimensions):
        if not 0 <= d < len(shape) or size not in (1, shape[d]):
            raise TypeError(f"lax.broadcast_in_dim({x}, shape={shape}): a dimension of size {size} can't become dimension {d} of the result")
    return x.update(shape=shape)


def _broadcast_transpose(ct, x, *, shape, broadcast_dimensions):
    kept = {d: i for i, d in enumerate(broadcast_dimensions)}
    axes = tuple(d for d in range(len(shape)) if d not in kept or (x.shape[kept[d]] == 1 and shape[d] != 1))
    x.add(reshape(reduce_sum(ct, axes), x.shape))


def _broadcast_batch(axis, args, dims, *, shape, broadcast_dimensions):
    x = moveaxis(args[0], dims[0], 0)
    return broadcast_in_dim(x, (axis.size, *shape), (0, *[d + 1 for d in broadcast_dimensions])), 0


def _sum_type(x, *, axes):
    if not all(0 <= a < x.ndim for a in axes) or len(set(axes)) != len(axes):
        raise ValueError(f"lax.reduce_sum({x}): axes {axes} are not distinct dimensions of the operand")
    if x.dtype == dtypes.bool_:
        raise TypeError(f"lax.reduce_sum({x}): booleans have no sum; convert them first")
    if dtypes.is_extended(x.dtype):
        raise TypeError(f"lax.reduce_sum({x}): random keys have no sum")
    return x.update(shape=tuple([n for i, n in enumerate(x.shape) if i not in axes]))


def _sum_transpose(ct, x, *, axes):
    x.add(broadcast_in_dim(ct, x.shape, tuple([i for i in range(x.ndim) if i not in axes])))


def reduction_batch(primitive):
    """Batching of a reduction over `axes`: the same over the shifted axes."""
    def rule(axis, args, dims, *, axes, **params):
        (x,), (dim,) = args, dims
        shifted = tuple([a + (a >= dim) for a in axes])
        return primitive.bind(x, axes=shifted, **params), dim - sum([a < dim for a in shifted])
    return rule


def linear_in_first(primitive: Primitive) -> None:
    """The tangent of an operation linear in its operand is the operation on the tangent."""
    def rule(primals, tangents, **params):
        y = primitive.bind(*primals, **params)
        t = tangents[0]
        return y, Zero(typeof(y).tangent()) if type(t) is Zero else primitive.bind(t, *primals[1:], **params)
    primitive.jvp = rule


broadcast_in_dim_p.type_rule, broadcast_in_dim_p.transpose, broadcast_in_dim_p.batch = _broadcast_type, _broadcast_transpose, _broadcast_batch
reduce_sum_p.type_rule, reduce_sum_p.transpose, reduce_sum_p.batch = _sum_type, _sum_transpose, reduction_batch(reduce_sum_p)
linear_in_first(broadcast_in_dim_p)
linear_in_first(reduce_sum_p)


# --- reshape, transpose, squeeze, expand_dims ------------------------------------------------------------------------------

reshape_p = Primitive("reshape", facts={"family": "shapes"})
transpose_p = Primitive("transpose", facts={"family": "shapes"})
squeeze_p = Primitive("squeeze", facts={"family": "shapes"})


def reshape(operand, new_sizes, dimensions: Sequence[int] | None = None, *, out_sharding=None):
    """The same elements, in row-major order, in the shape `new_sizes`; `dimensions` permutes the operand first.

    out_sharding: of no effect, as in broadcast_in_dim.
    Raises TypeError where the number of elements differs.
    """
    if dimensions is not None:
        operand = transpose(operand, dimensions)
    new_sizes = canonical_shape(new_sizes)
    if _is_array(operand) and operand.shape == new_sizes:
        return operand
    return reshape_p.bind(operand, new_sizes=new_sizes)


def transpose(operand, permutation):
    """The array whose dimension i is the operand's dimension permutation[i]."""
    permutation = tuple([operator.index(p) for p in permutation])
    if _is_array(operand) and permutation == tuple(range(operand.ndim)):
        return operand
    return transpose_p.bind(operand, permutation=permutation)


def squeeze(array, dimensions):
    """The array without `dimensions`, each of which must have size 1 (else ValueError)."""
    dimensions = canonical_axes(dimensions, typeof(array).ndim, "dimensions")
    if not dimensions and _is_array(array):
        return array
    return squeeze_p.bind(array, dimensions=tuple(sorted(dimensions)))


def expand_dims(array, dimensions):
    """The array with new dimensions of size 1 at the places `dimensions` of the result."""
    aval = typeof(array)
    ndim = aval.ndim + len(dimensions)
    new = set(canonical_axes(dimensions, ndim, "dimensions"))
    old = tuple([i for i in range(ndim) if i not in new])
    sizes = iter(aval.shape)
    return broadcast_in_dim(array, tuple([1 if i in new else next(sizes) for i in range(ndim)]), old)


def moveaxis(x, source: int, destination: int):
    """The array with one dimension moved, as in numpy.moveaxis."""
    if source == destination:
        return x
    permutation = [i for i in range(typeof(x).ndim) if i != source]
    permutation.insert(destination, source)
    return transpose(x, permutation)


def _reshape_type(x, *, new_sizes):
    size = 1
    for n in new_sizes:
        size *= n
    if size != x.size:
        raise IncompatibleShapesError(f"cannot reshape {x}, which has {x.size} elements, to shape {new_sizes}, which has {size}")
    return x.update(shape=new_sizes)


def _reshape_batch(axis, args, dims, *, new_sizes):
    return reshape(moveaxis(args[0], dims[0], 0), (axis.size, *new_sizes)), 0


def _transpose_type(x, *, permutation):
    if sorted(permutation) != list(range(x.ndim)):
        raise TypeError(f"lax.transpose({x}): {permutation} is not a permutation of its {x.ndim} dimensions")
    return x.update(shape=tuple([x.shape[p] for p in permutation]))


def _transpose_transpose(ct, x, *, permutation):
    x.add(transpose(ct, np.argsort(permutation).tolist()))


def _transpose_batch(axis, args, dims, *, permutation):
    (x,), (dim,) = args, dims
    return transpose(x, (dim, *[p + (p >= dim) for p in permutation])), 0


def _squeeze_type(x, *, dimensions):
    for d in dimensions:
        if x.shape[d] != 1:
            raise ValueError(f"cannot squeeze dimension {d} of {x}: its size is {x.shape[d]}, not 1")
    return x.update(shape=tuple([n for i, n in enumerate(x.shape) if i not in dimensions]))


def _squeeze_batch(axis, args, dims, *, dimensions):
    return squeeze(moveaxis(args[0], dims[0], 0), tuple([d + 1 for d in dimensions])), 0


reshape_p.type_rule, reshape_p.batch = _reshape_type, _reshape_batch
reshape_p.transpose = lambda ct, x, *, new_sizes: x.add(reshape(ct, x.shape))
transpose_p.type_rule, transpose_p.transpose, transpose_p.batch = _transpose_type, _transpose_transpose, _transpose_batch
squeeze_p.type_rule, squeeze_p.batch = _squeeze_type, _squeeze_batch
squeeze_p.transpose = lambda ct, x, *, dimensions: x.add(reshape(ct, x.shape))
for _primitive in (reshape_p, transpose_p, squeeze_p):
    linear_in_first(_primitive)


# --- add_any: the sum of two cotangents ---------------------------------------------------------------------------------

add_any_p = Primitive("add_any", facts={"family": "elementwise"})


def add_any(x, y):
    """x + y for values of one type; what reverse mode adds cotangents with."""
    return add_any_p.bind(x, y)


def _add_any_type(x, y):
    if x.shape != y.shape or x.dtype != y.dtype or dtypes.is_extended(x.dtype):
        raise TypeError(f"cotangents of types {x} and {y} can't be added")
    return x if not x.weak_type else y


def _add_any_jvp(primals, tangents):
    live = [t for t in tangents if type(t) is not Zero]
    y = add_any(*primals)
    return y, (Zero(typeof(y).tangent()) if not live else live[0] if len(live) == 1 else add_any(*live))


def _add_any_transpose(ct, x, y):
    for arg in (x, y):
        if isinstance(arg, Accumulator):
            arg.add(ct)


def _add_any_batch(axis, args, dims):
    if dims[0] == dims[1]:
        return add_any(*args), dims[0]
    x, y = [broadcast_in_dim(a, (axis.size, *typeof(a).shape), tuple(range(1, typeof(a).ndim + 1))) if d is None else moveaxis(a, d, 0)
            for a, d in zip(args, dims)]
    return add_any(x, y), 0


add_any_p.type_rule, add_any_p.jvp, add_any_p.transpose, add_any_p.batch = _add_any_type, _add_any_jvp, _add_any_transpose, _add_any_batch
linear.add_cotangents = add_any


# --- convert_element_type --------------------------------------------------------------------------------------------------

convert_element_type_p = Primitive("convert_element_type", facts={"family": "elementwise"})


def convert_element_type(operand, new_dtype, weak_type: bool = False):
    """The operand with its elements converted: floats to ints towards zero, complex to real by dropping the imaginary part,
    numbers to booleans by `!= 0`. TypeError for an unknown dtype."""
    new_dtype = dtypes.canonicalize(new_dtype)
    if weak_type is not True and weak_type is not False:
        raise TypeError(f"lax.convert_element_type: weak_type is True or False, got {weak_type!r:.200} of type {type(weak_type).__name__}")
    if _is_array(operand) and operand.aval.dtype == new_dtype and operand.aval.weak_type == weak_type:
        return operand
    return convert_element_type_p.bind(operand, new_dtype=new_dtype, weak_type=weak_type)


def _convert_type(x, *, new_dtype, weak_type):
    if dtypes.is_extended(x.dtype) != dtypes.is_extended(new_dtype):
        raise TypeError(f"{x} can't be converted to {new_dtype}")
    return x.update(dtype=new_dtype, weak_type=weak_type)


def _convert_jvp(primals, tangents, *, new_dtype, weak_type):
    y = convert_element_type_p.bind(*primals, new_dtype=new_dtype, weak_type=weak_type)
    t, out = tangents[0], typeof(y).tangent()
    if type(t) is Zero or out.dtype == dtypes.float0:
        return y, Zero(out)
    return y, convert_element_type(t, new_dtype, weak_type)


def _convert_transpose(ct, x, *, new_dtype, weak_type):
    x.add(convert_element_type(ct, x.dtype, x.aval.weak_type))


convert_element_type_p.type_rule, convert_element_type_p.jvp, convert_element_type_p.transpose = _convert_type, _convert_jvp, _convert_transpose
convert_element_type_p.batch = lambda axis, args, dims, **params: (convert_element_type_p.bind(*args, **params), dims[0])
