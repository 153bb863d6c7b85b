"""Dispatchers and what can go wrong: errors in a cache_miss; and programs whose devices wait for each other, on a jaxlib where their starts need
care (`xla.FRAGILE_REPLICAS`), called without Python's long way."""
from __future__ import annotations

import threading
import weakref
from typing import Any, Callable

from mini_jax.core.tracebacks import hide_our_frames
from mini_jax.runtime import xla
from mini_jax.runtime.array import check_alive
from mini_jax.runtime.executable import refuse_inside_replica

_this_thread = threading.get_ident
_flatten, _ArrayImpl, _disable_jit = xla.registry.flatten, xla.ArrayImpl, xla.Config.disable_jit


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
    starts, lock = xla.replicas_start, xla.replicas_start.lock
    in_python: list = []                 # one entry for each call that C++ has handed over to Python

    def cache_miss(*args, **kwargs):
        in_python.append(None)           # `call` holds the lock; what follows may take long, and run other such programs
        lock.release()
        try:
            with asked_again(itself):
                return answer(args, kwargs)
        finally:
            lock.acquire()
            in_python.pop()

    dispatcher = xla.dispatcher(name, plain, cache_miss, **how)
    itself = weakref.ref(dispatcher)

    def call(*args, **kwargs):           # written for speed: with cold caches, as after a program, each step here costs several times its usual time
        try:
            for arg in (*args, *kwargs.values()) if kwargs else args:
                for leaf in (arg,) if type(arg) is _ArrayImpl else _flatten(arg)[0]:
                    if type(leaf) is _ArrayImpl and leaf.is_deleted():
                        check_alive(leaf)
            if _disable_jit.value:
                return dispatcher(*args, **kwargs)
            if not lock.acquire(False):
                refuse_inside_replica()                 # whoever waits for us has the lock
                lock.acquire()
            try:
                if starts.thread != _this_thread():
                    starts.another_thread()
                if not in_python:                       # else C++ would wait for that call, which may wait for the lock
                    out = dispatcher(*args, **kwargs)
                    if starts.unwatched and type(out) is _ArrayImpl:
                        starts.unwatched -= 1
                        starts.last = weakref.ref(out)
                    else:
                        starts.started(_flatten(out)[0])
                    return out
            finally:
                lock.release()
            return answer(args, kwargs)[0]
        except Exception as error:
            hide_our_frames(error)
            raise
    return call, dispatcher
