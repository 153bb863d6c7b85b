"""What the package tells while it works, where options ask for it: one line each, through Python's logging ("mini_jax")."""
from __future__ import annotations

import os

from mini_jax.core import config, source
from mini_jax.core.program import Jaxpr, memoized, subprograms

compiles = config.log_compiles
cache_misses = config.explain_cache_misses
TRACE_SECONDS = "seconds it took to trace"      # where a program's memo has that, if the option was on


def say(message: str, *args) -> None:
    """Log a warning, which goes to stderr unless logging is configured otherwise."""
    import logging                              # here: whoever asks for nothing needn't import it
    logging.getLogger("mini_jax").warning(message, *args)


@memoized
def equations(jaxpr: Jaxpr) -> int:
    """The number of equations of a program, those of the programs in it included, as often as they are called."""
    return len(jaxpr.eqns) + sum([equations(sub) for eqn in jaxpr.eqns for _, sub in subprograms(eqn.params)])


def equations_once(jaxpr: Jaxpr) -> int:
    """The number of equations of a program and of the programs in it, each once however often it is called: as many as XLA compiles."""
    seen, waiting = {jaxpr}, [jaxpr]
    while waiting:
        new = {sub for eqn in waiting.pop().eqns if eqn.params for _, sub in subprograms(eqn.params)} - seen
        seen |= new
        waiting += new
    return sum([len(program.eqns) for program in seen])


def place(jaxpr: Jaxpr) -> str | None:
    """`file.py:12`: where the user's function stands; of an operation or a library function that runs now, the line that calls it."""
    info = jaxpr.info
    if info is not None and info.code is not None and not source.is_internal(info.code.co_filename):
        return info.location
    here = source.decode(source.capture(1))
    return None if here is None else f"{here.file}:{here.line}"


def described(lowered) -> str:
    """`step (train.py:31, 4,812 equations)`: a program in a few words. Asked by another thread than the one that compiles it."""
    info = lowered.recorded.info
    where = f"{os.path.basename(info.code.co_filename)}:{info.code.co_firstlineno}, " if info is not None and info.code is not None else ""
    return f"{lowered.name.removeprefix('jit_')} ({where}{equations(lowered.recorded):,} equations)"


def compiled(lowered, compile_seconds: float, stored: bool | None = None) -> None:
    """Say of a program (`lowering.program.Lowered`) that it was compiled: where it comes from, what that took, how large it was and has become.

    stored: whether the cache on disk had it; None where there is no such cache."""
    where = place(lowered.recorded)
    traced = f"traced in {lowered.trace_seconds:.4f} s, " if lowered.trace_seconds is not None else ""
    before, after = equations(lowered.recorded), equations_once(lowered.written)
    size = f"{before} equation{'s' * (before != 1)}" + (f", {after} as written" if after != before else "")
    cache = "" if stored is None else ", found in the cache on disk" if stored else ", not in the cache on disk"
    say("compiled %s%s: %slowered in %.4f s, compiled in %.4f s, %s%s", lowered.name, f" ({where})" if where else "", traced,
        lowered.lower_seconds, compile_seconds, size, cache)
