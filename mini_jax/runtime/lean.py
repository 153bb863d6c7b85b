"""Executables without what only a reader needs, so that XLA loads them in less than half the time.

XLA writes an executable for the CPU down as protocol buffers: machine code, the plan of buffers, the calls to make one after the other, and
the optimised HLO, whose instructions take nearly all of the time that loading does (some 30 us each). Most of them stand in the bodies of fused
loops. Those are machine code by then, have no buffers, and are not looked at again, except to be shown. So here such a fusion becomes an
instruction of the same number, operands and shape that has no body, a custom call that nothing calls; the bodies go, and the other instructions'
places in the source. Left alone are fusions that a library runs (of kind kCustom: XLA makes them anew from their HLO when it loads them), those
that share memory with their operands, and everything else.

The numbers below are those of fields in xla/service/hlo.proto, which never change, and of the messages around that, as jaxlib 0.10 and 0.12
have them. XLA ends the process if what it loads contradicts itself, so what has another form, or was made by another jaxlib, stays whole.
"""
from __future__ import annotations

from typing import Callable, Iterator

from mini_jax.runtime import xla

LEAST = 1 << 16                                      # bytes of an executable from which on loading it takes long enough
KNOWN = xla.jaxlib_version[:2] in ((0, 10), (0, 12))  # jaxlibs whose form this has been tried with

_TO_MODULE = 1, 1, 1                                 # the executable; its program and configuration; its program
_COMPUTATIONS = 3                                    # of a module
_INSTRUCTIONS, _ID, _FUSED = 2, 5, 7                 # of a computation
_OPCODE, _METADATA, _KIND, _TARGET, _CALLED, _ALIASING = 2, 7, 11, 28, 38, 74        # of an instruction
_COMPILED = b"kLoop", b"kInput", b"kOutput"
_FUSION, _CALL = b"fusion", b"custom-call"


def lean(code: bytes) -> bytes | None:
    """What runs as `code` does, an executable for the CPU as XLA writes it; None where there is nothing to leave out, or the form is another."""
    if not KNOWN or len(code) < LEAST:
        return None
    try:
        size, start = _number(code, 0)               # first, JAX's own facts
        return code[:start + size] + _at(code[start + size:], _TO_MODULE, _module)
    except (ValueError, LookupError):
        return None


def _module(module: bytes) -> bytes:
    """Raises ValueError where it holds nothing to leave out."""
    kept, gone, held = [], set(), set()
    for number, whole, content in _fields(module):
        if number == _COMPUTATIONS:
            facts = {n: c for n, _, c in _fields(content) if n in (_ID, _FUSED)}
            body = facts.get(_FUSED)
            kept.append((facts[_ID] if body else None, whole if body else _field(number, _computation(content, gone, held))))
        else:
            kept.append((None, whole))
    bodies = [whole for id, whole in kept if id in gone]
    if not gone or len(bodies) != len(gone) or gone & held or any([_field(_OPCODE, _FUSION) in body for body in bodies]):
        raise ValueError("no fusions, or of a form that is not known: bodies elsewhere, shared, or with fusions in them")
    return b"".join([whole for id, whole in kept if id is None or id not in gone])


def _computation(computation: bytes, gone: set[bytes], held: set[bytes]) -> bytes:
    """A computation without bodies; the numbers of those that it called are added to `gone`, of those that it still calls to `held`."""
    return b"".join([_field(number, _instruction(content, gone, held)) if number == _INSTRUCTIONS else whole
                     for number, whole, content in _fields(computation)])


def _instruction(instruction: bytes, gone: set[bytes], held: set[bytes]) -> bytes:
    fields = [field for field in _fields(instruction) if field[0] != _METADATA]
    if _FUSION in instruction:
        found = {number: content for number, _, content in fields}
        if found[_OPCODE] != _FUSION:
            pass
        elif found[_KIND] not in _COMPILED or _ALIASING in found:
            held.add(found[_CALLED])
        else:
            gone.add(found[_CALLED])
            fields = [(number, _field(_OPCODE, _CALL) if number == _OPCODE else whole, None) for number, whole, _ in fields
                      if number not in (_KIND, _CALLED)]
            fields.append((_TARGET, _field(_TARGET, _FUSION), None))
    return b"".join([whole for _, whole, _ in fields])


# --- protocol buffers -----------------------------------------------------------------------------------------------------------


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Each field: its number, all of it, and its content (of a number, as it is written). ValueError where it is no message."""
    at, end = 0, len(message)
    while at < end:
        start = at
        key, at = _number(message, at)
        kind = key & 7
        if kind == 2:
            size, at = _number(message, at)
            stop = at + size
        elif kind == 0:
            stop = _number(message, at)[1]
        elif kind in (1, 5):
            stop = at + (8 if kind == 1 else 4)
        else:
            raise ValueError("no message")
        if stop > end:
            raise ValueError("cut off")
        yield key >> 3, message[start:stop], message[at:stop]
        at = stop


def _at(message: bytes, path: tuple[int, ...], edit: Callable[[bytes], bytes]) -> bytes:
    """A message with another content of the message in it that a path of fields leads to. ValueError unless there is exactly one."""
    fields = list(_fields(message))
    if [number for number, _, _ in fields].count(path[0]) != 1:
        raise ValueError("not there")
    return b"".join([_field(number, edit(content) if len(path) == 1 else _at(content, path[1:], edit)) if number == path[0] else whole
                     for number, whole, content in fields])


def _field(number: int, content: bytes) -> bytes:
    return _written(number << 3 | 2) + _written(len(content)) + content


def _number(message: bytes, at: int) -> tuple[int, int]:
    """The number that stands there, and where it ends."""
    value = message[at]
    if value < 128:
        return value, at + 1
    value, shift = value & 127, 7
    while True:
        at += 1
        byte = message[at]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at + 1
        shift += 7


def _written(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
