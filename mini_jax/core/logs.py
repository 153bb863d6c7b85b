"""What the package tells while it works, where options ask for it: one line each, through Python's logging ("mini_jax")."""
from __future__ import annotations

import logging

from mini_jax.core import config
from mini_jax.core.program import Jaxpr, memoized, subprograms

logger = logging.getLogger("mini_jax")          # warnings go to stderr unless logging is configured otherwise
compiles = config.log_compiles
cache_misses = config.explain_cache_misses
TRACE_SECONDS = "seconds it took to trace"      # where a program's memo has that, if the option was on


@memoized
def equations(jaxpr: Jaxpr) -> int:
    """The number of equations of a program, those of the programs in it included."""
    return len(jaxpr.eqns) + sum([equations(sub) for eqn in jaxpr.eqns for _, sub in subprograms(eqn.params)])


def compiled(name: str, jaxpr: Jaxpr, trace_seconds: float | None, lower_seconds: float, compile_seconds: float) -> None:
    """Say that a program was compiled, where it comes from and what that took."""
    place = f" ({jaxpr.info.location})" if jaxpr.info is not None and jaxpr.info.location else ""
    traced = f"traced in {trace_seconds:.4f} s, " if trace_seconds is not None else ""
    logger.warning("compiled %s%s: %slowered in %.4f s, compiled in %.4f s, %d equations", name, place, traced, lower_seconds, compile_seconds,
                   equations(jaxpr))
