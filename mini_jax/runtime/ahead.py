"""Loading ahead: the large executables that the last run of the same script used are loaded by a thread, while Python still imports, makes
data and traces. XLA needs 0.1 to 0.3 s for one, most of what a second start takes, and does so without holding Python up.

A file SCRIPT-DIGEST.ahead in the cache's directory lists them. It is a guess, and nothing depends on it: an executable is taken only under the
name, and with the devices and options, by which it would have been loaded, and one that is not asked for goes when another was missed.
"""
from __future__ import annotations

import os
import sys
import threading
from typing import Any, Callable, NamedTuple, Sequence

from lowering.digest import blake2b
from mini_jax.runtime import xla

LARGE = 1 << 18                     # bytes of an executable, as it is loaded, from which on it is worth a thread's while
_MOST = 16                          # executables of one script


class Use(NamedTuple):
    """How an executable is loaded: from which file, for which devices, with which options and numbers of replicas and partitions."""
    file: str
    devices: tuple[int, ...]
    options: tuple
    counts: tuple


class Ahead:
    """What is loaded ahead from one directory. read(file) -> what is stored as it, or None; write(file, content); both as the directory has it."""

    def __init__(self, read: Callable[[str, bytes], bytes | None], write: Callable[[str, bytes, bytes], None]):
        self._read, self._write = read, write
        self._coming: dict[Use, tuple[threading.Event, list]] = {}
        self._expected: frozenset[Use] = frozenset()
        self._used: list[Use] = []
        self._right = True                                   # so far nothing else was needed
        self._begun = threading.Lock()                       # held for ever by whoever begins
        self._name, self._key = _script()

    def begin(self, client, load: Callable[[Use, Sequence], Any]) -> None:
        """Start loading what is expected; once. load(use, devices) -> what `take` gives, or None."""
        if self._name is None or not self._begun.acquire(blocking=False) or (os.cpu_count() or 1) < 2:
            return
        try:
            import json
            listed = json.loads(self._read(self._name, self._key) or b"[]")
            expected = [Use(file, tuple(devices), tuple(map(tuple, options)), tuple(map(tuple, counts))) for file, devices, options, counts in listed]
        except (ValueError, TypeError):
            return
        if expected:
            self._expected = frozenset(expected[:_MOST])
            self._coming = {use: (threading.Event(), []) for use in expected[:_MOST]}
            thread = threading.Thread(target=self._work, args=(client, load), name="mini_jax loading ahead")      # awaited at exit: XLA can't be left
            try:
                thread.start()
            except RuntimeError:                             # Python that is about to end starts no more threads
                self._coming.clear()

    def _work(self, client, load) -> None:
        devices = {device.id: device for device in client.devices()}
        for use, (done, result) in list(self._coming.items()):
            try:
                if self._right and threading.main_thread().is_alive():
                    result.append(load(use, [devices[number] for number in use.devices]))
            except Exception:                                # whoever needs it will meet, and tell, the same
                pass
            finally:
                done.set()

    def take(self, use: Use):
        """What was loaded for this use, waited for if it is being loaded; None if it is not."""
        found = self._coming.pop(use, None)
        if found is None:
            return None
        done, result = found
        done.wait()
        return result[0] if result else None

    def used(self, use: Use) -> None:
        """Note that a large executable was used."""
        if self._name is None or use in self._used:
            return
        self._used.append(use)
        if use not in self._expected:                        # the guess was wrong
            self._right = False
            self._coming.clear()
            import json
            self._write(self._name, self._key, json.dumps(self._used[-_MOST:]).encode())


def _script() -> tuple[str | None, bytes]:
    """The name of the file for the script that runs, and its key; None where there is none, as at a prompt."""
    main = sys.modules.get("__main__")
    place = getattr(main, "__file__", None)
    if place is None:
        return None, b""
    key = blake2b(f"{os.path.abspath(place)}\0{sys.version}\0{xla.jaxlib_version}".encode(), digest_size=32).digest()
    return f"{os.path.basename(place).removesuffix('.py')[:64]}-{key.hex()}.ahead", key
