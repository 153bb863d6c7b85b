"""Joining: how a process becomes one of several that are one program over all their devices, and how they end together.

The watch (watch.py) finds the others, then XLA's own service, which process 0 runs, tells each client of all devices. From then on nothing
waits without a limit: when one process ends, the others end with an error that names it.
"""
from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
import threading
import time
import traceback

from mini_jax.core import config
from mini_jax.runtime import platforms, processes, xla
from mini_jax.runtime.clusters import Place, split_address
from mini_jax.runtime.processes import ENDED, Joined, Limits
from mini_jax.runtime.watch import Hub, Link, is_loopback, listen, relay, whereabouts

PATIENCE = 1_000_000                                    # seconds for which XLA's service waits for a silent process: the watch is quicker


def join(place: Place, limits: Limits, bind_address: str | None = None) -> None:
    """Become process `place.process` of `place.count`. bind_address: where process 0 listens, if not at place.address.

    Returns when all have come. Raises RuntimeError where this process has devices or company already, or where they don't all come in
    time, naming those who haven't; OSError where process 0 can't listen; ValueError for devices that don't exist.
    """
    if processes.joined is not None:
        raise RuntimeError("distributed.initialize: this process has joined others already")
    if xla.started_platforms():
        raise RuntimeError("distributed.initialize must be called before anything is computed, put on a device or asked of the devices: the "
                           f"devices of {', '.join(xla.started_platforms())} are in use already, as those of a process of its own")
    _choose_devices(place)
    deadline = time.monotonic() + limits.arrival
    host, port = split_address(place.address)
    # Where process 0 listens: at all addresses of its machine; but not for other machines what is for this one alone.
    where, port_here = split_address(bind_address) if bind_address else (None if not is_loopback(host) else "::1" if host == "::1" else "127.0.0.1", port)
    hub = link = None
    try:
        if place.process == 0:
            hub = _hub(where, port_here, place.count, limits)
        link = Link(_reach(host, port, place, deadline), place.process, place.count, limits.silence, _end)
        if not link.wait(lambda: link.started, deadline - time.monotonic()):
            link.say("late", limits.arrival)            # it will be refused, in words that say who is missing
            if not link.wait(lambda: link.started, 5):
                raise RuntimeError(f"distributed.initialize: process 0, at {place.address}, doesn't answer")
        own = hub.address if hub else link.peer.connection.getsockname()[0]      # where others reach this process
        end = int(limits.shutdown) + 10
        service = _service(where, place.count, link, end) if hub else None
        if not link.wait(lambda: link.service, max(deadline - time.monotonic(), 10)):
            raise RuntimeError("distributed.initialize: process 0 has not started XLA's service in time")
        address = _joined(where or "127.0.0.1", link.service) if hub else f"127.0.0.1:{relay(link.peer.connection.getpeername()[0], link.service)}"
        client = xla.distributed_client(address, place.process, timeout=max(10, int(deadline - time.monotonic())), patience=PATIENCE, shutdown_timeout=end)
        client.connect()
    except BaseException:
        for made in (link, hub):
            if made is not None:
                made.close()
        raise
    for kept in (client, service):
        xla.never_free(kept)
    processes.joined = Joined(place, limits, link, client, hub, service)
    collectives = xla.cpu_collectives(config.options["cpu_collectives_implementation"].value, client, own) if place.count > 1 else None
    xla.add_flag("xla_cpu_collective_timeout_seconds", max(1, int(limits.collective)))
    xla.set_client_options("cpu", distributed_client=client, node_id=place.process, num_nodes=place.count, collectives=collectives)
    for platform in ("cuda", "rocm"):
        xla.set_client_options(platform, distributed_client=client, node_id=place.process, num_nodes=place.count)
    # Programs that wait for other processes hold XLA's threads for longer: with 0.10, 24 of two devices each are too many, and all wait for ever.
    xla.replicas_start.EVERY = 2
    _explain_messages()
    atexit.register(leave)
    os.register_at_fork(after_in_child=_forget)
    xla.client()                                        # now, since all must do it together


def _forget() -> None:
    """A forked child is none of the processes."""
    processes.joined = None


def _choose_devices(place: Place) -> None:
    """Let the default platform's client have the chosen devices only. ValueError where there are none of these numbers."""
    platform = platforms.platforms()[0]
    visible = config.options.get(f"{platform}_visible_devices")
    if visible is not None:
        wanted = place.gpu if place.devices is None else place.devices
        if wanted is not None and visible.value in (None, "", "all"):
            visible.update(",".join(map(str, wanted)))
    elif place.devices is not None and platform == "cpu":
        count = _cpu_devices()
        if max(place.devices) >= count:
            raise ValueError(f"distributed.initialize: local_device_ids {list(place.devices)}, but this process has {count} CPU device{'s' * (count > 1)}, with "
                             "the numbers from 0 on: XLA_FLAGS=--xla_force_host_platform_device_count says how many")
        xla.set_client_options("cpu", num_devices=len(place.devices))


def _cpu_devices() -> int:
    count = config.options["num_cpu_devices"].value
    flags = os.environ.get("XLA_FLAGS", "").split()
    forced = [flag.partition("=")[2] for flag in flags if flag.startswith("--xla_force_host_platform_device_count=")]
    return count if count > 0 else int(forced[-1]) if forced else 1


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _hub(where: str | None, port: int, count: int, limits: Limits) -> Hub:
    try:
        return Hub(listen(where, port), count, limits.arrival, limits.silence)
    except OSError as error:
        raise OSError(error.errno, f"distributed.initialize: process 0 can't listen at {_joined(where or '*', port)}: {error.strerror or error}. If something "
                      "else, or another process that is process 0 too, is there already, choose another port in coordinator_address") from None


def _service(where: str | None, count: int, link: Link, end: int):
    """Start XLA's service at some port that is free, and let all know of it."""
    everywhere = "[::]" if socket.has_dualstack_ipv6() else "0.0.0.0"
    for attempt in range(5):
        with listen(where, 0) as free:
            port = free.getsockname()[1]
        try:
            service = xla.distributed_service(_joined(where, port) if where else f"{everywhere}:{port}", count, patience=PATIENCE, shutdown_timeout=end)
            break
        except (xla.XlaRuntimeError, RuntimeError):     # someone was quicker
            if attempt == 4:
                raise
    link.say("service", port)
    return service


def _reach(host: str, port: int, place: Place, deadline: float) -> socket.socket:
    """A connection to process 0, which may still have to start."""
    reason = "it has not answered"
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise RuntimeError(f"distributed.initialize: process {place.process} can't reach process 0 at {place.address}: {reason}. Is that the address of the "
                               "machine where process 0 runs, has process 0 called distributed.initialize, and may connections go there?")
        try:
            return socket.create_connection((host, port), min(left, 10))
        except OSError as error:
            reason = str(error.strerror or error)
            time.sleep(min(0.1, max(left, 0)))


# --- the end ----------------------------------------------------------------------------------------------------------------------------

def leave() -> None:
    """End the company: wait until all have come to this point, or say that this process has failed. What was joined can't be joined again."""
    if processes.joined is None:
        return
    place, limits, link, client, hub, service = processes.joined
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)      # the exception that ends this process, if nobody is at a prompt
    if error is not None:
        link.fail("".join(traceback.format_exception_only(error)).strip().splitlines()[-1][:300])
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, 15)    # XLA may wait, in what follows, for what others never send
        if hub:
            time.sleep(0.5)                             # let it tell the others
    else:
        link.say("done")
        if not link.wait(lambda: link.over, limits.shutdown):
            text = f"it is done, but not all others are {limits.shutdown:g} s later: they may be waiting for something that it doesn't do. {link.everyone()}"
            link.fail(text)
            time.sleep(0.5)
            _stop(f"process {place.process}: {text}")
        client.shutdown()
        if hub:
            service.shutdown()
            hub.close()
    processes.joined = None


def _explain_messages() -> None:
    """Let an uncaught error of a message between processes be followed by what is behind it: one has ended, which the watch is about to notice,
    or is late."""
    show = sys.excepthook

    def excepthook(kind, error, tb):
        show(kind, error, tb)
        if processes.joined is not None and "Gloo" in str(error):
            _explain(processes.joined)
    sys.excepthook = excepthook


def _explain(joined: Joined) -> None:
    time.sleep(2)                                       # if one has ended, this process ends here
    _write(f"process {joined.place.process} has waited for what others send it in a program, {joined.limits.collective:g} s at most. {joined.link.everyone()}")


def _end(number: int, who: str, how: str) -> None:
    """End this process, since another has ended."""
    own = processes.joined.place.process if processes.joined else "?"
    _stop(f"process {number}{who} {how}. Process {own}, which was {whereabouts()}, ends too.")


def _stop(text: str) -> None:
    """End this process at once, whatever it does: some program waits for what will never come, or soon will."""
    flush = threading.Thread(target=_flush, daemon=True)
    flush.start()
    flush.join(2)                                       # the main thread may hold a stream's lock for ever
    _write(text)
    os._exit(ENDED)


def _write(text: str) -> None:
    os.write(2, f"mini_jax: {text}\n".encode())


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass
