"""Where in the user's code an equation came from: captured raw while tracing, decoded only when shown."""
from __future__ import annotations

import os
import sys
from typing import NamedTuple

roots = tuple(os.path.dirname(os.path.abspath(__file__)).rsplit(os.sep, 2)[0] + os.sep + package + os.sep
               for package in ("mini_jax", "lowering"))
_examples = roots[0] + "examples" + os.sep          # these are written as a user writes
_STDLIB = (os.sep + "functools.py", os.sep + "contextlib.py")
_internal: dict[str, bool] = {}                      # file name -> is it a frame of ours


def is_internal(filename: str) -> bool:
    """Does this file belong to mini_jax itself (and so is of no interest to its user)?"""
    found = _internal.get(filename)
    if found is None:
        path = os.path.abspath(filename)
        ours = path.startswith(roots) and not path.startswith(_examples)
        found = _internal[filename] = ours or filename.endswith(_STDLIB) or filename.startswith("<frozen")
    return found


def capture(depth: int, scope: str = ""):
    """The innermost frame of the user's on the stack, as (code, instruction offset, name stack); None when there is none."""
    frame = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        found = _internal.get(code.co_filename)
        if found is None:
            found = is_internal(code.co_filename)
        if not found:
            return code, frame.f_lasti, scope
        frame = frame.f_back
    return None


class Location(NamedTuple):
    """A decoded place in the user's code."""
    file: str
    line: int
    column: int
    function: str

    def __str__(self):
        return f"{self.file}:{self.line} ({self.function})"


_decoded: dict[tuple[int, int], tuple] = {}           # (id of code, offset) -> (code, Location); holds the code alive


def decode(source) -> Location | None:
    """The file, line, column and function of what `capture` returned."""
    if source is None:
        return None
    code, offset = source[0], source[1]
    key = (id(code), offset)
    found = _decoded.get(key)
    if found is None:
        if len(_decoded) > 100_000:
            _decoded.clear()
        line = column = None
        for position, (start, _, col, _) in enumerate(code.co_positions()):
            if position == offset // 2:
                line, column = start, col
                break
        found = _decoded[key] = (code, Location(code.co_filename, line or code.co_firstlineno, (column or 0) + 1,
                                                code.co_qualname))
    return found[1]


def describe(source) -> str:
    location = decode(source)
    return "<unknown>" if location is None else str(location)
