"""Python's collector of cycles, paused while programs are recorded and written: all that they are made of stays, and it would go through that again and again."""
from __future__ import annotations

import contextlib
import gc


@contextlib.contextmanager
def paused():
    """Collect no cycles meanwhile. (Of two threads that come and go in any order the last one leaves it as the first one found it.)"""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
