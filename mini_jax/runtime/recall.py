"""Programs that the cache on disk knows: recalled by the digest of what was recorded, they need neither be outlined nor written.

What is stored is the digest of the text, by which the executable is found, and which inputs the text keeps. The text itself is written
after all if somebody asks for it, as who compiles it does where the executable is gone.
"""
from __future__ import annotations

from functools import cached_property
from typing import Callable, Sequence

from lowering.digest import digest, package_unchanged
from lowering.physical import physical_value
from lowering.program import Lowered, with_inputs
from mini_jax.core.logs import TRACE_SECONDS
from mini_jax.core.program import Jaxpr
from mini_jax.core.refs import uses_refs, without_refs
from mini_jax.runtime import disk_cache


class Recalled:
    """A program on one device as `Lowered`, without its text as long as nobody asks for it."""

    def __init__(self, jaxpr: Jaxpr, consts: Sequence, name: str, known: disk_cache.Known, write: Callable[[], Lowered]):
        self.name, self.jaxpr, self.recorded, self.written, self._write = name, jaxpr, jaxpr, jaxpr, write
        self.in_types, self.out_types = jaxpr.in_types, jaxpr.out_types
        self.in_cuts, self.out_cuts, self.num_replicas, self.devices = [()] * len(self.in_types), [()] * len(self.out_types), 1, None
        self.digest, self.kept_consts, self.kept = known.text_digest, known.kept_consts, known.kept
        self.consts = [physical_value(c) for c, kept in zip(consts, known.kept_consts) if kept]
        self.callbacks, self.trace_seconds, self.lower_seconds = [], jaxpr.memo.get(TRACE_SECONDS), 0.0

    @cached_property
    def lowered(self) -> Lowered:
        return self._write()

    @cached_property
    def again(self) -> Jaxpr:
        return with_inputs(without_refs(self.jaxpr) if uses_refs(self.jaxpr) else self.jaxpr, self.kept_consts, self.kept)

    text = property(lambda self: self.lowered.text)
    located_text = property(lambda self: self.lowered.located_text)


def recall(jaxpr: Jaxpr, consts: Sequence, write: Callable[[], Lowered], choose: Callable[[str], dict] | None, *, name: str,
           **how) -> tuple[Lowered | Recalled, dict]:
    """A program for one device, recalled, or as `write()` gives it, which is noted; and the compiler options that `choose` finds by its text.

    choose: a function of this package's; its name stands for it. how: all else that `write` is told.
    """
    key = digest(jaxpr, (name, choose and choose.__name__, *sorted(how.items())))
    known = None if key is None else disk_cache.known(key, name)
    if known is not None:
        return Recalled(jaxpr, consts, name, known, write), known.options
    lowered = write()
    options = {} if choose is None else choose(lowered.text)
    # Left out: what lowering does beside writing (functions it makes known to XLA, a warning of a donation that served nothing), and replicas.
    plain = lowered.num_replicas == 1 and not lowered.callbacks and "jax.buffer_donor" not in lowered.text \
        and lowered.text.count("custom_call @") == lowered.text.count("custom_call @LayoutConstraint")
    if key is not None and plain and package_unchanged():
        disk_cache.make_known(key, name, disk_cache.Known(lowered.digest, tuple(lowered.kept_consts), tuple(lowered.kept), options))
    return lowered, options
