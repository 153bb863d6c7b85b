"""Reverse mode: linearize a function once (primal outputs, residuals, a linear program), then transpose the linear program.

After Radul et al., "You Only Linearize Once" (2022).
"""
from __future__ import annotations

import functools
from typing import Any, Callable, NamedTuple, Sequence

from mini_jax.core.linear import Accumulator, Carried, Refused, Zero
from mini_jax.core.program import Jaxpr, JaxprEqn, Literal, ProgramInfo, Var, dce, memoized
from mini_jax.core.refs import is_ref
from mini_jax.core.staging import StagingTrace, eval_jaxpr, for_types
from mini_jax.core.state import current_trace, reduced_axes, staging, state
from mini_jax.core.trace import typeof
from mini_jax.core.types import RefType
from mini_jax.core.dtypes import float0
from mini_jax.lax import totals
from mini_jax.transforms.jvp import DifferentiatedRef, JVPTrace, JVPTracer, LinearTrace


class Linear(NamedTuple):
    """A linear program at hand: its equations, the values of its constants, and the atoms of its results (None: zero).

    refs: for each input that is a ref the atom of the tangent that it holds at the end (None: zero).
    """
    eqns: list[JaxprEqn]
    residuals: dict[Var, Any]
    invars: list                    # None for an input without tangents (integers)
    outs: list
    in_types: list
    out_types: list
    refs: dict[int, Any] = {}


def linearize_flat(fun: Callable, primals: Sequence, info: ProgramInfo | None = None,
                   nonzero: Sequence[bool] | None = None) -> tuple[list, Linear]:
    """fun(*primals) and the derivative there, as a linear program. `nonzero` limits the inputs that vary."""
    linear = LinearTrace(info, state.trace)
    trace = JVPTrace(linear, info)
    types = [typeof(p) for p in primals]
    try:
        inputs, invars = [], []
        for position, (primal, type_) in enumerate(zip(primals, types)):
            tangent_type = type_.tangent()
            if tangent_type.dtype == float0 or nonzero is not None and not nonzero[position]:
                inputs.append(primal)
                invars.append(None)
            else:
                tangent = linear.new_input(tangent_type.inner if is_ref(primal) else tangent_type)
                inputs.append(DifferentiatedRef(trace, primal, tangent) if is_ref(primal) else JVPTracer(trace, primal, tangent))
                invars.append(tangent.variable)
        with current_trace(trace):
            outs = fun(*inputs)
        pairs = [trace.split(out) for out in outs]
        out_atoms = [None if type(t) is Zero else linear.atom(t) for _, t in pairs]
        refs = {i: None if type(x.dot) is Zero else linear.atom(x.dot) for i, x in enumerate(inputs) if type(x) is DifferentiatedRef}
    finally:
        trace.end()
        linear.end()
    outs = [p for p, _ in pairs]
    return outs, Linear(linear.eqns, dict(zip(linear.constvars, linear.consts)), invars, out_atoms, types, [typeof(p) for p in outs], refs)


def transpose_flat(linear: Linear, cotangents: Sequence, accumulators: Sequence[Accumulator | None] | None = None) -> list:
    """The cotangents of the inputs (values or Zeros) for cotangents of the outputs (values or Zeros)."""
    given: dict[Var, Accumulator] = {}
    if accumulators is not None:
        given = {var: acc for var, acc in zip(linear.invars, accumulators) if var is not None and acc is not None}
    inputs = [None if var is None else given.setdefault(var, Accumulator(var.aval)) for var in linear.invars]
    backward_pass(linear.eqns, linear.residuals, given, linear.outs, cotangents)
    types = [_gradient_type(t) for t in linear.in_types]
    return totals.complete([Zero(t) if acc is None else acc.result() for acc, t in zip(inputs, types)], types)


def _gradient_type(t):
    """The type of the cotangent of an input; that of a ref is the cotangent of the value that it holds at first."""
    return (t.inner if type(t) is RefType else t).tangent()


def backward_pass(eqns: Sequence[JaxprEqn], values: dict[Var, Any], accumulators: dict[Var, Accumulator],
                  outs: Sequence, cotangents: Sequence) -> None:
    """Walk a linear program backwards; what reaches each input is added to its accumulator.

    values: of the variables that are not linear. Other variables' accumulators come and go with the walk.
    """
    for atom, ct in zip(outs, cotangents):
        if type(atom) is Var and type(ct) is not Zero and atom not in values:
            found = accumulators.get(atom)
            if found is None:
                found = accumulators[atom] = Accumulator(atom.aval)
            found.add(ct)
    saved, reduces = state.source, state.reduced is not None
    try:
        for eqn in reversed(eqns):
            primitive = eqn.primitive
            if primitive.multiple_results:
                gathered = [accumulators.pop(var, None) for var in eqn.outvars]
                ct = [Zero(var.aval) if acc is None else acc.result() for var, acc in zip(eqn.outvars, gathered)]
                if all([type(c) is Zero for c in ct]) and not eqn.effects:
                    continue
            else:
                acc = accumulators.pop(eqn.outvars[0], None)
                if acc is None or acc.value is None:
                    continue
                ct = acc.value
            if reduces:
                ct = _for_rule(primitive, ct, [var.aval for var in eqn.outvars])
            if primitive.transpose is None:
                raise NotImplementedError(f"{primitive.name} has no transpose: it is not linear in the argument that is being differentiated")
            args = []
            for atom in eqn.invars:
                if type(atom) is Literal:
                    args.append(atom.val)
                elif atom in values:
                    args.append(values[atom])
                else:
                    acc = accumulators.get(atom)
                    if acc is None:
                        acc = accumulators[atom] = Accumulator(atom.aval)
                    args.append(acc)
            state.source = eqn.source
            try:
                primitive.transpose(ct, *args, **eqn.params)
            except TypeError as error:                   # a rule that takes values where it got accumulators: of a product, say, both factors
                if Accumulator.__name__ not in str(error):
                    raise
                raise NotImplementedError(f"{primitive.name} has no transpose here: it is not linear in all of the arguments that are being differentiated") from None
    finally:
        state.source = saved


def _for_rule(primitive, ct, types: Sequence):
    """The cotangents of an equation's results as its transpose rule takes them, in a pass that reduces over named axes."""
    if not primitive.multiple_results:
        return totals.of_copies(ct, types[0])
    if primitive.facts.get("family") == "higher_order" and not primitive.facts.get("parts"):
        ct = totals.complete(ct, types)                  # of loops and branches, and of rules that users wrote, which may not be linear
    return [totals.of_copies(c, t) for c, t in zip(ct, types)]


class Linearized(NamedTuple):
    """The linearization of a program, itself two programs.

    primal: (consts, inputs) -> (outputs, new residuals); linear: (residuals, tangents of nonzero inputs) -> tangents of the
    outputs marked in out_nonzero. sources: for each residual of `linear` where it is found: ("in", i) an input of the
    program, ("out", i) an output of `primal`.
    """
    primal: Jaxpr
    consts: list
    linear: Jaxpr
    sources: list[tuple[str, int]]
    out_nonzero: tuple[bool, ...]

    def residuals(self, inputs: Sequence, outputs: Sequence) -> list:
        return [inputs[i] if where == "in" else outputs[i] for where, i in self.sources]


@memoized
def linearize_jaxpr(jaxpr: Jaxpr, nonzero: tuple[bool, ...]) -> Linearized:
    """Linearize a program in the inputs marked nonzero. Residuals are what the linear program reads, no more."""
    known = StagingTrace(jaxpr.info, state.trace)
    try:
        with current_trace(known), staging(True):
            inputs = [known.new_input(t) for t in jaxpr.in_types]
            outs, linear = linearize_flat(lambda *xs: eval_jaxpr(jaxpr, (), *xs), inputs, jaxpr.info, nonzero)
            out_nonzero = tuple([atom is not None for atom in linear.outs])
            program = dce(Jaxpr(list(linear.residuals), [v for v in linear.invars if v is not None], linear.eqns,
                                [atom for atom in linear.outs if atom is not None]))
            read = {v for eqn in program.eqns for v in eqn.invars} | set(program.outvars)
            residual_vars = [v for v in program.constvars if v in read]
            atoms = [known.atom(linear.residuals[v]) for v in residual_vars]
            out_atoms = [known.atom(out) for out in outs]
            places: dict[Any, tuple[str, int]] = {var: ("in", i) for i, var in enumerate(known.invars)}
            for i, atom in enumerate(out_atoms):
                if type(atom) is Var:
                    places.setdefault(atom, ("out", i))
            sources = []
            for atom in atoms:
                if type(atom) is Literal or atom not in places:
                    places[atom] = ("out", len(out_atoms))
                    out_atoms.append(atom)
                sources.append(places[atom])
    finally:
        known.end()
    primal = Jaxpr((), [*known.constvars, *known.invars], known.eqns, out_atoms, known.effects, jaxpr.info)
    tangent_vars = [v if v is not None else Var(t.tangent()) for v, t, live in zip(linear.invars, jaxpr.in_types, nonzero) if live]
    linear_jaxpr = Jaxpr((), [*residual_vars, *tangent_vars], program.eqns, program.outvars, program.effects, jaxpr.info)
    return Linearized(primal, known.consts, linear_jaxpr, sources, out_nonzero)


class Transposed(NamedTuple):
    """jaxpr: (consts, non-linear inputs, cotangents that are not Zero) -> cotangents of the linear inputs marked in nonzero.
    parts: for each linear input the axes along which its cotangent is in parts (lax/totals.py)."""
    jaxpr: Jaxpr
    consts: list
    nonzero: tuple[bool, ...]
    parts: tuple[frozenset, ...]


CARRIED = "carried"


def memoized_backward(rule: Callable) -> Callable:
    """`memoized`, for what transposes programs: what it computes depends on the axes that the backward pass reduces over, too."""
    cached = memoized(functools.wraps(rule)(lambda jaxpr, reduced, *key: rule(jaxpr, *key)))
    return functools.wraps(rule)(lambda jaxpr, *key: cached(jaxpr, state.reduced, *key))


@memoized_backward
def transpose_jaxpr(jaxpr: Jaxpr, linear_inputs: tuple, ct_nonzero: tuple) -> Transposed:
    """Transpose a program. linear_inputs: for each input False (a plain value), True, None (linear, but nobody wants its cotangent), or
    CARRIED (linear; its cotangent is added in place to a sum, which is a further input of the result, after the others).
    ct_nonzero: for each output whether there is a cotangent; where it is in parts along some axes (lax/totals.py), these axes.

    Parts of the program that depend on plain values only are run forward first.
    """
    known = StagingTrace(jaxpr.info, state.trace)
    try:
        with current_trace(known), staging(True):
            values = [known.new_input(t) if is_linear is False else None for t, is_linear in zip(jaxpr.in_types, linear_inputs)]
            cts = [known.new_input(t if live is True else t.update(varying=t.varying | live)) if live else Zero(t)
                   for t, live in zip(jaxpr.out_types, ct_nonzero)]
            trace = LinearTrace(jaxpr.info, known)
            inputs = [trace.new_input(t) if v is None else v for v, t in zip(values, jaxpr.in_types)]
            with current_trace(trace):
                outs = eval_jaxpr(jaxpr, (), *inputs)
            accumulators = {var: Refused(var.aval) if is_linear is None else Accumulator(var.aval) if is_linear is True
                            else Carried(var.aval, known.new_input(var.aval))
                            for var, is_linear in zip(trace.invars, [k for k in linear_inputs if k is not False])}
            results = dict(accumulators)
            backward_pass(trace.eqns, dict(zip(trace.constvars, trace.consts)), accumulators, [trace.atom(out) for out in outs], cts)
            trace.end()
            results = [results[var].result() for var in trace.invars]
            nonzero = tuple([type(r) is not Zero for r in results])
            parts = tuple([_extra_axes(r, var.aval) if live else frozenset() for r, var, live in zip(results, trace.invars, nonzero)])
            program, consts = known.program([r for r in results if type(r) is not Zero])
    finally:
        known.end()
    return Transposed(program.hoisted(), consts, nonzero, parts)


def _extra_axes(ct, type_) -> frozenset:
    """The axes along which a cotangent is in parts."""
    return reduced_axes() & (typeof(ct).varying - type_.varying)


def marks(cts: Sequence, types: Sequence) -> tuple:
    """What `transpose_jaxpr` is to know of the cotangents of results of these types."""
    return tuple([False if type(ct) is Zero else _extra_axes(ct, t) or True for ct, t in zip(cts, types)])


def argument_types(args: Sequence) -> list:
    """The types of what a transpose rule gets: values and accumulators."""
    return [a.aval if isinstance(a, Accumulator) else typeof(a) for a in args]


def transpose_call(primitive, cts: Sequence, args: Sequence, jaxpr: Jaxpr, params: dict) -> None:
    """The transpose of a primitive that calls a program: the same primitive calling the transposed program."""
    if state.reduced is not None:
        jaxpr = for_types(jaxpr, argument_types(args))
    kinds = tuple([(True if a.wanted else None) if isinstance(a, Accumulator) else False for a in args])
    back = transpose_jaxpr(jaxpr, kinds, marks(cts, jaxpr.out_types))
    values = [a for a in args if not isinstance(a, Accumulator)]
    outs = iter(primitive.bind(*back.consts, *values, *[ct for ct in cts if type(ct) is not Zero], jaxpr=back.jaxpr, **params))
    for arg, live in zip([a for a in args if isinstance(a, Accumulator)], back.nonzero):
        if live:
            arg.add(next(outs))


def linearize_call(primitive, primals: Sequence, nonzero: Sequence[bool], jaxpr: Jaxpr, params: dict):
    """The linearize rule of a primitive that calls a program: it calls the primal and the linear program."""
    parts = linearize_jaxpr(jaxpr, tuple(nonzero))
    results = primitive.bind(*parts.consts, *primals, jaxpr=parts.primal, **params)
    residuals = parts.residuals(primals, results)

    def linear(*tangents):
        return primitive.bind(*residuals, *tangents, jaxpr=parts.linear, **params) if parts.linear.outvars else []
    return results[:len(jaxpr.outvars)], parts.out_nonzero, linear
