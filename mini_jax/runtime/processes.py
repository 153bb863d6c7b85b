"""Processes: joining others to be one program over all their devices, ending together, and agreeing on what to do next.

`join` makes this process one of several: the watch (runtime/watch.py) finds the others, then XLA's own service, which process 0 runs, tells
each client of all devices. From then on nothing waits without a limit: when one process ends, the others end with an error that names it.
"""
from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Sequence

from mini_jax.core import config
from mini_jax.runtime import xla

if TYPE_CHECKING:
    import socket

    from mini_jax.runtime.clusters import Place
    from mini_jax.runtime.watch import Hub, Link

# Imports in functions: what only processes that join others need would cost all others some twenty milliseconds at their start.


ENDED = 75                                              # the exit status of a process that ends because another has


class Limits(NamedTuple):
    """For how many seconds things may last: until all have come; a process's silence; the end of all, from the end of the first on; a wait in
    a program for what other processes send."""
    arrival: float
    silence: float
    shutdown: float
    collective: float


class Joined(NamedTuple):
    """What makes this process one of several. hub and service are process 0's."""
    place: Place
    limits: Limits
    link: Link
    client: Any
    hub: Hub | None
    service: Any


joined: Joined | None = None
_failure: str | None = None                             # of this process: what it was that nobody has caught


def join(place: Place, limits: Limits, bind_address: str | None = None) -> None:
    """Become process `place.process` of `place.count`. bind_address: where process 0 listens, if not at place.address.

    Returns when all have come. Raises RuntimeError where this process has devices or company already, or where they don't all come in
    time, naming those who haven't; OSError where process 0 can't listen; ValueError for devices that don't exist.
    """
    from mini_jax.runtime.clusters import split_address
    from mini_jax.runtime.watch import Link, relay
    global joined
    if joined is not None:
        raise RuntimeError("distributed.initialize: this process has joined others already")
    if xla.started_platforms():
        raise RuntimeError("distributed.initialize must be called before anything is computed, put on a device or asked of the devices: the "
                           f"devices of {', '.join(xla.started_platforms())} are in use already, as those of a process of its own")
    choose_devices(place)
    deadline = time.monotonic() + limits.arrival
    host, port = split_address(place.address)
    hub = _hub(place, limits, host, port, bind_address) if place.process == 0 else None
    try:
        link = Link(_reach(host, port, place, deadline), place.process, place.count, limits.silence, _end)
        if not link.wait(lambda: link.started, deadline - time.monotonic()):
            raise RuntimeError(f"distributed.initialize: process 0, at {place.address}, has not said within {limits.arrival:g} s that all "
                               f"{place.count} processes have come")
        here = link.peer.connection.getsockname()[0]
        patience, end = int(max(600, 10 * limits.silence)), int(limits.shutdown) + 10
        service = _service(place, link, bind_address, host, patience, end) if hub else None
        if not link.wait(lambda: link.service, deadline - time.monotonic()):
            raise RuntimeError("distributed.initialize: process 0 has not started XLA's service in time")
        port = link.service if hub else relay(link.peer.connection.getpeername()[0], link.service)
        client = xla.distributed_client(f"127.0.0.1:{port}" if not hub or _loopback(host) else _join_address(here, port), place.process,
                                        timeout=max(1, int(deadline - time.monotonic())), patience=patience, shutdown_timeout=end)
        client.connect()
    except BaseException:
        if hub:
            hub.close()
        raise
    for kept in (client, service):
        xla.never_free(kept)
    joined = Joined(place, limits, link, client, hub, service)
    collectives = xla.cpu_collectives(config.options["cpu_collectives_implementation"].value, client, here) if place.count > 1 else None
    xla.add_flag("xla_cpu_collective_timeout_seconds", max(1, int(limits.collective)))
    xla.set_client_options("cpu", distributed_client=client, node_id=place.process, num_nodes=place.count, collectives=collectives)
    for platform in ("cuda", "rocm"):
        xla.set_client_options(platform, distributed_client=client, node_id=place.process, num_nodes=place.count)
    _notice_failures()
    atexit.register(leave)
    xla.client()                                        # now, since all must do it together


def choose_devices(place: Place) -> None:
    """Let the clients have the chosen devices only. ValueError where there are none of these numbers."""
    if place.devices is not None:
        count = _forced_devices()
        if max(place.devices) >= count:
            raise ValueError(f"distributed.initialize: local_device_ids {list(place.devices)}, but this process has {count} CPU device{'s' * (count > 1)}, with "
                             "the numbers from 0 on: XLA_FLAGS=--xla_force_host_platform_device_count says how many")
        xla.set_client_options("cpu", num_devices=len(place.devices))
    for platform in ("cuda", "rocm"):
        visible = config.options[f"{platform}_visible_devices"]
        wanted = place.devices if place.devices is not None else place.gpu
        if wanted is not None and visible.value in (None, "", "all"):
            visible.update(",".join(map(str, wanted)))


def _forced_devices() -> int:
    count = config.options["num_cpu_devices"].value
    if count > 0:
        return count
    flags = os.environ.get("XLA_FLAGS", "").split()
    return int(next((flag.partition("=")[2] for flag in reversed(flags) if flag.startswith("--xla_force_host_platform_device_count=")), 1))


def _loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _hub(place: Place, limits: Limits, host: str, port: int, bind_address: str | None) -> Hub:
    from mini_jax.runtime.clusters import split_address
    from mini_jax.runtime.watch import Hub, listen
    where, port = split_address(bind_address) if bind_address else ("127.0.0.1" if _loopback(host) else None, port)
    try:
        return Hub(listen(where, port), place.count, limits.arrival, limits.silence)
    except OSError as error:
        raise OSError(error.errno, f"distributed.initialize: process 0 can't listen at {_join_address(where or '*', port)}: {error.strerror or error}. If something else, or "
                      "another process that is process 0 too, is there already, choose another port in coordinator_address") from None


def _service(place: Place, link: Link, bind_address: str | None, host: str, patience: int, end: int):
    """Start XLA's service at some port that is free, and let all know of it."""
    import socket

    from mini_jax.runtime.clusters import split_address
    from mini_jax.runtime.watch import listen
    where = split_address(bind_address)[0] if bind_address else "127.0.0.1" if _loopback(host) else "[::]" if socket.has_dualstack_ipv6() else "0.0.0.0"
    for attempt in range(5):
        with listen(None if where == "[::]" else where, 0) as free:
            port = free.getsockname()[1]
        try:
            service = xla.distributed_service(f"{where}:{port}", place.count, patience=patience, shutdown_timeout=end)
            break
        except (xla.XlaRuntimeError, RuntimeError):     # someone was quicker
            if attempt == 4:
                raise
    link.say("service", port)
    return service


def _reach(host: str, port: int, place: Place, deadline: float) -> socket.socket:
    """A connection to process 0, which may still have to start."""
    import socket
    reason = "it has not answered"
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise RuntimeError(f"distributed.initialize: process {place.process} can't reach process 0 at {place.address}: {reason}. Is that the address of the machine "
                               "where process 0 runs, has process 0 called distributed.initialize, and may connections go there?")
        try:
            return socket.create_connection((host, port), min(left, 10))
        except OSError as error:
            reason = str(error.strerror or error)
            time.sleep(min(0.1, max(left, 0)))


# --- the end ----------------------------------------------------------------------------------------------------------------------------

def leave() -> None:
    """End the company: wait until all have come to this point, or say that this process has failed. What was joined can't be joined again."""
    from mini_jax.runtime.watch import named
    global joined
    if joined is None:
        return
    link, limits, client, service, hub = joined.link, joined.limits, joined.client, joined.service, joined.hub
    if _failure is not None:
        link.say("failed", _failure)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, 15)    # XLA may wait, in what follows, for what others never send
        if hub:
            time.sleep(0.5)                             # let it tell the others
    else:
        link.say("done")
        if not link.wait(lambda: link.over, limits.shutdown):
            _end(None, "", f"{named([joined.place.process])} is done, but not all others are {limits.shutdown:g} s later: they may be waiting for something that it "
                 f"doesn't do. {link.everyone()}")
        client.shutdown()
        if service is not None:
            service.shutdown()
            hub.close()
    joined = None


def _notice_failures() -> None:
    """Remember an exception that ends this process."""
    show = sys.excepthook

    def excepthook(kind, error, tb):
        global _failure
        import traceback
        _failure = "".join(traceback.format_exception_only(kind, error)).strip().splitlines()[-1][:300]
        show(kind, error, tb)
        if joined is not None and isinstance(error, xla.XlaRuntimeError) and "Gloo" in str(error):
            print(f"mini_jax: process {joined.place.process} has waited for what others send it in a program, {joined.limits.collective:g} s at most. "
                  f"{joined.link.everyone()}", file=sys.stderr)
    sys.excepthook = excepthook


def _end(number: int | None, who: str, how: str) -> None:
    """End this process at once, whatever it does: another has ended, and some program waits for it, or will."""
    from mini_jax.runtime.watch import whereabouts
    text = how if number is None else f"process {number}{who} {how}. "
    if number is not None:
        text += f"Process {joined.place.process if joined else '?'}, which was {whereabouts()}, ends too."
    flush = threading.Thread(target=_flush, daemon=True)
    flush.start()
    flush.join(2)                                       # the main thread may hold a stream's lock for ever
    os.write(2, f"mini_jax: {text}\n".encode())
    os._exit(ENDED)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass


# --- together ---------------------------------------------------------------------------------------------------------------------------

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
        from hashlib import blake2b
        digest = blake2b(f"{program.text}\0{[device.id for device in devices]}".encode(), digest_size=8).digest()
        if digest not in _agreed:
            types = ", ".join([str(t) for t in program.in_types[:12]])
            meet(f"run {program.name} of ({types}{', …' if len(program.in_types) > 12 else ''}) on {len(devices)} devices, text {digest.hex()}", numbers)
            _agreed.add(digest)
    return agree


def different(said: dict[int, str]) -> str:
    """"processes 0 and 2: this; process 1: that"."""
    from mini_jax.runtime.watch import named
    groups: dict[str, list[int]] = {}
    for number, words in said.items():
        groups.setdefault(words, []).append(number)
    return "; ".join([f"{named(numbers)}: {words}" for words, numbers in groups.items()])
