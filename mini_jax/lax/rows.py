"""Rows: how an elementwise primitive is declared, mathematics only, and the rules that a row stands for.

    sin_p, sin = unary("sin", FLOATS | COMPLEX, jvp=lambda t, y, x: t * cos(x))
    mul_p, mul = nary("mul", 2, NUMBERS, jvp=(lambda t, y, a, b: t * b, lambda t, y, a, b: a * t),
                                transpose=(lambda ct, a, b: ct * b, lambda ct, a, b: a * ct))

In a row `t` is the tangent of one operand (never a Zero; a row may return one), `y` the result, `ct` the cotangent of the
result, and the operands follow. Operands have one shape, or are scalars, which stand for an array of equal entries.
"""
from __future__ import annotations

from typing import Callable, Sequence

from mini_jax.core import dtypes
from mini_jax.core.linear import Accumulator, Zero
from mini_jax.core.primitive import Primitive
from mini_jax.core.trace import typeof
from mini_jax.core.types import array_type
from mini_jax.lax import shapes

FLOATS = frozenset(dtypes.floats)
COMPLEX = frozenset(dtypes.complexes)
INTS = frozenset(dtypes.signed_integers)
UINTS = frozenset(dtypes.integers - dtypes.signed_integers)
BOOL = frozenset([dtypes.bool_])
NUMBERS = FLOATS | COMPLEX | INTS | UINTS
REALS = FLOATS | INTS | UINTS
ANY = NUMBERS | BOOL


def type_error(name: str, types: Sequence, problem: str) -> TypeError:
    shown = ", ".join(str(t) for t in types)
    return TypeError(f"lax.{name}({shown}): {problem}")


def dtype_list(accepts) -> str:
    return ", ".join(sorted(dtypes.short_name(d) for d in accepts))


def result_shape(name: str, types: Sequence) -> tuple[int, ...]:
    """The one shape of the operands that are no scalars."""
    shape = ()
    for t in types:
        if t.shape:
            if shape and t.shape != shape:
                raise type_error(name, types, f"shapes {shape} and {t.shape} differ; lax operations take equal shapes, up to sizes 1, or scalars "
                                 "(mini_jax.numpy functions broadcast)")
            shape = t.shape
    return shape


def nary_type_rule(name: str, accepts: frozenset, result: Callable | None, same: Sequence[int] | None = None) -> Callable:
    """One shape, one dtype out of `accepts`; `result` maps the operands' dtype to the result's."""
    def rule(*types, **_):
        first = types[0]
        for t in types:
            if t.dtype not in accepts:
                raise type_error(name, types, f"dtype {t.dtype} is not accepted; it takes {dtype_list(accepts)}")
            if t.dtype != first.dtype:
                raise type_error(name, types, "operands must have one dtype (mini_jax.numpy functions promote)")
        dtype = first.dtype if result is None else result(first.dtype)
        return array_type(result_shape(name, types), dtype, dtype != dtypes.bool_ and all([t.weak_type for t in types]))
    return rule


def spread(contribution, like):
    """A scalar contribution to the tangent of a result that is an array of shape `like.shape`."""
    shape = typeof(like).shape
    return contribution if typeof(contribution).shape == shape else shapes.broadcast(contribution, shape)


def gathered(ct, aval):
    """The cotangent of a scalar operand that stood for an array: the sum."""
    if aval.shape == () and typeof(ct).shape != ():
        return shapes.sum_all(ct)
    return ct


def nary_jvp(primitive: Primitive, partials: Sequence[Callable | None]) -> Callable:
    def rule(primals, tangents, **params):
        y = primitive.bind(*primals, **params)
        aval, total = typeof(y), None
        for partial, t in zip(partials, tangents):
            if partial is not None and type(t) is not Zero:
                term = partial(t, y, *primals, **params)
                if type(term) is not Zero:
                    if typeof(term) is not aval:
                        term = spread(term, y)
                    total = term if total is None else shapes.add_any(total, term)
        return y, Zero(aval.tangent()) if total is None else total
    return rule


def nary_transpose(name: str, transposes: Sequence[Callable | None]) -> Callable:
    def rule(ct, *args, **params):
        for position, arg in enumerate(args):
            if isinstance(arg, Accumulator) and arg.wanted:
                if transposes[position] is None:
                    raise NotImplementedError(f"{name} has no transpose here: it is not linear in all of the arguments that are being differentiated")
                arg.add(gathered(transposes[position](ct, *args, **params), arg.aval))
    return rule


def nary_batch(primitive: Primitive) -> Callable:
    def rule(axis, args, dims, **params):
        args, dim = align(axis, args, dims)
        return primitive.bind(*args, **params), dim
    return rule


def align(axis, args, dims):
    """Bring elementwise operands, batched at `dims`, to one shape (scalars stay scalars); returns them and the batch dimension."""
    batched = [(arg, dim) for arg, dim in zip(args, dims) if dim is not None]
    ranks = [typeof(arg).ndim - (dim is not None) for arg, dim in zip(args, dims)]
    rank, dim = max(ranks), batched[0][1]
    if all(d == dim for _, d in batched) and all(r == (rank if d is not None else 0) for r, d in zip(ranks, dims)):
        return args, dim                               # already so: the usual case
    full = next(s for s in ((typeof(a).shape if d is None else _without(typeof(a).shape, d)) for a, d in zip(args, dims)) if len(s) == rank)
    out = []
    for arg, d, r in zip(args, dims, ranks):
        if d is not None:
            arg = shapes.moveaxis(arg, d, 0)
            if r < rank:
                arg = shapes.broadcast_in_dim(arg, (axis.size, *full), (0,))
        elif r:
            arg = shapes.broadcast_in_dim(arg, (axis.size, *full), tuple(range(1, rank + 1)))
        out.append(arg)
    return out, 0


def _without(shape, dim):
    return shape[:dim] + shape[dim + 1:]


def nary(name: str, arity: int, accepts: frozenset, *, jvp: Sequence[Callable | None] | None = None,
         transpose: Sequence[Callable | None] | None = None, result: Callable | None = None,
         type_rule: Callable | None = None) -> Primitive:
    """Declare an elementwise primitive. jvp None: its derivative is zero everywhere (floor, comparisons)."""
    primitive = Primitive(name, facts={"family": "elementwise", "arity": arity, "dtypes": accepts})
    primitive.type_rule = type_rule or nary_type_rule(name, accepts, result)
    primitive.jvp = nary_jvp(primitive, jvp or (None,) * arity)
    if transpose is not None:
        primitive.transpose = nary_transpose(name, transpose)
    primitive.batch = nary_batch(primitive)
    return primitive


def unary(name: str, accepts: frozenset, *, jvp: Callable | None = None, transpose: Callable | None = None, **facts) -> Primitive:
    """Declare an elementwise primitive of one operand."""
    return nary(name, 1, accepts, jvp=(jvp,), transpose=None if transpose is None else (transpose,), **facts)
