"""The emitter: how rules write StableHLO text. A rule appends lines and hands back value names.

    @lowers(sin_p)
    def _(e, eqn, x):
        return e.emit(f"stablehlo.sine {x} : {eqn.outvars[0].aval.mlir}")

Operands and results are the names of SSA values ("%12"). A line written twice in one scope is written once: the text
of an operation is its identity, so common subexpressions cost a dictionary look-up.
"""
from __future__ import annotations

from typing import Callable, Sequence

import numpy as np

from lowering.replicas import Replicas
from mini_jax.core import dtypes
from mini_jax.core.primitive import Primitive
from mini_jax.core.program import Jaxpr, Literal, dce
from mini_jax.core.staging import stage
from mini_jax.core.types import AbstractValue, ShapedArray, array_type

rules: dict[Primitive, Callable] = {}            # primitive -> rule(e, eqn, *operands) -> name | [names]


def lowers(*primitives: Primitive) -> Callable:
    """Decorator: the rule that writes these primitives."""
    def register(rule):
        for primitive in primitives:
            rules[primitive] = rule
        return rule
    return register


# Behind a call: XLA's CPU compiler compiles its function as one; and to one kernel. (It inlines all others.)
KEPT = ' {mhlo.frontend_attributes = {inlineable = "false"}}'
ONE_KERNEL = ' {mhlo.frontend_attributes = {inlineable = "false", xla_cpu_small_call = "true"}}'


class Emitter:
    """Writes the body of one function, or of one region inside it."""
    __slots__ = ("module", "lines", "written", "outer", "counter", "indent", "loc", "axes")

    def __init__(self, module, axes: Replicas, outer: "Emitter | None" = None):
        """module: the Module that collects functions. axes: the named axes around, and the replicas there are.
        outer: the emitter around a region, whose values may be used inside."""
        self.module, self.axes, self.outer = module, axes, outer
        self.lines: list[str] = []
        self.written: dict[str, str] = {}            # text of a pure operation -> the name of its result
        self.counter = [0] if outer is None else outer.counter
        self.indent = "    " if outer is None else outer.indent + "    "
        self.loc = "" if outer is None else outer.loc

    # --- writing ---------------------------------------------------------------------------------------------------

    def fresh(self) -> str:
        """A new value name."""
        n = self.counter[0]
        self.counter[0] = n + 1
        return f"%{n}"

    def emit(self, text: str) -> str:
        """Write a pure operation with one result; returns the result's name (an earlier one for the same text)."""
        found = self.written.get(text)
        if found is None and self.outer is not None:
            found = self.outer.found(text)
        if found is not None:
            return found
        n = self.counter[0]
        self.counter[0] = n + 1
        name = self.written[text] = f"%{n}"
        self.lines.append(f"{self.indent}{name} = {text}{self.loc}")
        return name

    def found(self, text: str) -> str | None:
        """The name of the result of a pure operation that is written already, here or around; None where it isn't."""
        scope = self
        while scope is not None:
            name = scope.written.get(text)
            if name is not None:
                return name
            scope = scope.outer
        return None

    def emit_many(self, text: str, results: int, pure: bool = True) -> list[str]:
        """Write an operation with any number of results; returns their names. pure=False: never shared, kept in order."""
        if results == 1:
            if pure:
                return [self.emit(text)]
            name = self.fresh()
            self.lines.append(f"{self.indent}{name} = {text}{self.loc}")
            return [name]
        name = self.written.get(text) if pure else None
        if name is None:
            name = self.fresh()
            self.lines.append(f"{self.indent}{f'{name}:{results} = ' if results else ''}{text}{self.loc}")
            if pure:
                self.written[text] = name
        return [f"{name}#{i}" for i in range(results)]

    def region(self, types: Sequence[str], body: Callable[["Emitter"], Sequence[tuple[str, str]]] | Callable,
               terminator: str = "stablehlo.return") -> str:
        """The text of a region. `types`: of its block arguments; body(e, *argument names) -> [(name, type)] returned."""
        inner = Emitter(self.module, self.axes, self)
        arguments = [inner.fresh() for _ in types]
        results = body(inner, *arguments)
        header = f"{self.indent}  ^bb0({', '.join(f'{a}: {t}' for a, t in zip(arguments, types))}):\n" if types else ""
        names, kinds = ", ".join(n for n, _ in results), ", ".join(t for _, t in results)
        end = f"{inner.indent}{terminator} {names} : {kinds}" if results else f"{inner.indent}{terminator}"
        return "{\n" + header + "\n".join([*inner.lines, end]) + f"\n{self.indent}}}"

    # --- constants ---------------------------------------------------------------------------------------------------

    def constant(self, value, aval: ShapedArray) -> str:
        """An array all of whose entries are the scalar `value`."""
        if value != value:
            self.module.holds_nan = True
        return self.emit(self.constant_text(value, aval))

    @staticmethod
    def constant_text(value, aval: ShapedArray) -> str:
        """The operation that is such an array."""
        return f"stablehlo.constant dense<{scalar_text(value, aval.dtype)}> : {aval.mlir}"

    def index_constant(self, values: Sequence[int], dtype=dtypes.int64) -> str:
        """A small one-dimensional array of integers."""
        return self.emit(f"stablehlo.constant dense<{list(map(int, values))}> : {array_type((len(values),), dtype).mlir}")

    def spread(self, operand: str, atom, aval: ShapedArray) -> str:
        """The operand (whose atom in the equation is `atom`) at the shape of `aval`, if it is a scalar standing for an array."""
        have = atom.aval
        if have.shape == aval.shape:
            return operand
        if type(atom) is Literal:
            return self.constant(atom.val, have.update(shape=aval.shape))
        return self.broadcast(operand, have, aval.shape, ())

    def broadcast(self, operand: str, have: ShapedArray, shape: tuple, dims: tuple) -> str:
        """stablehlo.broadcast_in_dim of an operand of type `have` to `shape`."""
        return self.emit(f"stablehlo.broadcast_in_dim {operand}, dims = {list(dims)} : ({have.mlir}) -> {have.update(shape=tuple(shape)).mlir}")

    def convert(self, operand: str, have: ShapedArray, dtype) -> str:
        """The operand of type `have`, converted to dtype."""
        if have.dtype == dtype:
            return operand
        return self.emit(f"stablehlo.convert {operand} : ({have.mlir}) -> {have.update(dtype=dtype).mlir}")

    def reshape(self, operand: str, have: ShapedArray, shape: tuple) -> str:
        if have.shape == tuple(shape):
            return operand
        return self.emit(f"stablehlo.reshape {operand} : ({have.mlir}) -> {have.update(shape=tuple(shape)).mlir}")

    def row_major(self, operand: str, have: ShapedArray) -> str:
        """A demand that a value lie in memory row by row. XLA sees nothing behind it until it has chosen layouts; then nothing is left of it."""
        order = f"[dense<{list(range(have.ndim))[::-1]}> : tensor<{have.ndim}xindex>]"
        return self.emit(f"stablehlo.custom_call @LayoutConstraint({operand}) {{operand_layouts = {order}, result_layouts = {order}}} : "
                         f"({have.mlir}) -> {have.mlir}")

    # --- programs inside programs -----------------------------------------------------------------------------------

    def inline(self, jaxpr: Jaxpr, operands: Sequence[str]) -> list[str]:
        """Write the equations of a program (without constants) here."""
        env = dict(zip(jaxpr.invars, operands, strict=True))
        saved = self.loc
        location = self.module.location
        for eqn in jaxpr.eqns:
            rule = rules.get(eqn.primitive)
            if rule is None:
                raise NotImplementedError(f"the primitive {eqn.primitive.name} has no lowering rule (see lowering/rules)")
            if eqn.source is not None:
                self.loc = location(eqn)
            out = rule(self, eqn, *[self.constant(v.val, v.aval) if type(v) is Literal else env[v] for v in eqn.invars])
            if eqn.primitive.multiple_results:
                env.update(zip(eqn.outvars, out, strict=True))
            else:
                env[eqn.outvars[0]] = out
        self.loc = saved
        return [self.constant(v.val, v.aval) if type(v) is Literal else env[v] for v in jaxpr.outvars]

    def via(self, fun: Callable, types: Sequence[AbstractValue], operands: Sequence[str]) -> list[str]:
        """Write what `fun` (flat values -> list of values, in terms of other primitives) does to operands of these types."""
        jaxpr, consts = stage(fun, types)
        if consts:
            raise TypeError("a lowering rule's function must not capture arrays")
        return self.inline(dce(jaxpr), operands)

    def call(self, jaxpr: Jaxpr, operands: Sequence[str], name: str, axes: Replicas | None = None, note: str | None = None, small: bool = False) -> list[str]:
        """Call a program as a function of its own, which is written once however often it is called. axes: those around it, if not the same.

        note: says in the text why the function is there; XLA then compiles it as one, and inlines all others. small: to one kernel, for one thread.
        """
        function = self.module.function(jaxpr, name, axes or self.axes, note)
        ins, outs = ", ".join([t.mlir for t in jaxpr.in_types]), ", ".join([t.mlir for t in jaxpr.out_types])
        kept = "" if note is None else ONE_KERNEL if small else KEPT
        return self.emit_many(f"func.call @{function}({', '.join(operands)}){kept} : ({ins}) -> ({outs})", len(jaxpr.outvars),
                              pure=not jaxpr.effects)


def lower_via(primitive: Primitive, fun: Callable) -> None:
    """Lower a primitive as what `fun(*values, **params)` does in terms of other primitives."""
    many = primitive.multiple_results

    def rule(e, eqn, *operands):
        out = e.via(lambda *values: (fun(*values, **eqn.params) if many else [fun(*values, **eqn.params)]), eqn.in_types, operands)
        return out if many else out[0]
    rules[primitive] = rule


# --- text of scalars -----------------------------------------------------------------------------------------------------

def scalar_text(value, dtype) -> str:
    """A scalar as StableHLO writes it, exactly."""
    if dtype == dtypes.float0:
        return "false"
    value = np.asarray(value).astype(dtype)[()] if not isinstance(value, np.generic) or value.dtype != dtype else value
    if dtype == dtypes.bool_:
        return "true" if value else "false"
    if dtypes.is_complex(dtype):
        part = np.float32 if dtype == dtypes.complex64 else np.float64
        return f"({_float_text(part(value.real))}, {_float_text(part(value.imag))})"
    if dtypes.is_floating(dtype):
        return _float_text(value)
    return str(int(value))


def _float_text(value) -> str:
    if not np.isfinite(value):
        bits = np.asarray(value).view(f"u{value.dtype.itemsize}")[()]
        return f"0x{int(bits):0{2 * value.dtype.itemsize}X}"
    exact = float(value)
    text = f"{exact:.6e}" if exact != int(exact) or abs(exact) >= 1e16 else f"{exact:.1f}"
    return text if float(text) == exact else _with_point(repr(exact))


def _with_point(text: str) -> str:
    mantissa, _, exponent = text.partition("e")
    return (mantissa if "." in mantissa else mantissa + ".0") + (f"e{exponent}" if exponent else "")
