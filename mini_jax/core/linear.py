"""What derivative rules deal in: `Zero`, a tangent known to vanish, and `Accumulator`, where a cotangent is gathered."""
from __future__ import annotations

from typing import Any, Callable

from mini_jax.core.state import state
from mini_jax.core.trace import typeof
from mini_jax.core.types import AbstractValue


class Zero:
    """A tangent or cotangent that is zero, without being computed. `aval` is its type."""
    __slots__ = ("aval",)

    def __init__(self, aval: AbstractValue):
        self.aval = aval

    def __repr__(self):
        return f"Zero({self.aval})"

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)


def zero_like(primal) -> Zero:
    """The zero tangent of a value."""
    return Zero(typeof(primal).tangent())


class Accumulator:
    """Where the cotangents of one linear input come together. A transpose rule calls `add`; `value` is the sum or None.

    `wanted` False: nobody will read it, so a rule may skip the work of computing what it would add.
    `carried`: the sum lives in place (a ref, the carry of a loop), so that to add to a part of it costs no more than that part.
    `partial`: it may hold each device's part of a sum over devices, until the backward pass ends (lax/totals.py).
    """
    __slots__ = ("aval", "value")
    wanted, carried, partial = True, False, True

    def __init__(self, aval: AbstractValue, value: Any = None):
        self.aval, self.value = aval, value

    def add(self, cotangent) -> None:
        """Add a cotangent of this input's type; a Zero or None adds nothing."""
        if cotangent is None or type(cotangent) is Zero:
            return
        if state.reduced is not None:
            cotangent = reduce_cotangent(self, cotangent)
        self.value = cotangent if self.value is None else add_cotangents(self.value, cotangent)

    def contracted(self, values: tuple, dimensions: tuple) -> tuple[tuple, bool]:
        """(values, whether they changed), for a transpose rule whose result is a product of all the values, the cotangent first: along axes
        of a batch that the result is summed over in this backward pass and that all of them vary along, the rule is to contract the axis.
        It has become part of each one's dimension given here, or for None a new leading one."""
        return (values, False) if state.reduced is None or not state.reduced.now else contract_axes(self, values, dimensions)

    def takes_part(self, size: int) -> bool:
        """Had a cotangent that is zero but for `size` elements better be added by `update` to the sum that there is?"""
        return state.reduced is None and (self.carried or self.value is not None and 8 * size <= self.aval.size)

    def update(self, change: Callable[[Any], Any]) -> None:
        """Replace the sum, of which there is one where `takes_part` was true, by what `change` makes of it."""
        self.value = change(self.value)

    def result(self):
        """The sum of what was added: a value or a Zero."""
        return Zero(self.aval.tangent()) if self.value is None else self.value

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: self.aval.ndim)
    size = property(lambda self: self.aval.size)


def add_cotangents(x, y):
    """x + y. Set by mini_jax.lax (the primitive add_any)."""
    raise RuntimeError("mini_jax.lax is not loaded")


def reduce_cotangent(accumulator: Accumulator, cotangent):
    """A cotangent as the accumulator is to add it, in a backward pass that reduces over named axes. Set by lax/totals.py."""
    raise RuntimeError("mini_jax.lax is not loaded")


def contract_axes(accumulator: Accumulator, values: tuple, dimensions: tuple) -> tuple[tuple, bool]:
    """What `Accumulator.contracted` says, where there are such axes. Set by lax/totals.py."""
    raise RuntimeError("mini_jax.lax is not loaded")


class Refused(Accumulator):
    """An accumulator of an input whose cotangent nobody wants."""
    __slots__ = ()
    wanted = False

    def add(self, cotangent) -> None:
        pass


class Carried(Accumulator):
    """An accumulator whose sum starts with a value and is changed in place."""
    __slots__ = ()
    carried = True


def is_linear(arg) -> bool:
    """In a transpose rule: is this argument one to transpose with respect to?"""
    return isinstance(arg, Accumulator)
