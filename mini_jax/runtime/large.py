"""With which of XLA's options a program is compiled on CPU: what runs is as fast, and starts sooner.

- XLA unrolls loops that it has vectorised. That makes programs of many loops compile a quarter to a third longer, and only sums (and the like) of
  long columns, and of three or four terms, run faster by it; those of long rows run slower. So it does so only for programs with such sums. (And of
  a few numbers, which it adds in another order otherwise: an operation that runs by itself, quick.py, gives the same bits as within jit.)

Of a program with kept calls (lowering/outline.py):

- XLA gives each kept call a copy of the function, by default before it optimises, and then optimises every copy. Here it copies late.
- x + y and copies are by default written by XLA's tiled emitter, which takes three times as long as the others for loops as fast.
- Products and sums of floats are by default run by YNNPACK, which sets up each of them at its first run, for every call anew, in 0.5 to 3 ms.
  Eigen's products and XLA's own sums need nothing, but take longer to compile, once for each function. So they are chosen where functions
  are called often, and only if a step takes as long: Eigen's products lose where matrices are large and rows few, own sums along columns.

Of one that repeats nothing, many small products are Eigen's too.

All that is decided for a whole program, since XLA's options hold for all of it. The figures are in docs/performance_on_cpu.md.
"""
from __future__ import annotations

import math
import re
from typing import NamedTuple

from mini_jax.runtime import quick, xla

OFTEN_PRODUCTS, OFTEN_SUMS = 4, 8                # calls of each product and sum, on average, that make up for its compilation
SMALL_PRODUCT, MANY_PRODUCTS = 2 ** 20, 16       # multiplications of which Eigen makes no parallel parts; products whose setup a first step shows
ROWS, MANY_ROWS, LARGE_MATRIX = 256, 1024, 2 ** 17           # of larger ones; the last two of transposed matrices, which Eigen reads slowly
HANDED_OVER, LONGEST = 4096, 4096                # of sums: the smallest that YNNPACK gets; the terms that may be added one after the other
VECTOR, SMALL_COLUMNS = 8, 8192                  # entries side by side, and from the first term to the last, that XLA's loops add as fast
MANY_ENTRIES, FEW_TERMS = 2 ** 16, 4             # of sums along columns, and of each result of any sum: XLA's loops want to be unrolled
SLOWER = 50                                      # multiplications done while a slow loop loses time on one entry; a fast one gains a fourth of that

_NOT_UNROLLED = "xla_cpu_disable_loop_unrolling"
_WITH_CALLS = ["xla_cpu_flatten_after_fusion"] + ["xla_cpu_disable_tiled_emitter"] * (xla.jaxlib_version < (0, 11))     # (0.12 rounds otherwise by it)
_KEPT = 'inlineable = "false"'
_FUNCTION = re.compile(r"^  func\.func \w+ @([^\s(]+)\(", re.MULTILINE)
_CALL = re.compile(r"call @([^\s(]+)\(")
_PRODUCT = re.compile(r"dot_general [^:]*?contracting_dims = \[(\d)\] x \[(\d)\][^:]*: \(tensor<([\dx]+)x\w+>, tensor<([\dx]+)x\w+>\)")
_BATCH = re.compile(r"batching_dims = \[([\d, ]*)\]")
_SUM = re.compile(r"stablehlo\.reduce\([^\n]*? applies stablehlo\.(\w+) across dimensions = \[([\d, ]*)\] : \(tensor<([\dx]+)x(\w+)>")
_SHAPE = re.compile(r"tensor<([\dx]+)x\w+>")
_NARROW = re.compile(r"tensor<(?:\d+x)*(?:b?f16|u?i8|f8\w+)>")


class _Product(NamedTuple):
    """A product of matrices, or of each of a stack of them, as XLA's text has it."""
    rows: int
    terms: int
    columns: int
    stack: int
    transposed: bool                             # the second matrix is

    @property
    def work(self) -> int:
        return self.stack * self.rows * self.terms * self.columns

    @property
    def small(self) -> bool:
        return self.rows * self.terms * self.columns < SMALL_PRODUCT

    def fast(self) -> bool:
        """Is Eigen's as fast as YNNPACK's?"""
        if self.small:
            return True
        return self.rows >= (MANY_ROWS if self.transposed and self.terms * self.columns > LARGE_MATRIX else ROWS)


class _Sum(NamedTuple):
    """A sum, extremum or the like of so many entries; of each result so many terms, which lie so many entries apart."""
    operation: str
    dtype: str
    entries: int
    terms: int
    apart: int

    @property
    def of_floats(self) -> bool:
        """Is it one of those that YNNPACK has?"""
        return self.operation in ("add", "maximum", "minimum") and self.dtype.startswith("f")

    def fast(self) -> bool:
        """Is XLA's own loop as fast as YNNPACK?"""
        return self.apart <= VECTOR or self.terms * self.apart <= SMALL_COLUMNS

    def unrolled(self, own: bool) -> bool:
        """Is it done by a loop of XLA's that is faster if it is unrolled? own: no sum is YNNPACK's. (Extrema and the like never are.)"""
        if self.operation == "add" and self.of_floats and not own:
            return False
        return self.apart > VECTOR and self.entries > MANY_ENTRIES or self.terms <= FEW_TERMS and self.entries >= HANDED_OVER


def options(text: str) -> dict:
    """XLA's options for a program that a user wrote."""
    functions = _functions(text) or {"main": text}
    runs = _runs(functions)
    repeats = _KEPT in text and max(runs.values()) > 1
    extra = _WITH_CALLS if repeats else []
    if _NARROW.search(text) is not None:
        return _extra(extra)
    products = [(product, runs[name]) for name, body in functions.items() for product in _products(body)]
    sums = [(sum_, runs[name]) for name, body in functions.items() for sum_ in _sums(body)]
    if repeats:
        eigen, own = _eigen(products), _own([(sum_, n) for sum_, n in sums if sum_.of_floats], sum([product.work * n for product, n in products]))
    else:
        eigen, own = len(products) >= MANY_PRODUCTS and all([product.small for product, _ in products]), False
    if not any([sum_.unrolled(own) for sum_, _ in sums]) and any(math.prod(_sizes(m[1])) > quick.TINY for m in _SHAPE.finditer(text)):
        extra = [*extra, _NOT_UNROLLED]
    chosen = _extra(extra)
    if eigen or own:
        chosen.update(_by_ynnpack(not eigen, not own))
    if own:
        chosen["xla_disable_hlo_passes"] = "tree_reduction_rewriter"           # it makes of each sum two, for XLA's older loops
    return chosen


def _extra(names: list[str]) -> dict:
    return {xla.EXTRA_OPTIONS: ",".join(names)} if names else {}


def _by_ynnpack(products: bool, sums: bool) -> dict:
    """The option by which it runs these, and convolutions."""
    kinds = ["LIBRARY_FUSION_TYPE_DOT"] * products + ["LIBRARY_FUSION_TYPE_REDUCE"] * sums
    return {xla.YNNPACK_RUNS: ",".join([*kinds, "LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION"])}


def _eigen(products: list[tuple[_Product, int]]) -> bool:
    """Are products, each with how often it runs, better Eigen's?"""
    return _often(products, OFTEN_PRODUCTS) and all([product.fast() for product, _ in products])


def _own(sums: list[tuple[_Sum, int]], work: int) -> bool:
    """Are sums, each with how often it runs, better XLA's own loops? Not if a step, of so many multiplications, loses a sixteenth by them."""
    if any([sum_.terms > LONGEST for sum_, _ in sums]):
        return False
    handed = [(sum_, n) for sum_, n in sums if sum_.entries >= HANDED_OVER]
    slower = sum([sum_.entries * n * (-0.25 if sum_.fast() else 1) for sum_, n in handed])
    return _often(handed, OFTEN_SUMS) and 16 * SLOWER * slower <= work


def _often(counted: list[tuple], often: int) -> bool:
    return sum([n for _, n in counted]) >= often * len(counted) > 0


# --- what a program's text says ----------------------------------------------------------------------------------------------------


def _functions(text: str) -> dict[str, str]:
    """The functions of a program by their names."""
    _, *parts = _FUNCTION.split(text)
    return dict(zip(parts[::2], parts[1::2]))


def _runs(functions: dict[str, str]) -> dict[str, int]:
    """How often each function is called when the program runs (in a loop, once)."""
    calls = {name: [called for called in _CALL.findall(body) if called in functions] for name, body in functions.items()}
    callers = dict.fromkeys(functions, 0)                      # how many calls of it have not been counted yet
    for called in calls.values():
        for name in called:
            callers[name] += 1
    runs = dict.fromkeys(functions, 0)
    ready = [name for name, n in callers.items() if n == 0]
    runs.update(dict.fromkeys(ready, 1))
    while ready:
        caller = ready.pop()
        for name in calls[caller]:
            runs[name] += runs[caller]
            callers[name] -= 1
            if callers[name] == 0:
                ready.append(name)
    return runs


def _products(body: str) -> list[_Product]:
    """The products that YNNPACK would run: not those whose first matrix is transposed."""
    found = []
    for match in _PRODUCT.finditer(body):
        i, j, lhs, rhs = match.groups()
        i, j, lhs, rhs = int(i), int(j), _sizes(lhs), _sizes(rhs)
        if i == len(lhs) - 1 and 0 not in lhs:
            batch = _BATCH.search(match[0])
            stack = math.prod([lhs[int(d)] for d in batch[1].split(",")]) if batch is not None else 1
            terms = lhs[i]
            found.append(_Product(math.prod(lhs) // stack // terms, terms, math.prod(rhs) // stack // terms, stack, j == len(rhs) - 1 > 0))
    return found


def _sums(body: str) -> list[_Sum]:
    found = []
    for operation, dims, shape, dtype in _SUM.findall(body):
        shape, dims = _sizes(shape), {int(d) for d in dims.split(",") if d}
        found.append(_Sum(operation, dtype, math.prod(shape), math.prod([shape[d] for d in dims]), math.prod(shape[max(dims, default=-1) + 1:])))
    return found


def _sizes(shape: str) -> list[int]:
    return [int(n) for n in shape.split("x")]
