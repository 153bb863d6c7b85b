"""Where a function's time goes: `python -m mini_jax explain FILE:function TYPE …`, or `explain(fun, *args)` from Python.

The program is traced, lowered, compiled and run, each timed. Then it runs under XLA's profiler, which says how long each operation of the
compiled program took, and the program's own text says from which line of the user's code that operation came. Where the profiler
sees no operations, the lines are ranked by the bytes that their operations move, and the report says so.
"""
from __future__ import annotations

import dataclasses
import linecache
import math
import os
import re
import statistics
import time
from collections import Counter, defaultdict
from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

from mini_jax.core import config, dtypes, logs
from mini_jax.runtime import xla
from mini_jax.runtime.array import device_put
from mini_jax.transforms.api import block_until_ready
from mini_jax.transforms.jit import jit
from mini_jax.transforms.stages import ShapeDtypeStruct
from mini_jax import tree

RUNS, SECONDS, PROFILED = 20, 2.0, 3              # at most so many runs, in about so many seconds; and so many under the profiler


class Place(NamedTuple):
    """A line of the user's code and what its operations cost."""
    where: str                                     # file.py:12
    code: str                                      # what stands there
    share: float                                   # of the cost of all operations
    seconds: float | None                          # of one run; None where costs are estimated
    operations: tuple[str, ...]                    # the dearest first


@dataclasses.dataclass
class Report:
    """What `explain` found. Seconds of one run; print it to read it."""
    name: str
    where: str | None
    trace: float
    lower: float
    compile: float
    phases: dict[str, float]                       # of compiling
    run: float                                     # the median
    runs: int
    equations: int
    written: int                                   # equations of the program that was written, functions counted once
    outlined: list[str]                            # what the outliner did, or why nothing
    costs: dict[str, float]                        # XLA's estimates: flops, bytes accessed, …
    loops: bool                                    # are there any? The estimates count what is in them once
    memory: dict[str, int]                         # XLA's plan, in bytes
    places: list[Place]                            # the dearest first
    measured: bool                                 # are places ranked by measured time, or by bytes moved?

    def __str__(self):
        flops, moved = self.costs.get("flops", 0.0), self.costs.get("bytes accessed", 0.0)
        rates = [f"{_scaled(amount, unit)}: {_scaled(amount / self.run, unit)}/s" for amount, unit in ((flops, "flop"), (moved, "B")) if amount > 0]
        memory = self.memory
        size = f"{self.equations:,} equation{'s' * (self.equations != 1)}"
        phases = ", ".join([f"{name} {_seconds(t)}" for name, t in self.phases.items()])
        lines = [
            f"{self.name}{f' ({self.where})' if self.where else ''}",
            f"  trace    {_seconds(self.trace):>9}   {size}",
            f"  lower    {_seconds(self.lower):>9}   {self.written:,} as written" + "".join([f"\n{'':23}{line}" for line in self.outlined]),
            f"  compile  {_seconds(self.compile):>9}" + (f"   {phases}" if phases else ""),
            f"  run      {_seconds(self.run):>9}   median of {self.runs}" + (f"; by XLA's estimate{', which counts loops once,' * self.loops} {'; '.join(rates)}" if rates else ""),
            f"  memory   {_scaled(memory['peak'], 'B'):>9}   arguments {_scaled(memory['arguments'], 'B')}, results {_scaled(memory['results'], 'B')}, "
            f"temporaries {_scaled(memory['temporaries'], 'B')}" + (f", code {_scaled(memory['code'], 'B')}" if memory["code"] else ""), ""]
        if not self.places:
            return "\n".join([*lines, "XLA left nothing to compute."])
        shown = self.places[:10]
        dearest = "costliest line" if len(shown) == 1 else f"{len(shown)} costliest lines"
        lines.append(f"The {dearest}, by " + ("measured time:" if self.measured else "the bytes that their operations move (the profiler saw no operations):"))
        width, code = max([len(p.where) for p in shown]), max([min(len(p.code), 60) for p in shown])
        for p in shown:
            cost = f"{_seconds(p.seconds):>9}  " if p.seconds is not None else ""
            text = p.code if len(p.code) <= 60 else p.code[:59] + "…"
            lines.append(f"  {p.share:6.1%}  {cost}{p.where:{width}}  {text:{code}}  {', '.join(p.operations[:4])}{', …' * (len(p.operations) > 4)}")
        return "\n".join(lines)


def explain(fun: Callable, *args, **kwargs) -> Report:
    """What it takes to trace, lower, compile and run `fun(*args, **kwargs)`, and which lines of the user's code the time goes to.

    args: arrays and numbers, or ShapeDtypeStructs, in whose place floats from [0, 1), zeros for integers (which are often indices) and True
    are taken. fun may be jitted, mapped by pmap, or not. The cache on disk is left aside. Raises what tracing, compiling or running raises.
    """
    staged = fun if hasattr(fun, "trace") and hasattr(fun, "lower") else jit(fun)
    with config.options["enable_compilation_cache"](False):
        trace, traced = _timed(lambda: staged.trace(*args, **kwargs))
        lower, lowered = _timed(traced.lower)
        (compile_, compiled), events = xla.profiled(lambda: _timed(lowered.compile))
    program = lowered._program
    call = _caller(compiled, traced, args, kwargs)
    block_until_ready(call()[1])
    times: list[float] = []
    while len(times) < RUNS and (len(times) < 3 or sum(times) < SECONDS):
        times.append(call()[0])
    hlo = Hlo(compiled.as_text())
    seconds = _operation_seconds(hlo, call, len(compiled._executable.devices))
    measured = bool(seconds)
    if not measured:
        seconds = hlo.bytes_moved()
    notes = program.notes
    plan = compiled.memory_analysis()
    memory = dict(arguments=plan.argument_size_in_bytes, results=plan.output_size_in_bytes, temporaries=plan.temp_size_in_bytes,
                  code=plan.generated_code_size_in_bytes)
    memory["peak"] = memory["arguments"] + memory["results"] + memory["temporaries"] - plan.alias_size_in_bytes
    return Report(
        program.name.removeprefix("jit_"), logs.place(program.recorded), trace, lower, compile_, _phases(events), statistics.median(times), len(times),
        logs.equations(program.recorded), logs.equations_once(program.written), notes.functions or [f"not outlined: {r}" for r in notes.refused[:3]],
        compiled.cost_analysis() or {},
        any([op.kind == "while" for op in hlo.operations.values()]), memory, _places(hlo, seconds, measured), measured)


def _timed(f: Callable) -> tuple[float, Any]:
    began = time.perf_counter()
    result = f()
    return time.perf_counter() - began, result


def _caller(compiled, traced, args, kwargs) -> Callable[[], tuple[float, Any]]:
    """A function that runs the program once and waits: how long that took, and the result."""
    rng = np.random.default_rng(0)
    host = tree.map(lambda leaf: _example(rng, leaf) if isinstance(leaf, ShapeDtypeStruct) else leaf, (args, kwargs))
    put = lambda: tree.map(lambda leaf: device_put(leaf) if isinstance(leaf, np.ndarray) else leaf, host)
    given, gives_away = put(), any(getattr(traced._call, "donated", None) or ())

    def call():
        nonlocal given
        if gives_away:
            given = block_until_ready(put())
        return _timed(lambda: block_until_ready(compiled(*given[0], **given[1])))
    return call


def _example(rng, struct: ShapeDtypeStruct) -> np.ndarray:
    """An array of a type."""
    dtype = np.dtype(dtypes.canonicalize(struct.dtype))
    if dtype == bool:
        return np.ones(struct.shape, bool)
    return rng.random(struct.shape).astype(dtype) if dtypes.is_inexact(dtype) else np.zeros(struct.shape, dtype)


# --- what XLA says ---------------------------------------------------------------------------------------------------------------

_PHASES = {"HLO passes": ("HLO passes through layout assignment", "HLO passes after layout assignment"),
           "writing kernels": ("ThunkEmitter::EmitEntryComputation", "ThunkEmitter::ConsumeKernels"), "LLVM": ("Codegen",)}


def _phases(events: Sequence[xla.Event]) -> dict[str, float]:
    """Seconds of the phases of a compilation, where XLA's profiler knows them."""
    total = {phase: sum([event.seconds for event in events if event.name.startswith(names)]) for phase, names in _PHASES.items()}
    return {phase: seconds for phase, seconds in total.items() if seconds > 0}


def _operation_seconds(hlo: "Hlo", call: Callable, devices: int) -> dict[str, float]:
    """Seconds that each operation of a compiled program takes in a run, on each device, as far as the profiler sees them."""
    _, events = xla.profiled(lambda: [call() for _ in range(PROFILED)])
    total: Counter = Counter()
    for event in events:
        if event.operation in hlo.operations:
            total[event.operation] += event.seconds / PROFILED / devices
    for name in list(total):                       # loops and calls: what they hold is there itself
        if any([inner in total for inner in hlo.inside(name)]):
            del total[name]
    return dict(total)


class Operation(NamedTuple):
    """An instruction of a compiled program."""
    kind: str
    computation: str
    calls: tuple[str, ...]                         # computations that it runs
    where: tuple[str, int] | None                  # file and line
    primitive: str                                 # what mini_jax called it
    bytes: int                                     # of its result
    operands: tuple[str, ...]
    trips: int                                     # how often it runs what it calls, as far as XLA knows


class Hlo:
    """The operations of a program's optimised HLO, by name, read from its text."""

    _INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.-]+) = (.*?) ([a-z][\w-]*)\((.*)$")
    _COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.-]+) \(.*\{$")
    _CALLS = re.compile(r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.-]+)|branch_computations=\{([^}]*)\}")
    _METADATA = re.compile(r'metadata=\{([^}]*)\}')
    _TABLE = re.compile(r"^(\d+) (.*)$")
    _FIELD = re.compile(r"(\w+)=(\d+)")

    def __init__(self, text: str):
        tables: dict[str, dict[int, str]] = defaultdict(dict)
        self.operations: dict[str, Operation] = {}
        self._inside: dict[str, list[str]] = defaultdict(list)          # computation -> its operations
        table = computation = self.entry = ""
        for line in text.splitlines():
            if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
                table = line
            elif table and (row := self._TABLE.match(line)):
                tables[table][int(row[1])] = row[2]
            elif head := self._COMPUTATION.match(line):
                table, computation = "", head[1]
                if line.startswith("ENTRY"):
                    self.entry = computation
            elif row := self._INSTRUCTION.match(line):
                name, type_, kind, rest = row.groups()
                calls = [one for single, several in self._CALLS.findall(rest) for one in ([single] if single else re.findall(r"[\w.-]+", several))]
                metadata = self._METADATA.search(rest)
                where, primitive = self._source(metadata[1] if metadata else "", tables)
                trips = re.search(r'"known_trip_count":\{"n":"(\d+)"', rest)
                operands = tuple(re.findall(r"%([\w.-]+)", rest.split("), ")[0]))
                self.operations[name] = Operation(kind, computation, tuple(calls), where, primitive, _bytes(type_), operands, int(trips[1]) if trips else 1)
                self._inside[computation].append(name)

    def _source(self, metadata: str, tables) -> tuple[tuple[str, int] | None, str]:
        """The file and line that metadata names, and the primitive: `jit_f/scope/sin`."""
        name = re.search(r'op_name="([^"]*)"', metadata)
        primitive = name[1].rsplit("/", 1)[-1] if name else ""
        if frame := re.search(r"stack_frame_id=(\d+)", metadata):
            location = dict(self._FIELD.findall(tables["StackFrames"].get(int(frame[1]), ""))).get("file_location_id")
            fields = dict(self._FIELD.findall(tables["FileLocations"].get(int(location or 0), "")))
            file = tables["FileNames"].get(int(fields.get("file_name_id", 0)), "").strip('"')
            return ((file, int(fields["line"])) if file and "line" in fields else None), primitive
        file, line = re.search(r'source_file="([^"]*)"', metadata), re.search(r"source_line=(\d+)", metadata)
        return ((file[1], int(line[1])) if file and line else None), primitive

    def inside(self, name: str, seen: frozenset = frozenset()) -> list[str]:
        """The operations of the computations that an operation runs, and of those that they run."""
        found: list[str] = []
        for computation in self.operations[name].calls:
            if computation not in seen:
                for inner in self._inside[computation]:
                    found += [inner, *self.inside(inner, seen | {computation})]
        return found

    def where(self, name: str) -> tuple[str, int] | None:
        """The file and line of an operation; of a fusion of which XLA doesn't say it, that of the last operation in it that has one."""
        places = [self.operations[n].where for n in (*self.inside(name), name)]
        return next((place for place in reversed(places) if place is not None), None)

    def kinds(self, name: str) -> list[str]:
        """What an operation does, in the words of the user's program: of a fusion, what is fused in it, its result last."""
        names = [self.operations[n].primitive for n in self.inside(name) if self.operations[n].kind not in _MUTE] if self.operations[name].kind == "fusion" else []
        return list(dict.fromkeys([n for n in names if n] or [self.operations[name].primitive or self.operations[name].kind]))

    def bytes_moved(self) -> dict[str, float]:
        """The bytes that each operation reads and writes in a run; loops count as often as XLA knows that they run."""
        total: Counter = Counter()

        def walk(computation: str, times: int):
            for name in self._inside[computation]:
                op = self.operations[name]
                if op.kind in ("while", "call", "conditional"):
                    for inner in op.calls:
                        walk(inner, times * op.trips)
                elif op.kind not in _MUTE:
                    total[name] += times * (op.bytes + sum([self.operations[o].bytes for o in op.operands if o in self.operations]))
        walk(self.entry, 1)
        return dict(total)


_MUTE = frozenset(["parameter", "constant", "tuple", "get-tuple-element", "bitcast", "broadcast", "iota", "after-all"])
_BITS = {"pred": 8, "token": 0, "opaque": 0}


def _bytes(type_: str) -> int:
    """The bytes of a value of an HLO type: f32[8,128]{1,0}, or a tuple of such."""
    total = 0
    for dtype, shape in re.findall(r"([a-z]\w*)\[([\d,]*)\]", type_):
        bits = _BITS.get(dtype) if dtype in _BITS else int((re.search(r"\d+", dtype) or [8])[0])
        total += math.prod([int(n) for n in shape.split(",") if n]) * bits // 8
    return total


def _places(hlo: Hlo, costs: dict[str, float], measured: bool) -> list[Place]:
    """The lines of the user's code, the dearest first."""
    by_line: dict[tuple, Counter] = defaultdict(Counter)
    for name, cost in costs.items():
        words = hlo.kinds(name)
        by_line[hlo.where(name) or ("", 0)][" + ".join(words[:3]) + (" + …" if len(words) > 3 else "")] += cost
    total = sum(costs.values()) or 1.0
    found = []
    for (file, line), operations in by_line.items():
        cost = sum(operations.values())
        where, code = (f"{os.path.basename(file)}:{line}", linecache.getline(file, line).strip()) if file else ("(no line)", "")
        found.append(Place(where, code, cost / total, cost if measured else None, tuple([word for word, _ in operations.most_common()])))
    return sorted(found, key=lambda place: -place.share)


def _seconds(t: float) -> str:
    scale, unit = (1, "s") if t >= 1 else (1e3, "ms") if t >= 1e-3 else (1e6, "us")
    return f"{t * scale:.3g} {unit}" if t * scale < 1000 else f"{t * scale:,.0f} {unit}"


def _scaled(amount: float, unit: str) -> str:
    for prefix in ("", "k", "M", "G", "T"):
        if amount < 1000 or prefix == "T":
            return f"{amount:.3g} {prefix}{unit}" if amount < 1000 else f"{amount:,.0f} {prefix}{unit}"
        amount /= 1000
