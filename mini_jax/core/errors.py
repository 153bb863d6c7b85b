"""Errors: the classes that JAX users know, and the words that each is raised with.

The classes come first, then functions that take plain facts and return an error ready to be raised. Every message says
what was wrong, whose value it was and where, and what to do instead. Nothing is built before something went wrong.
"""
from __future__ import annotations

from typing import NamedTuple

from mini_jax.runtime import xla

JaxRuntimeError = xla.XlaRuntimeError       # what XLA itself raises while compiling or running


class JAXTypeError(TypeError):
    """A value was used in a way that values of its kind do not allow."""


class JAXIndexError(IndexError):
    """An array was indexed in a way that arrays do not allow."""


class ConcretizationTypeError(JAXTypeError):
    """A number was needed where only a type is known, because the function is being traced."""


class TracerBoolConversionError(ConcretizationTypeError):
    """The truth value of a traced value was asked for, as `if` does."""


class TracerArrayConversionError(JAXTypeError):
    """A traced value was given to NumPy."""


class TracerIntegerConversionError(JAXTypeError):
    """A traced value was used where Python needs an int, as `range` does."""


class NonConcreteBooleanIndexError(JAXIndexError):
    """An array was indexed by a traced mask: the shape of the result would depend on the mask's values."""


class IncompatibleShapesError(TypeError, ValueError):
    """Shapes that do not go together: a TypeError, as JAX has it, and a ValueError, as NumPy has it."""


class UnexpectedTracerError(JAXTypeError):
    """A traced value was used after the transformation that made it had ended."""


class KeyReuseError(JAXTypeError):
    """A random key was used twice, so the same numbers would be drawn again."""


class TypePromotionError(ValueError):
    """Dtypes have no common dtype, or the strict mode refuses to mix them."""


class JaxprTypeError(TypeError):
    """A program does not type-check."""


class ShardingTypeError(Exception):
    """The shardings of an operation's operands do not fit together."""


class InconclusiveDimensionOperation(Exception):
    """A comparison of symbolic dimensions holds for some of their values and not for others."""


# ---------------------------------------------------------------------------------------------------------------------

class RefOperandError(JAXTypeError):
    """A ref was given to an operation on arrays. position: which operand it is."""
    position: int | None = None


class Whence(NamedTuple):
    """Where a traced value comes from. Everything may be left out; what is known is said.

    transform: what traces it: "jit", "grad", "vmap", "scan", …
    function, location: the name of the function that is being transformed, and where it stands ("train.py:12").
    arguments: paths of the arguments on which the value depends ("params['w'][0]").
    operation, operation_location: what computed it ("mul"), and the user's line that asked for it.
    """
    transform: str | None = None
    function: str | None = None
    location: str | None = None
    arguments: tuple[str, ...] = ()
    operation: str | None = None
    operation_location: str | None = None

    def __str__(self) -> str:
        parts = []
        if self.operation:
            parts.append(f"It was computed by {self.operation}" + _at(self.operation_location))
        if self.arguments:
            shown = list(self.arguments[:4]) + (["…"] if len(self.arguments) > 4 else [])
            kind = "argument" if len(self.arguments) == 1 else "arguments"
            parts.append(("and depends on " if parts else "It depends on ") + f"the {kind} {', '.join(shown)}")
        if self.function:
            parts.append(("of " if self.arguments else "in " if parts else "It belongs to ")
                         + f"{self.function}" + _at(self.location))
        if self.transform:
            if not parts:
                return f"It is traced by {self.transform}: only its type is known there."
            parts.append(f"which {self.transform} is tracing" if self.function else f"under {self.transform}")
        if not parts:
            return ""
        text = " ".join(parts).replace(" which", ", which")
        return text + (": only types are known there." if self.transform else ".")


def _at(location: str | None) -> str:
    return f" at {location}" if location else ""


def _message(wrong: str, whence: Whence | None, instead: str) -> str:
    return "\n".join(filter(None, (wrong, str(whence or ""), instead)))


def _value_advice(whence: Whence | None, needs: str) -> str:
    """How to have a Python value instead of a traced one."""
    whence = whence or Whence()
    if whence.transform in ("vmap", "pmap", "shard_map"):
        return f"Under {whence.transform} it has a different value for each element, so there is no one value to {needs}."
    if whence.transform in ("scan", "while_loop", "fori_loop", "map", "cond", "switch"):
        return f"The function given to {whence.transform} runs on values that Python never sees; nothing in it can {needs}."
    names = ", ".join(dict.fromkeys(repr(path.split("[")[0].split(".")[0]) for path in whence.arguments)) or "…"
    return (f"If it is known before the call, pass it as a static argument, jit(f, static_argnames=({names},)); "
            f"or leave the part that must {needs} outside the traced function.")


def concretization(type_: str, whence: Whence | None = None, *, needed: str = "the value",
                   instead: str = "") -> ConcretizationTypeError:
    """A traced value of type `type_` ("f32[3]") was used where `needed` ("the value") must be known."""
    return ConcretizationTypeError(_message(
        f"{needed} of a traced value of type {type_} was needed.", whence, instead or _value_advice(whence, "know it")))


def bool_conversion(type_: str, whence: Whence | None = None) -> TracerBoolConversionError:
    """bool(traced), from `if`, `while`, `and`, `or`, `not`, `assert`, `min`, `sorted`, …"""
    return TracerBoolConversionError(_message(
        f"the truth value of a traced value of type {type_} was asked for (by if, while, and, or, not, assert, …).", whence,
        "To choose between values use jnp.where, between computations lax.cond; to repeat, lax.while_loop; to combine "
        "conditions, jnp.logical_and and its like. " + _value_advice(whence, "decide it")))


def array_conversion(type_: str, whence: Whence | None = None) -> TracerArrayConversionError:
    """numpy.asarray(traced), mostly from a NumPy function applied to a traced value."""
    return TracerArrayConversionError(_message(
        f"a traced value of type {type_} was given to NumPy, which needs its numbers.", whence,
        "Use the function of the same name in mini_jax.numpy; or, to run NumPy code at run time, pure_callback."))


def integer_conversion(type_: str, whence: Whence | None = None) -> TracerIntegerConversionError:
    """operator.index(traced): from `range`, list indexing, shapes, …"""
    return TracerIntegerConversionError(_message(
        f"a traced value of type {type_} was used where Python needs an int (range, a list's index, a shape, …).", whence,
        "To index with it, make the list an array first: jnp.asarray(a)[i]; to loop, use lax.fori_loop. "
        + _value_advice(whence, "know it")))


def scalar_conversion(type_: str, kind: str, whence: Whence | None = None) -> ConcretizationTypeError:
    """int(traced), float(traced), complex(traced), traced.item(), …; `kind` is the name of what was asked."""
    cast = f"To change the dtype, use x.astype({kind}). " if kind in ("int", "float", "complex") else ""
    return ConcretizationTypeError(_message(
        f"{kind}() needs the number in a traced value of type {type_}.", whence, cast + _value_advice(whence, "know it")))


def boolean_index(type_: str, whence: Whence | None = None) -> NonConcreteBooleanIndexError:
    """x[mask] with a traced mask of type `type_`."""
    return NonConcreteBooleanIndexError(_message(
        f"an array was indexed by a traced mask of type {type_}: how many elements it selects is not known.", whence,
        "Keep the shape: jnp.where(mask, x, 0), x.at[mask].set(y), jnp.sum(x, where=mask); or give the number of "
        "elements: jnp.nonzero(mask, size=n)."))


def shape_depends_on_value(function: str, argument: str, whence: Whence | None = None, *,
                           instead: str = "") -> ConcretizationTypeError:
    """`function` cannot know its result's shape, because `argument` is traced."""
    return ConcretizationTypeError(_message(
        f"the shape of what {function} returns depends on the value of {argument}, which is traced.", whence,
        instead or _value_advice(whence, "know it") + " (Or by position: static_argnums.)"))


def leaked(type_: str, whence: Whence | None = None) -> UnexpectedTracerError:
    """A tracer outlived its trace."""
    whence = whence or Whence()
    by = f"the {whence.transform} of " if whence.transform else ""
    made = (f"It was made in {by}{whence.function}{_at(whence.location)}" if whence.function
            else f"It was made under {whence.transform}" if whence.transform else "")
    if whence.operation:
        made += (", " if made else "It was computed ") + f"by {whence.operation}{_at(whence.operation_location)}"
    return UnexpectedTracerError(_message(
        f"a traced value of type {type_} was used after the function that it belongs to had been traced.",
        None, (made + ".\n" if made else "") +
        "A traced function passes values out by returning them; what it stores in a global, an attribute, a list or an "
        "outer variable has no value there. Return it, or hold it in a mutable array (new_ref). "
        "The option check_tracer_leaks finds the place where it escapes."))


def key_reuse(name: str = "a random key", *, first: str | None = None, second: str | None = None,
              function: str | None = None) -> KeyReuseError:
    """A key was consumed at `first` and again at `second` ("normal at train.py:10")."""
    where = f" in {function}" if function else ""
    uses = f" It was used first by {first}" + (f" and again by {second}." if second else ".") if first else ""
    return KeyReuseError(f"{name} was used twice{where}, so both draws see the same numbers.{uses}\n"
                         "Make a new key for every use: key, subkey = random.split(key).")


def inconclusive_dimension(operation: str) -> InconclusiveDimensionOperation:
    """`operation` ("n >= 2*m") is true for some sizes only."""
    return InconclusiveDimensionOperation(
        f"{operation} holds for some values of the symbolic dimensions and not for others.\n"
        "Say more about them, as in symbolic_shape('n, m', constraints=['n >= m']), or compare at run time.")


def sharding_mismatch(operation: str, operands: list[tuple[str, str]], *, instead: str = "") -> ShardingTypeError:
    """`operands` are (type, sharding) as printed; `operation` cannot combine them."""
    shown = "; ".join(f"{type_} sharded {sharding}" for type_, sharding in operands)
    return ShardingTypeError(f"{operation} cannot combine {shown}.\n"
                             + (instead or "Give the operands one sharding first, with reshard or device_put."))


def ref_operand(operation: str, type_: str, created: str | None = None, position: int | None = None) -> RefOperandError:
    """A ref where an array is needed."""
    error = RefOperandError(f"{operation} takes arrays, got {'operand ' + str(position) + ', ' if position is not None else ''}a ref of type {type_}"
                            f"{' created at ' + created if created else ''}. Refs are read and written, nothing else: read it with ref[...]")
    error.position = position
    return error
