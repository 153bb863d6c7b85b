"""The digest of a recorded program: equal digests, equal texts, in this process and in any other. So a text can be known without being written.

Proof. `lower` is a function of (program, settings): it is Python of this package's own, and reads
  - the program: types of inputs and results, equations (primitive, operands, parameters, literals), programs in parameters. All of that is
    in the digest, by what it is and not by what it is equal to: 1, True and 1.0, or 0.0 and -0.0, differ. What a program is recorded from,
    the user's Python, is not read: whatever in it makes a difference has made one to the program.
  - the settings: `lower`'s own (name, donated, …), the options that change programs (`config.trace_key`): in the digest.
  - its rules, and what they call: this package, whose files are in the digest by name, size and time of change, with the versions of
    Python, NumPy and ml_dtypes, which spell numbers.
  - places in the user's code. They are not in the digest: the text without places is what is told apart. (The outliner takes names for
    functions from them; of programs that differ in nothing else either's names serve.)
Where the proof would have a gap, there is no digest, and the program is lowered: parameters of a kind that is not listed here (functions,
objects of others), rules that are not this package's, effects, named axes around, files changed since the package was loaded. Parameters that
are functions and of which lowering takes no notice (derivatives that users define) stand in it as such: which of them are one and the same.
"""
from __future__ import annotations

import enum
import functools
import os
import struct
import sys

try:
    from _blake2 import blake2b                       # hashlib's, without OpenSSL, which hashlib loads with it
except ImportError:
    from hashlib import blake2b

import numpy as np

from lowering.emit import rules
from mini_jax.core import config, dtypes, source
from mini_jax.core.program import Jaxpr, Literal
from mini_jax.core.state import state
from mini_jax.core.types import ShapedArray
from mini_jax.runtime import xla

UNREAD = {"custom_jvp_call": ("jvp",), "custom_vjp_call": ("fwd", "bwd"), "checkpoint": ("policy",)}
"""Primitive -> its parameters that no lowering reads: what is done when it is differentiated."""


class _NoDigest(Exception):
    """Something whose meaning can't be told from here."""


def digest(jaxpr: Jaxpr, settings: tuple) -> bytes | None:
    """The digest of a program lowered with these settings; None where equal texts could not be vouched for."""
    files = package()
    if files is None or state.axes or state.reduced:
        return None
    writer = _Writer()
    try:
        writer.value((files, settings, config.trace_key()))
        writer.program(jaxpr)
    except _NoDigest:
        return None
    return blake2b("".join(writer.out).encode("utf-8", "surrogatepass"), digest_size=32).digest()


class _Writer:
    """Writes programs and values one after the other, each so that it can't be taken for another."""
    __slots__ = ("out", "types", "programs", "functions")

    def __init__(self):
        self.out: list[str] = []
        self.types: dict = {}                        # what has been written already, and is then referred to by number
        self.programs: dict = {}
        self.functions: dict = {}

    def program(self, jaxpr: Jaxpr) -> None:
        """A program; a second time only its number."""
        out, number = self.out, self.programs.get(jaxpr)
        if number is not None:
            out.append(f"P{number};")
            return
        if jaxpr.effects:
            raise _NoDigest
        inputs = (*jaxpr.constvars, *jaxpr.invars)
        names = {v: i for i, v in enumerate(inputs)}
        out.append(f"{{{len(jaxpr.constvars)},{len(jaxpr.invars)}")
        for v in inputs:
            self.type(v.aval)
        for eqn in jaxpr.eqns:
            primitive = eqn.primitive
            if eqn.effects or not _ours(primitive):
                raise _NoDigest
            out.append(f"|{primitive.name}")
            self.atoms(eqn.invars, names)
            if eqn.params:
                unread = UNREAD.get(primitive.name, ())
                for name, value in eqn.params.items():
                    out.append(f",{name}=")
                    if name in unread and value is not None:
                        out.append(f"?{self.functions.setdefault(id(value), len(self.functions))};")
                    else:
                        self.value(value)
            out.append(">")
            for v in eqn.outvars:
                names[v] = len(names)
                self.type(v.aval)
        out.append("}")
        self.atoms(jaxpr.outvars, names)
        self.programs[jaxpr] = len(self.programs)

    def atoms(self, atoms, names: dict) -> None:
        for v in atoms:
            if type(v) is Literal:
                self.out.append("=")
                self.value(v.val)
                self.type(v.aval)
            else:
                self.out.append(f" {names[v]}")

    def type(self, aval) -> None:
        number = self.types.get(aval)
        if number is None:
            if type(aval) is not ShapedArray or not all([type(axis) is str for axis in aval.varying]):
                raise _NoDigest
            self.types[aval] = len(self.types)
            self.out.append(f":{(aval.text, aval.dtype.name, aval.mlir, aval.weak_type)!r};")
        else:
            self.out.append(f":{number};")

    def value(self, value) -> None:
        kind = type(value)
        if kind is str:
            self.out.append(f"s{len(value)};{value}")
        elif kind is int or kind is bool or value is None:
            self.out.append(f"{value};")
        elif kind is tuple:
            self.out.append(f"({len(value)};")
            for item in value:
                self.value(item)
        elif kind is Jaxpr:
            self.program(value)
        elif kind is float:
            self.out.append(f"f{struct.pack('<d', value).hex()}")
        elif kind is complex:
            self.out.append(f"c{struct.pack('<dd', value.real, value.imag).hex()}")
        elif isinstance(value, np.generic) and value.dtype.kind != "O":
            self.out.append(f"g{_name(value.dtype)};{value.tobytes().hex()};")
        elif isinstance(value, np.dtype) and value.names is None:
            self.out.append(f"d{_name(value)}{value.byteorder};")
        elif kind is ShapedArray:
            self.type(value)
        elif kind is frozenset and all([type(item) is str for item in value]):
            self.value(tuple(sorted(value)))
            self.out.append("F")
        elif kind is bytes:
            self.out.append(f"b{value.hex()};")
        elif kind is xla.Device:
            self.out.append(f"D{value.platform}{value.id};")
        elif isinstance(value, enum.Enum) and _class_is_ours(kind):
            self.out.append(f"e{kind.__module__}.{kind.__qualname__}.{value.name};")
        elif isinstance(value, tuple) and _class_is_ours(kind) and hasattr(kind, "_fields"):
            self.out.append(f"n{kind.__module__}.{kind.__qualname__};")
            self.value(tuple(value))
        elif dtypes.is_extended(value) and _class_is_ours(kind):         # of which lowering reads what the numbers are that an element consists of
            self.out.append(f"x{value.name!r};")
            self.value((value.physical_shape, value.physical_dtype))
        elif kind is type and issubclass(value, np.generic):
            self.out.append(f"t{value.__name__};")
        else:
            raise _NoDigest


_name = functools.cache(lambda dtype: dtype.name)              # which NumPy makes anew each time, in 5 us: half of what a digest took


# --- what is this package's -------------------------------------------------------------------------------------------------------

_known_rules: dict = {}                              # primitive -> (its rule, whether that is ours)


def _ours(primitive) -> bool:
    """Is the rule that writes a primitive this package's?"""
    rule = rules.get(primitive)
    found = _known_rules.get(primitive)
    if found is None or found[0] is not rule:
        found = _known_rules[primitive] = rule, rule is not None and _is_ours(rule)
    return found[1]


def _is_ours(function) -> bool:
    """Is a function, and are the functions that it closes over, defined in a file of this package?"""
    seen, waiting = set(), [function]
    while waiting:
        fun = waiting.pop()
        code = getattr(fun, "__code__", None)
        if code is None or not source.is_internal(code.co_filename):
            return False
        seen.add(fun)
        waiting += [cell.cell_contents for cell in fun.__closure__ or () if callable(cell.cell_contents) and cell.cell_contents not in seen]
    return True


@functools.cache
def _class_is_ours(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is not None and source.is_internal(file)


# --- the package as it was loaded ---------------------------------------------------------------------------------------------------

_FRESH = 2.0                                         # seconds: what changed so shortly before the package was loaded may have come too late


@functools.cache
def package() -> str | None:
    """What identifies the package's files, and those libraries that its texts depend on, when it is first asked for; None where a file was
    changed while the package was being loaded, or later: what runs here need not be what the files say."""
    return _files()


def package_unchanged() -> bool:
    """Is the package on disk still what it was? If not, what is loaded from now on is not what `package` says, and nothing must be stored."""
    return _files() == package()


def _files() -> str | None:
    import ml_dtypes
    facts = [sys.version, np.__version__, ml_dtypes.__version__]
    for root in source.roots:
        waiting = [root]
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.name.endswith(".py"):
                        found = entry.stat()
                        if max(found.st_ctime, found.st_mtime) > xla.LOADED - _FRESH:
                            return None
                        facts.append(f"{entry.path[len(root):]} {found.st_size} {found.st_mtime_ns}")
                    elif entry.is_dir() and not entry.name.startswith(("__", ".")):
                        waiting.append(entry.path)
    return "\n".join([*facts[:3], *sorted(facts[3:])])
