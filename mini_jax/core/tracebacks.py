"""Tracebacks that end in the user's code: our own frames are left out, unless config.traceback_filtering is "off"."""
from __future__ import annotations

import functools
import sys
import threading
import types
from typing import Callable

from mini_jax.core import config, source

_option = config.options["traceback_filtering"]


def hide_our_frames(error: BaseException) -> None:
    """Take mini_jax's frames out of the traceback of an error that is about to leave it."""
    if _option.value == "off":
        return
    kept, tb = [], error.__traceback__
    while tb is not None:
        if not source.is_internal(tb.tb_frame.f_code.co_filename):
            kept.append(tb)
        tb = tb.tb_next
    chain = None
    for tb in reversed(kept):
        chain = types.TracebackType(chain, tb.tb_frame, tb.tb_lasti, tb.tb_lineno)
    error.__traceback__ = chain


def boundary_of(fun: Callable) -> Callable[[Callable], Callable]:
    """Decorator of what a transformation makes of `fun`: it goes by fun's name, and errors leave it without our frames."""
    def decorate(transformed):
        def bounded(*args, **kwargs):
            try:
                return transformed(*args, **kwargs)
            except Exception as error:
                hide_our_frames(error)
                raise
        return functools.update_wrapper(bounded, fun, updated=())
    return decorate


def boundary(fun: Callable) -> Callable:
    """Decorator of functions that users call: errors leave them without our frames."""
    return boundary_of(fun)(fun)


def install() -> None:
    """Let Python print uncaught errors without our frames too, whichever of our functions they passed."""
    print_error, print_thread_error = sys.excepthook, threading.excepthook

    def excepthook(kind, error, tb):
        _hide_in_chain(error)
        print_error(kind, error, error.__traceback__)

    def thread_excepthook(args):
        _hide_in_chain(args.exc_value)
        print_thread_error(threading.ExceptHookArgs((args.exc_type, args.exc_value, args.exc_value and args.exc_value.__traceback__, args.thread)))
    sys.excepthook, threading.excepthook = excepthook, thread_excepthook


def _hide_in_chain(error: BaseException | None) -> None:
    """In an error and those that it was raised from."""
    while error is not None:
        hide_our_frames(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
