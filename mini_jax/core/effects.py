"""Effects: what a program does beside computing its results. They stand in `eqn.effects` and `Jaxpr.effects`."""
from __future__ import annotations

from typing import Iterable, NamedTuple


class HostEffect(NamedTuple):
    """A call of Python that must happen: neither dropped nor repeated. ordered: after those before it in program order."""
    kind: str                        # "debug" or "io"
    ordered: bool


def host_effects(effects: Iterable) -> list[HostEffect]:
    """Those among effects that are calls of Python."""
    return [effect for effect in effects if type(effect) is HostEffect]


def only_shows(effect) -> bool:
    """Is it the effect of a print or another debug callback, which may show more than happens without harm?"""
    return type(effect) is HostEffect and effect.kind == "debug"
