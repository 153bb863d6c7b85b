"""What is current in this thread: the trace that gives meaning to operations, the named axes, the name stack."""
from __future__ import annotations

import math
import threading
from contextlib import contextmanager
from typing import NamedTuple, Sequence

from mini_jax.runtime import xla


class NamedAxis(NamedTuple):
    """A named axis in scope. spread: its indices are on devices of their own (pmap, shard_map), not in one batch (vmap).
    total: gradients are summed over it without being asked to. parts: the axes that it stands for, outermost first, if it is several (xmap)."""
    size: int
    spread: bool = False
    total: bool = False
    parts: tuple = ()


class Reduced(NamedTuple):
    """The axes that a backward pass reduces over: those whose sums are taken where they come up, and those whose partial sums, one on each
    device, are kept apart until the end. (lax/totals.py)"""
    now: frozenset
    last: frozenset


class _State(threading.local):
    trace = None                        # set by core.trace to the evaluating trace; class attributes are every thread's default
    axes: dict = {}                     # name -> NamedAxis of the named axes in scope, outermost first; replaced, never mutated
    reduced: Reduced | None = None      # of the backward pass that is running
    warned = 0                          # how often a library function has warned: what is copied would not
    source = None                       # while a program is replayed: the source of the equation at hand
    scope: str = ""                     # the name stack of `named_scope` and of transformations, "outer/inner"


state = _State()


class current_trace:
    """`with current_trace(trace):` operations mean what `trace` makes of them. A plain class: this is a hot path."""
    __slots__ = ("trace", "saved")

    def __init__(self, trace):
        self.trace = trace

    def __enter__(self):
        self.saved, state.trace = state.trace, self.trace
        return self.trace

    def __exit__(self, *_):
        state.trace = self.saved


class staging:
    """`with staging(True):` the C++ dispatcher hands every call to Python, since operations are being recorded.

    `staging(None)`: it runs compiled programs again, whatever is being recorded further out.
    """
    __slots__ = ("value", "saved")

    def __init__(self, value):
        self.value = value

    def __enter__(self):
        self.saved = xla.staging.value
        xla.staging.set_local(self.value)

    def __exit__(self, *_):
        xla.staging.set_local(self.saved)


@contextmanager
def named_axes(axes: dict, *, spread: bool = False, total: bool = False):
    """`axes` (name -> size) are in scope, in addition to those that are. spread, total: see NamedAxis."""
    saved = state.axes
    state.axes = {**saved, **{name: NamedAxis(size, spread, total) for name, size in axes.items()}}
    try:
        yield
    finally:
        state.axes = saved


@contextmanager
def joint_axes(axes: dict):
    """Names that stand for several axes in scope: name -> their names, outermost first."""
    saved = state.axes
    state.axes = {**saved, **{name: NamedAxis(math.prod([saved[part].size for part in parts]), parts=parts) for name, parts in axes.items()}}
    try:
        yield
    finally:
        state.axes = saved


def single_axes(names: Sequence) -> tuple:
    """The names, those that stand for several axes replaced by theirs."""
    return tuple([part for name in names for part in (name in state.axes and state.axes[name].parts or (name,))])


def axis_size(name) -> int:
    """The size of a named axis in scope; NameError if there is none of that name."""
    try:
        return state.axes[name].size
    except (KeyError, TypeError):
        bound = ", ".join(map(repr, state.axes)) or "none"
        raise NameError(f"unbound axis name: {name!r}. Axis names in scope here: {bound}. Collectives and axis_index work "
                        f"inside functions mapped with that name, e.g. vmap(f, axis_name={name!r}) or pmap(f, axis_name={name!r}).") from None


class reducing:
    """`with reducing(names):` a backward pass reduces over these named axes, and those that are `total`. Names that are not in scope mean nothing."""
    __slots__ = ("names", "saved")

    def __init__(self, names):
        self.names = names

    def __enter__(self):
        self.saved, state.reduced = state.reduced, _reduced(self.names) if state.axes else None

    def __exit__(self, *_):
        state.reduced = self.saved


def _reduced(names) -> Reduced | None:
    names = single_axes(names)
    chosen = [(name, axis) for name, axis in state.axes.items() if not axis.parts and (axis.total or name in names)]
    return Reduced(frozenset([name for name, axis in chosen if not axis.spread]),
                   frozenset([name for name, axis in chosen if axis.spread])) if chosen else None


def reduced_axes() -> frozenset:
    """All named axes that the backward pass which is running reduces over."""
    reduced = state.reduced
    return frozenset() if reduced is None else reduced.now | reduced.last


@contextmanager
def named_scope(name: str):
    """Operations recorded in this block carry `name` in their name stack, as shown in lowered programs and profiles."""
    if not isinstance(name, str):
        raise TypeError(f"named_scope takes a string, got {name!r} of type {type(name).__name__}")
    saved = state.scope
    state.scope = f"{saved}/{name}" if saved else name
    try:
        yield
    finally:
        state.scope = saved
