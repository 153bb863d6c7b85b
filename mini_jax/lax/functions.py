"""Functions of elementwise primitives: from a row to the primitive and the public function that applies it.

    sin_p, sin = unary("sin", FLOATS | COMPLEX, "sin x, x in radians", jvp=lambda t, y, x: t * cos(x))

A Python scalar becomes a scalar of the other operands' dtype where Python itself would convert (int → float → complex);
all else is left to the primitive's type rule, which raises.
"""
from __future__ import annotations

from types import FunctionType
from typing import Any, Callable, Sequence

from mini_jax.core import config, dtypes
from mini_jax.core.primitive import Primitive
from mini_jax.core.state import state
from mini_jax.core.trace import typeof
from mini_jax.lax import rows

python_scalars = frozenset([bool, int, float, complex])
_x64 = config.enable_x64.state
_rank = {bool: 0, int: 1, float: 2, complex: 3}


def of_one_dtype(*operands) -> Sequence:
    """The operands, with Python scalars among them converted to the dtype of the first that is none.

    Raises OverflowError for an int beyond the dtype's range.
    """
    for x in operands:
        if type(x) not in python_scalars:
            dtype = typeof(x).dtype
            wide = _x64.value
            return [_converters[type(x), dtype, wide](x) if type(x) in python_scalars else x for x in operands]
    return operands


class _Converters(dict):
    """How a scalar of a Python type becomes one of a dtype: {(type, dtype, is x64 on): conversion}.

    It stays as it is where it is of that dtype already, and where Python would not convert.
    """

    def __missing__(self, key):
        kind, dtype, _ = key
        if dtypes.is_extended(dtype) or dtype == dtypes.float0 or dtypes.canonicalize(dtypes.python_scalar_types[kind]) == dtype:
            convert = _unchanged
        elif _rank[kind] > _rank[dtypes.scalar_type_of(dtype)] or kind is bool and dtype != dtypes.bool_:
            convert = _unchanged
        elif kind is int and dtypes.is_integer(dtype):
            convert = lambda x: (dtypes.check_scalar_range(x, dtype), dtype.type(x))[1]
        else:
            convert = dtype.type
        self[key] = convert
        return convert


def _unchanged(x):
    return x


_converters = _Converters()


# --- from a primitive to its function ---------------------------------------------------------------------------------

def public(primitive: Primitive, formula: str, name: str | None = None, arguments: Sequence[str] | None = None,
           accuracy: bool = False) -> Callable:
    """The function users call. `arguments`: its parameters' names; `accuracy`: it takes JAX's parameter of that name."""
    arity, name = primitive.facts["arity"], name or primitive.name
    if arity == 1 and accuracy:
        def fun(x, *, accuracy=None):
            if accuracy is None:
                return state.trace.process(primitive, (x,), {})
            return state.trace.process(primitive, (x,), {"accuracy": _checked_accuracy(accuracy)})
    elif arity == 1:
        def fun(x):
            return state.trace.process(primitive, (x,), {})
    elif arity == 2:
        def fun(x, y):
            if type(x) in python_scalars or type(y) in python_scalars:
                x, y = of_one_dtype(x, y)
            try:
                return state.trace.process(primitive, (x, y), {})
            except TypeError:
                operands = _repeated(x, y)
            return state.trace.process(primitive, operands, {})
    else:
        def fun(x, y, z):
            operands = tuple(of_one_dtype(x, y, z))
            try:
                return state.trace.process(primitive, operands, {})
            except TypeError:
                operands = _repeated(*operands)
            return state.trace.process(primitive, operands, {})
    arguments = tuple(arguments or ("x", "y", "z")[:arity])
    return named(fun, name, f"{formula}.\n\n{_contract(primitive, arguments, accuracy)}", arguments)


def _repeated(*operands) -> tuple:
    """Operands of one number of dimensions that differ in sizes 1, repeated along those. Raises again what is being handled where they are not such."""
    types = [typeof(x) for x in operands]
    sizes = [{n for n in place if n != 1} for place in zip(*[t.shape for t in types])]
    if len({t.ndim for t in types}) > 1 or any([len(found) > 1 for found in sizes]) or len({t.shape for t in types}) == 1:
        raise
    shape = tuple([found.pop() if found else 1 for found in sizes])
    return tuple([x if t.shape == shape else rows.shapes.broadcast_in_dim(x, shape, tuple(range(t.ndim))) for x, t in zip(operands, types)])


def named(fun: FunctionType, name: str, doc: str, arguments: Sequence[str] = ()) -> FunctionType:
    """Give a function made here the name, the documentation and the parameter names of what it is."""
    code = fun.__code__
    fun.__code__ = code.replace(co_name=name, co_qualname=name, co_varnames=(*arguments, *code.co_varnames[len(arguments):]))
    fun.__name__ = fun.__qualname__ = name
    fun.__module__, fun.__doc__ = "mini_jax.lax", doc
    return fun


def _checked_accuracy(accuracy):
    """TypeError unless it is an AccuracyMode or has the fields of a Tolerance."""
    if not hasattr(accuracy, "atol") and type(accuracy).__name__ != "AccuracyMode":
        raise TypeError(f"accuracy must be None, an AccuracyMode or a Tolerance, got {accuracy!r:.200} of type {type(accuracy).__name__}")
    return accuracy


def _contract(primitive: Primitive, arguments: Sequence[str], accuracy: bool) -> str:
    kinds = kinds_of(primitive.facts["dtypes"])
    if len(arguments) == 1:
        text = f"{arguments[0]}: an array or number, {kinds}. Returns an array of its shape. Raises TypeError for other dtypes."
    else:
        text = (f"{', '.join(arguments)}: arrays or numbers of one dtype, {kinds}, and of one shape (sizes 1 are\n"
                "    repeated), or scalars, which stand for an array of equal entries. Returns an array of that shape. Raises TypeError for other dtypes or shapes.")
    if accuracy:
        text += ("\n    accuracy: None, AccuracyMode.DEFAULT or HIGHEST, or a Tolerance: what the compiler may trade for speed. "
                 "(StableHLO: result_accuracy)")
    return "    " + text + "\n    "


def kinds_of(accepts) -> str:
    """`integer, floating or complex`: a set of dtypes in words, or their names where it isn't made of whole kinds."""
    words = [word for word, members in (("boolean", rows.BOOL), ("unsigned", rows.UINTS), ("signed integer", rows.INTS),
                                        ("floating", rows.FLOATS), ("complex", rows.COMPLEX)) if members <= accepts]
    if not words:
        return rows.dtype_list(accepts)
    if "unsigned" in words and "signed integer" in words:
        words = [word for word in words if word != "unsigned"]
        words[words.index("signed integer")] = "integer"
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


# --- rows -------------------------------------------------------------------------------------------------------------

def unary(name: str, accepts: frozenset, formula: str, *, jvp: Callable | None = None, accuracy: bool = False,
          public_name: str | None = None, **row: Any) -> tuple[Primitive, Callable]:
    """Declare an elementwise primitive of one operand, and its function."""
    primitive = rows.unary(name, accepts, jvp=(lambda t, y, x, accuracy=None: jvp(t, y, x)) if accuracy else jvp, **row)
    if accuracy:
        primitive.facts["parameters"] = ("accuracy",)
    return primitive, public(primitive, formula, public_name, accuracy=accuracy)


def binary(name: str, accepts: frozenset, formula: str, *, arguments: Sequence[str] | None = None, public_name: str | None = None,
           **row: Any) -> tuple[Primitive, Callable]:
    """Declare an elementwise primitive of two operands, and its function."""
    primitive = rows.nary(name, 2, accepts, **row)
    return primitive, public(primitive, formula, public_name, arguments)


def public_names(module: dict[str, Any]) -> list[str]:
    """The __all__ of a file of rows: its primitives, and the functions defined in it."""
    return [name for name, value in module.items() if not name.startswith("_")
            and (isinstance(value, Primitive) and name.endswith("_p")
                 or isinstance(value, (FunctionType, type)) and value.__module__ in ("mini_jax.lax", module["__name__"]))]
