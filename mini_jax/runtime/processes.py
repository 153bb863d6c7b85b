"""Processes: whether this one is one of several that are one program, and their agreeing on what to do next. (joining.py makes it so.)"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Sequence

if TYPE_CHECKING:
    from mini_jax.runtime import xla
    from mini_jax.runtime.clusters import Place

ENDED = 75                                              # the exit status of a process that ends because another has


class Limits(NamedTuple):
    """For how many seconds things may last: until all have come; a process's silence; the end of all, from the end of the first on; a wait in
    a program for what other processes send."""
    arrival: float
    silence: float
    shutdown: float
    collective: float


class Joined(NamedTuple):
    """What makes this process one of several. client: of XLA's own service. hub and service: process 0's."""
    place: Place
    limits: Limits
    link: Any
    client: Any
    hub: Any
    service: Any


joined: Joined | None = None


def named(numbers: Sequence[int]) -> str:
    """"process 2", "processes 0, 1 and 3"."""
    words = [str(n) for n in sorted(numbers)]
    return f"process {words[0]}" if len(words) == 1 else f"processes {', '.join(words[:-1])} and {words[-1]}"


def count() -> int:
    """How many processes there are."""
    return 1 if joined is None else joined.place.count


def meet(what: str, numbers: Sequence[int] | None = None, error: type[Exception] = RuntimeError) -> None:
    """Wait until all processes (or those of these numbers) have come here, with the same words; a process alone doesn't wait.

    what: what they are about to do. Raises `error`, saying who differs and how, where words differ, and TimeoutError, naming them, where some
    don't come.
    """
    if joined is None:
        return
    numbers = tuple(range(joined.place.count)) if numbers is None else tuple(sorted(numbers))
    if numbers == (joined.place.process,):
        return
    said = joined.link.meet(numbers, what, joined.limits.collective)
    if said is not None:
        raise error(f"processes differ in what they are about to do. {different(said)}. All must call the same functions in the same order, with values of the same "
                    "types, and what a function captures must not depend on the process")


_agreed: set[bytes] = set()                              # digests of programs


def agreement(program, devices: Sequence[xla.Device]) -> Callable[[], None] | None:
    """What all processes that have some of these devices must do before they run a program: meet, with one text of it. None for one process alone.

    program: with name, text and in_types. A program that all have agreed on once is not asked about again, even if it is loaded anew.
    """
    numbers = {device.process_index for device in devices} if joined is not None else ()
    if len(numbers) < 2:
        return None

    def agree():
        from hashlib import blake2b              # which one process alone needn't load: it brings OpenSSL
        digest = blake2b(f"{program.text}\0{[device.id for device in devices]}".encode(), digest_size=8).digest()
        if digest not in _agreed:
            types = ", ".join([str(t) for t in program.in_types[:12]])
            meet(f"run {program.name} of ({types}{', …' if len(program.in_types) > 12 else ''}) on {len(devices)} devices, text {digest.hex()}", numbers)
            _agreed.add(digest)
    return agree


def different(said: dict[int, str]) -> str:
    """"processes 0 and 2: this; process 1: that"."""
    groups: dict[str, list[int]] = {}
    for number, words in said.items():
        groups.setdefault(words, []).append(number)
    return "; ".join([f"{named(numbers)}: {words}" for words, numbers in groups.items()])
