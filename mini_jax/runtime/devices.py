"""Devices: which there are, and which one is used when nothing says so."""
from __future__ import annotations

import warnings

from mini_jax.runtime import platforms, processes, xla       # noqa: F401  (platforms says which clients there are)


def _client(backend):
    return backend if backend is not None and not isinstance(backend, str) else xla.client(backend)


def devices(backend: str | None = None) -> list[xla.Device]:
    """All devices of a backend ("cpu", "gpu" or "cuda", "tpu", …; None: the default one), those of other processes included.

    Raises RuntimeError, naming the backends there are, when there is no such backend.
    """
    return _client(backend).devices()


def local_devices(process_index: int | None = None, backend: str | None = None, host_id: int | None = None) -> list[xla.Device]:
    """The devices that belong to one process (None: to this one). host_id: the older name of process_index.

    Raises ValueError where there is no such process.
    """
    if host_id is not None:
        warnings.warn("local_devices(host_id=) is the older name of local_devices(process_index=)", DeprecationWarning, stacklevel=2)
        process_index = host_id
    client = _client(backend)
    if process_index is None:
        return client.local_devices()
    found = [device for device in client.devices() if device.process_index == process_index]
    if not found and not 0 <= process_index < process_count(backend):
        count = process_count(backend)
        raise ValueError(f"unknown process_index {process_index}: there {'is one process, 0' if count == 1 else f'are {count} processes, from 0 on'}")
    return found


def device_count(backend: str | None = None) -> int:
    """How many devices there are in all processes."""
    return _client(backend).device_count()


def local_device_count(backend: str | None = None) -> int:
    """How many devices this process can use."""
    return _client(backend).local_device_count()


def process_index(backend: str | None = None) -> int:
    """The number of this process, 0 when there is one."""
    return _client(backend).process_index()


def process_count(backend: str | None = None) -> int:
    """How many processes work together: those that `distributed.initialize` has joined, whether or not they have devices of a backend."""
    return max(processes.count(), *[device.process_index + 1 for device in _client(backend).devices()])


def process_indices(backend: str | None = None) -> list[int]:
    """The numbers of all processes, in order."""
    return list(range(process_count(backend)))


def _older(name: str, now: str, function):
    def older(backend: str | None = None):
        warnings.warn(f"{name} is the older name of {now}", DeprecationWarning, stacklevel=2)
        return function(backend)
    older.__name__ = older.__qualname__ = name
    older.__doc__ = f"{now}, under its older name."
    return older


host_id, host_count, host_ids = (_older("host_id", "process_index", process_index), _older("host_count", "process_count", process_count),
                                 _older("host_ids", "process_indices", process_indices))


def default_backend() -> str:
    """The platform of the default client: "cpu", "gpu" or "tpu"."""
    return xla.client().platform


def resolve(device) -> xla.Device:
    """A Device as it is; the name of a platform → its first local device."""
    if isinstance(device, str):
        return xla.client(device).local_devices()[0]
    if isinstance(device, xla.Device):
        return device
    raise TypeError(f"a device must be a Device (see mini_jax.devices()) or a platform name, not {type(device).__name__}")


_first: xla.Device | None = None


def current_device() -> xla.Device:
    """The device that uncommitted values go to: `default_device`'s, else the first local one of the default backend."""
    global _first
    chosen = xla.Config.default_device.value
    if chosen is not None:
        return resolve(chosen)
    if _first is None:
        _first = xla.client().local_devices()[0]
    return _first


class default_device:
    """Context: values that are not committed to a device are made, and computed, on this one.

    >>> with default_device(devices()[1]):
    ...     x = jnp.ones(3)
    """

    def __init__(self, device: xla.Device | str | None):
        self.device = None if device is None else resolve(device)
        self._outer: list = []

    def __enter__(self):
        self._outer.append(xla.Config.default_device.swap_local(self.device))

    def __exit__(self, *_):
        xla.Config.default_device.set_local(self._outer.pop())


def set_default_device(device: xla.Device | str | None) -> None:
    """As `default_device`, for the whole process and until further notice (None: as at the start)."""
    xla.Config.default_device.set_global(None if device is None else resolve(device))
