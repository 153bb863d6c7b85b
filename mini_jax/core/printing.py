"""How programs are printed: JAX's notation, `{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }`."""
from __future__ import annotations

import numpy as np

from mini_jax.core.program import Jaxpr, JaxprEqn, Literal, Var


def _letters(n: int) -> str:
    name = ""
    while True:
        name = chr(ord("a") + n % 26) + name
        n = n // 26 - 1
        if n < 0:
            return name


class Names:
    """Variables' names in the order in which they are first printed; `_` for what nobody reads."""

    def __init__(self):
        self.names: dict[Var, str] = {}

    def bind(self, var: Var) -> str:
        self.names[var] = name = _letters(len(self.names))
        return f"{name}:{var.aval}"

    def use(self, atom) -> str:
        if type(atom) is Literal:
            return f"{_scalar(atom.val)}:{atom.aval}"
        name = self.names.get(atom)
        if name is None:
            self.bind(atom)
            name = self.names[atom]
        return name


def _scalar(value) -> str:
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.item() if value.dtype.kind in "biufc" else value
    return str(value)


def format_jaxpr(jaxpr: Jaxpr, names: Names | None = None, indent: str = "") -> str:
    names = names or Names()
    consts = " ".join(names.bind(v) for v in jaxpr.constvars)
    inputs = " ".join(names.bind(v) for v in jaxpr.invars)
    head = f"{{ lambda {consts + ' ' if consts else ''}; {inputs}."
    used = {v for eqn in jaxpr.eqns for v in eqn.invars} | set(jaxpr.outvars)
    lines = [format_eqn(eqn, names, used, indent + "    ") for eqn in jaxpr.eqns]
    outs = ", ".join(map(names.use, jaxpr.outvars))
    outs = f"({outs},)" if len(jaxpr.outvars) == 1 else f"({outs})"
    if not lines:
        return f"{head} let  in {outs} }}"
    if len(lines) == 1 and "\n" not in lines[0] and len(head) + len(lines[0]) < 110:
        return f"{head} let {lines[0]} in {outs} }}"
    body = "".join(f"\n{indent}    {line}" for line in lines)
    return f"{head} let{body}\n{indent}  in {outs} }}"


def format_eqn(eqn: JaxprEqn, names: Names | None = None, used: set | None = None, indent: str = "") -> str:
    names = names or Names()
    special = eqn.primitive.format_eqn
    if special is not None:                           # refs print as `a[1] += 1.0`
        return special(eqn, names)
    operands = " ".join(map(names.use, eqn.invars))
    params = format_params(eqn.params, indent)
    results = " ".join("_:" + str(v.aval) if used is not None and v not in used else names.bind(v) for v in eqn.outvars)
    return f"{results + ' = ' if results else ''}{eqn.primitive.name}{params}{' ' + operands if operands else ''}"


def format_params(params: dict, indent: str = "") -> str:
    shown = [(name, value) for name, value in sorted(params.items()) if value is not None]
    if not shown:
        return ""
    texts = [f"{name}={_param(value, indent)}" for name, value in shown]
    if any("\n" in text or len(text) > 60 for text in texts):
        return "[" + "".join(f"\n{indent}  {text}" for text in texts) + f"\n{indent}]"
    return "[" + " ".join(texts) + "]"


def _param(value, indent: str) -> str:
    if type(value) is Jaxpr:
        return format_jaxpr(value, None, indent + "  ")
    if type(value) is tuple and value and all(type(v) is Jaxpr for v in value):
        inner = "".join(f"\n{indent}    {format_jaxpr(v, None, indent + '    ')}" for v in value)
        return f"({inner}\n{indent}  )"
    if isinstance(value, np.dtype):
        return value.name
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    return str(value)


JaxprEqn.__repr__ = format_eqn
Jaxpr.__repr__ = Jaxpr.__str__ = Jaxpr.pretty_print = format_jaxpr
