"""`jax.profiler`: traces of what XLA and its runtime do, written for TensorBoard and Perfetto, by jaxlib's profiler."""
from __future__ import annotations

import functools
import glob
import gzip
import os
import threading
from contextlib import contextmanager
from typing import Callable

from mini_jax.runtime import xla

__all__ = ["start_trace", "stop_trace", "trace", "annotate_function", "TraceAnnotation", "StepTraceAnnotation", "ProfileOptions", "start_server",
           "stop_server", "device_memory_profile", "save_device_memory_profile"]

_profiler = xla.profiler()
ProfileOptions = _profiler.ProfileOptions
TraceAnnotation = _profiler.TraceMe


class StepTraceAnnotation(TraceAnnotation):
    """A context manager: what runs in it is a step of the trace. `StepTraceAnnotation("train", step_num=3)`."""

    def __init__(self, name: str, **kwargs):
        super().__init__(name, _r=1, **kwargs)


_lock = threading.Lock()
_running: list = []                                  # the session and its directory, while one runs
_server: list = []


def start_trace(log_dir, create_perfetto_link: bool = False, create_perfetto_trace: bool = False, profiler_options=None) -> None:
    """Start a trace, which stop_trace writes to log_dir. RuntimeError while one is running.

    create_perfetto_trace: also write perfetto_trace.json.gz there.
    """
    if create_perfetto_link:
        raise NotImplementedError("start_trace(create_perfetto_link=True) would serve the trace to a web page; write it with create_perfetto_trace=True "
                                  "and open the file at ui.perfetto.dev")
    with _lock:
        if _running:
            raise RuntimeError("a profiler trace is already running: stop_trace ends it; only one can run at a time")
        xla.client()                                     # traces of devices need them to be there
        _running.extend([_profiler.ProfilerSession() if profiler_options is None else _profiler.ProfilerSession(profiler_options), str(log_dir), create_perfetto_trace])


def stop_trace() -> None:
    """End the running trace and write it. RuntimeError where there is none."""
    with _lock:
        if not _running:
            raise RuntimeError("no profiler trace is running: start_trace starts one")
        session, log_dir, perfetto = _running
        _running.clear()
    session.stop_and_export(log_dir)
    if perfetto:
        _write_perfetto(log_dir)


def _write_perfetto(log_dir: str) -> None:
    """The newest trace in Perfetto's form, next to it."""
    found = sorted(glob.glob(os.path.join(log_dir, "plugins", "profile", "*", "*.trace.json.gz")), key=os.path.getmtime)
    if not found:
        raise RuntimeError(f"the profiler wrote no trace to {log_dir}")
    with gzip.open(found[-1], "rb") as source, gzip.open(os.path.join(os.path.dirname(found[-1]), "perfetto_trace.json.gz"), "wb") as target:
        target.write(source.read())


@contextmanager
def trace(log_dir, create_perfetto_link: bool = False, create_perfetto_trace: bool = False, profiler_options=None):
    """A trace of what runs in the block; arguments as for start_trace."""
    start_trace(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options)
    try:
        yield
    finally:
        stop_trace()


def annotate_function(func: Callable, name: str | None = None, **decorator_kwargs) -> Callable:
    """`func`, whose calls show in traces under its name."""
    name = name or getattr(func, "__qualname__", None) or getattr(func, "__name__", type(func).__name__)

    @functools.wraps(func)
    def annotated(*args, **kwargs):
        with TraceAnnotation(name, **decorator_kwargs):
            return func(*args, **kwargs)
    return annotated


def start_server(port: int):
    """Start a server that TensorBoard asks for traces. ValueError while one is running."""
    if _server:
        raise ValueError("a profiler server is already running: only one can run at a time")
    _server.append(_profiler.start_server(port))
    return _server[0]


def stop_server() -> None:
    """Stop it. ValueError where there is none."""
    if not _server:
        raise ValueError("no profiler server is running")
    _server.clear()


def device_memory_profile(backend: str | None = None) -> bytes:
    """What device memory is in use, as a gzipped pprof profile."""
    return gzip.compress(xla.client(backend).heap_profile())


def save_device_memory_profile(filename, backend: str | None = None) -> None:
    """Write device_memory_profile() to a file."""
    with open(filename, "wb") as file:
        file.write(device_memory_profile(backend))
