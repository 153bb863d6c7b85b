"""A module: the StableHLO text of a whole program, its functions, and the places in the user's code they came from."""
from __future__ import annotations

import re
from typing import Sequence

from lowering.emit import Emitter
from lowering.replicas import Replicas
from lowering.shards import mesh_text
from mini_jax.core import source
from mini_jax.core.program import Jaxpr, dce


class Module:
    """Collects the functions of one program as they are written."""

    def __init__(self, platform: str = "cpu", devices: Sequence | None = None):
        """devices: those of the partitions, in order; None where the program is not partitioned."""
        self.platform, self.devices = platform, devices
        self.meshes: dict = {}                        # mesh -> its name in the text
        self.channels: dict[str, int] = {}            # text of a collective among partitions -> number of its channel
        self.functions: dict[tuple, str] = {}         # (program, replica geometry) -> name of its function
        self.names: set[str] = {"main"}
        self.texts: list[str] = []
        self.holds_nan = False                        # has a constant NaN been written?
        self.imported: dict[str, str] = {}            # text of a module that is called -> name of its main function here
        self.callbacks: list = []                     # Python functions the program calls, by index
        self._places: dict[tuple, str] = {}           # what was captured -> " loc(#loc3)"
        self._place_lines: list[str] = []

    def function(self, jaxpr: Jaxpr, name: str, axes: Replicas, note: str | None = None) -> str:
        """The name of the function that computes `jaxpr`; written at the first request, under a comment that says `note`."""
        key = (jaxpr, axes)
        found = self.functions.get(key)
        if found is None:
            found = self.functions[key] = self._unique(name)
            arguments = [f"%arg{i}" for i in range(len(jaxpr.invars))]
            comment = "" if note is None else f"  // {note}\n"
            self.texts.append(comment + self._body("private", found, dce(jaxpr), arguments, [""] * len(arguments), [""] * len(jaxpr.outvars), axes))
        return found

    def mesh(self, mesh) -> str:
        """The name of a mesh in the text."""
        return self.meshes.setdefault(mesh, f"mesh_{len(self.meshes)}" if self.meshes else "mesh")

    def _unique(self, name: str) -> str:
        base = name = re.sub(r"[^A-Za-z0-9_.]", "_", name) or "f"
        n = 0
        while name in self.names:
            n += 1
            name = f"{base}_{n}"
        self.names.add(name)
        return name

    def _body(self, visibility, name, jaxpr, arguments, argument_attributes, result_attributes, axes) -> str:
        e = Emitter(self, axes)
        results = e.inline(jaxpr, arguments)
        inputs = ", ".join([f"{a}: {t.mlir}{attr}" for a, t, attr in zip(arguments, jaxpr.in_types, argument_attributes)])
        outputs = ", ".join([f"{t.mlir}{attr}" for t, attr in zip(jaxpr.out_types, result_attributes)])
        end = f"    return {', '.join(results)} : {', '.join([t.mlir for t in jaxpr.out_types])}" if results else "    return"
        return f"  func.func {visibility} @{name}({inputs}) -> ({outputs}) {{\n" + "\n".join([*e.lines, end]) + "\n  }"

    def location(self, eqn) -> str:
        """` loc(#loc3)`: the name stack and place of an equation, written out once at the end of the module."""
        code, offset, scope = captured = eqn.source
        name = eqn.primitive.name
        key = (id(code), offset, scope, name)
        found = self._places.get(key)
        if found is None:
            place, number = source.decode(captured), len(self._place_lines)
            found = self._places[key] = f" loc(#loc{number})"
            stack = f"{self.prefix}{scope}/{name}" if scope else f"{self.prefix}{name}"
            self._place_lines.append(f'#loc{number} = loc({_quoted(stack)}({_quoted(place.file)}:{place.line}:{place.column}))')
        return found

    prefix = ""

    def write(self, name: str, jaxpr: Jaxpr, *, argument_attributes: Sequence[str] | None = None,
              result_attributes: Sequence[str] | None = None, axes: Replicas = Replicas(), num_partitions: int = 1,
              comments: Sequence[str] = ()) -> str:
        """The text of the module whose main function is `jaxpr`."""
        self.prefix = f"{name}/"
        arguments = [f"%arg{i}" for i in range(len(jaxpr.invars))]
        main = self._body("public", "main", jaxpr, arguments, argument_attributes or [""] * len(arguments),
                          result_attributes or [""] * len(jaxpr.outvars), axes)
        module = re.sub(r"[^A-Za-z0-9_]", "_", name)
        head = (f"module @{module} attributes {{mhlo.num_partitions = {num_partitions} : i32, mhlo.num_replicas = {axes.count} : i32}} {{\n")
        meshes = [mesh_text(name, mesh, self.devices) for mesh, name in self.meshes.items()]
        return head + "\n".join([*[f"  // {comment}" for comment in comments], *meshes, main, *self.texts]) + "\n}\n" + "\n".join(self._place_lines) + ("\n" if self._place_lines else "")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


_LOCATION = re.compile(r" loc\(#loc\d+\)|^#loc.*\n", re.MULTILINE)


def without_locations(text: str) -> str:
    """The same module without the places in the user's code."""
    return _LOCATION.sub("", text)
