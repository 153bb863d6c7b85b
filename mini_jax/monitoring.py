"""`jax.monitoring`: events that libraries record and listeners hear of."""
from __future__ import annotations

import threading
from typing import Callable

__all__ = ["record_event", "record_event_duration_secs", "record_event_time_span", "record_scalar", "register_event_listener",
           "register_event_duration_secs_listener", "register_event_time_span_listener", "register_scalar_listener", "clear_event_listeners"]

_lock = threading.Lock()
_listeners: dict[str, tuple[Callable, ...]] = {}


def _register(kind: str, listener: Callable) -> None:
    if not callable(listener):
        raise TypeError(f"a listener is a function, got {listener!r:.100}")
    with _lock:
        _listeners[kind] = (*_listeners.get(kind, ()), listener)


def _tell(kind: str, *args, **kwargs) -> None:
    for listener in _listeners.get(kind, ()):
        listener(*args, **kwargs)


def record_event(event: str, **kwargs) -> None:
    """Tell the event listeners: listener(event, **kwargs)."""
    _tell("event", event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs) -> None:
    """Tell the duration listeners: listener(event, duration, **kwargs)."""
    _tell("duration", event, duration, **kwargs)


def record_event_time_span(event: str, start_time: float, end_time: float, **kwargs) -> None:
    """Tell the time-span listeners: listener(event, start_time, end_time, **kwargs)."""
    _tell("span", event, start_time, end_time, **kwargs)


def record_scalar(event: str, value: float, **kwargs) -> None:
    """Tell the scalar listeners: listener(event, value, **kwargs)."""
    _tell("scalar", event, value, **kwargs)


def register_event_listener(callback: Callable) -> None:
    """Call `callback` at each record_event."""
    _register("event", callback)


def register_event_duration_secs_listener(callback: Callable) -> None:
    """Call `callback` at each record_event_duration_secs."""
    _register("duration", callback)


def register_event_time_span_listener(callback: Callable) -> None:
    """Call `callback` at each record_event_time_span."""
    _register("span", callback)


def register_scalar_listener(callback: Callable) -> None:
    """Call `callback` at each record_scalar."""
    _register("scalar", callback)


def clear_event_listeners() -> None:
    """Forget all listeners."""
    with _lock:
        _listeners.clear()
