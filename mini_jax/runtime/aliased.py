"""Kept calls that XLA gave one value twice, and may have compiled to write over it while they read it (lowering/calls.py says how).

The outliner gives no function what it can see to be one value. XLA sees more, once it has simplified a program: what is equal by algebra, what a
constant mask chooses, what is computed in two places, by two functions or in two loops. What XLA made of the program tells. (Of calls that it inlines,
which it does after it has made loops where others are kept (runtime/large.py), it leaves loops that are given a value twice.)
"""
from __future__ import annotations

import re
from typing import NamedTuple

from lowering.emit import KEPT, ONE_KERNEL
from mini_jax.runtime import xla

_INSTRUCTION = re.compile(r"^ +(ROOT )?(\S+) = (?:\(.*?\)|\S+) (bitcast|call|fusion|get-tuple-element|parameter|tuple)\(([^()]*)\)(.*)", re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/")
_CALLED = re.compile(r"to_apply=([^\s,]+)")
_INDEX = re.compile(r"index=(\d+)")


def without_kept_calls(text: str, executable: xla.LoadedExecutable) -> str | None:
    """The program's text with its kept calls given to XLA to inline, if a loop of what it made of them reads a value twice; else None."""
    plain = text.replace(KEPT, "").replace(ONE_KERNEL, "")
    return plain if plain != text and reads_one_as_two(xla.hlo_text(executable, short=True)) else None


def reads_one_as_two(hlo: str) -> bool:
    """Is there a call of a function in which a loop reads two of its parameters that are one value, or was there one?"""
    functions = dict([block.strip("\n").removeprefix("ENTRY ").partition(" {\n")[::2] for block in _COMMENT.sub("", hlo).split("\n\n")])
    program = _Program(functions)
    return any([program.reads(name, {}) for name, body in functions.items() if " call(" in body or " fusion(" in body])


class _Instruction(NamedTuple):
    kind: str
    operands: list[str]
    rest: str


class _Program:
    """A program that XLA made: the instructions of its functions by their names, and the name of what each returns."""

    def __init__(self, functions: dict[str, str]):
        self.texts = functions
        self.known: dict[str, tuple[dict[str, _Instruction], str]] = {}

    def function(self, name: str) -> tuple[dict[str, _Instruction], str]:
        if name not in self.known:
            found, result = {}, ""
            for root, own, kind, operands, rest in _INSTRUCTION.findall(self.texts[name]):
                found[own] = _Instruction(kind, operands.split(", ") if operands else [], rest)
                result = own if root else result
            self.known[name] = found, result
        return self.known[name]

    def reads(self, name: str, same: dict[str, str]) -> bool:
        """Does a loop in a function read one value twice? same: parameters of it that others are -> those."""
        for found in self.function(name)[0].values():
            if found.kind not in ("call", "fusion"):
                continue
            values = [self.value(name, operand, same) for operand in found.operands]
            if found.kind == "fusion":
                if len(set(found.operands)) < len(found.operands) or same and len(set(values)) < len(values):
                    return True
            elif len(set(values)) < len(values):
                called = _CALLED.search(found.rest)[1]
                parameters = self.parameters(called)
                if self.reads(called, {parameters[i]: parameters[values.index(v)] for i, v in enumerate(values)}):
                    return True
        return False

    def parameters(self, name: str) -> list[str]:
        numbers = {int(found.operands[0]): own for own, found in self.function(name)[0].items() if found.kind == "parameter"}
        return [numbers[i] for i in range(len(numbers))]

    def value(self, name: str, operand: str, same: dict[str, str]) -> str:
        """The first name in a function of what lies in memory where an operand does."""
        found = self.function(name)[0].get(operand)
        if found is None or found.kind in ("fusion", "tuple"):
            return operand
        if found.kind == "parameter":
            return same.get(operand, operand)
        if found.kind == "bitcast":
            return self.value(name, found.operands[0], same)
        call, place = (found, 0) if found.kind == "call" else (self.function(name)[0].get(found.operands[0]), int(_INDEX.search(found.rest)[1]))
        if call is None or call.kind != "call":
            return operand
        called = _CALLED.search(call.rest)[1]                  # which may hand on a parameter
        inside, result = self.function(called)
        if result in inside and inside[result].kind == "tuple":
            result = inside[result].operands[place]
        handed, parameters = self.value(called, result, {}), self.parameters(called)
        return self.value(name, call.operands[parameters.index(handed)], same) if handed in parameters else operand
