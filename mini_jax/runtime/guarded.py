"""Dispatchers and what can go wrong: errors in a cache_miss; and programs whose devices wait for each other, on a jaxlib where their starts need
care (`xla.FRAGILE_REPLICAS`), called without Python's long way."""
from __future__ import annotations

import weakref
from typing import Any, Callable

from mini_jax.core.tracebacks import boundary, hide_our_frames
from mini_jax.runtime import xla
from mini_jax.runtime.array import check_alive
from mini_jax.runtime.executable import refuse_inside_replica

_flatten = xla.registry.flatten


class asked_again:
    """Around a cache_miss of this dispatcher: where it raises, later calls of the signature come to it again, and may be fast another time. (C++
    would send them all to Python.) The error shows none of our frames."""
    __slots__ = ("dispatcher",)

    def __init__(self, dispatcher: weakref.ref):
        self.dispatcher = dispatcher

    def __enter__(self):
        pass

    def __exit__(self, _, error, __):
        if error is not None:
            self.dispatcher()._clear_cache()
            hide_our_frames(error)


def guarded_dispatcher(name: str, plain: Callable, answer: Callable[[tuple, dict], tuple], **how: Any) -> tuple[Callable, xla.Dispatcher]:
    """(call, dispatcher): a dispatcher of C++'s, and its calls with what such programs need: living arguments, and one start at a time.

    answer(args, kwargs): what a cache_miss gives. plain, how: as for `xla.dispatcher`.
    """
    in_python: list = []                 # one entry for each call that C++ has handed over to Python

    def cache_miss(*args, **kwargs):
        in_python.append(None)           # `call` holds the lock; what follows may take long, and run other such programs
        xla.replicas_start.lock.release()
        try:
            with asked_again(itself):
                return answer(args, kwargs)
        finally:
            xla.replicas_start.lock.acquire()
            in_python.pop()

    dispatcher = xla.dispatcher(name, plain, cache_miss, **how)
    itself = weakref.ref(dispatcher)

    @boundary
    def call(*args, **kwargs):
        for leaf in _flatten((args, kwargs))[0]:
            if type(leaf) is xla.ArrayImpl:
                check_alive(leaf)
        if xla.Config.disable_jit.value:
            return dispatcher(*args, **kwargs)
        refuse_inside_replica()
        with xla.replicas_start as starts:
            if not in_python:                           # else C++ would wait for that call, which may wait for the lock
                out = dispatcher(*args, **kwargs)
                starts.started(_flatten(out)[0])
                return out
        return answer(args, kwargs)[0]
    return call, dispatcher
