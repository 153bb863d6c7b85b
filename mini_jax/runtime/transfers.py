"""Guards of transfers between host and devices: what the options transfer_guard* say, told to C++, which does them.

A transfer is explicit within device_put and device_get, else implicit. "allow", "log" and "disallow" are about implicit ones;
"log_explicit" and "disallow_explicit" about both kinds.
"""
from __future__ import annotations

from mini_jax.core import config
from mini_jax.runtime import xla

_KINDS = ("host_to_device", "device_to_device", "device_to_host")


def _level(value):
    return None if value in (None, xla.unset) else getattr(xla.guards.TransferGuardLevel, value.upper())


def _tell() -> None:
    """Set C++'s guards, this thread's and the process's. An option of its own goes before `transfer_guard`, which is about all."""
    for state, read in ((xla.guards.thread_local_state(), "get_local"), (xla.guards.global_state(), "get_global")):
        for kind in _KINDS:
            own, general = [_level(getattr(option.state, read)()) for option in (config.options[f"transfer_guard_{kind}"], config.transfer_guard)]
            setattr(state, kind, own if own is not None else general)


class Explicit:
    """A context: transfers of one direction are explicit in it."""
    __slots__ = ("attribute",)

    def __init__(self, attribute: str):
        self.attribute = attribute

    def __enter__(self):
        setattr(xla.guards.thread_local_state(), self.attribute, True)

    def __exit__(self, *_):
        setattr(xla.guards.thread_local_state(), self.attribute, False)


putting, getting = Explicit("explicit_device_put"), Explicit("explicit_device_get")

for _option in (config.transfer_guard, *[config.options[f"transfer_guard_{kind}"] for kind in _KINDS]):
    _option.watch(_tell)
_tell()
