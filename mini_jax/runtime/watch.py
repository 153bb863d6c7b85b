"""The watch: how processes that work together come to know each other, notice that one has ended, and see that all do the same.

Process 0 has a hub, a thread that listens at the coordinator's address. Every process, 0 too, has a link to it: a socket, over which they
exchange lines of JSON, [kind, …]. However a process ends, its link closes, so the hub can tell the others within milliseconds who it was.
One that stops, or whose machine is gone, is noticed when it has been silent for too long. Both are threads that do nothing most of the time.
"""
from __future__ import annotations

import errno
import json
import os
import selectors
import socket
import sys
import threading
import time
from typing import Any, Callable

from mini_jax.core import source
from mini_jax.runtime.processes import named

PROTOCOL = 1


def listen(host: str | None, port: int) -> socket.socket:
    """A socket that listens at an address; host None: at all addresses of this machine. Raises OSError where it can't."""
    if host is None and socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):       # no IPv6 on this machine after all
                raise
    family = socket.AF_INET6 if host and ":" in host else socket.AF_INET
    return socket.create_server((host or "", port), family=family, backlog=1024)


def is_loopback(host: str) -> bool:
    """Is this an address that no other machine can reach?"""
    return host in ("localhost", "::1") or host.startswith("127.")


_LIBRARY = os.path.dirname(os.__file__) + os.sep


def whereabouts() -> str:
    """Where in the user's code the main thread is: "at train.py:31 (step)"."""
    frame = sys._current_frames().get(threading.main_thread().ident)
    while frame is not None:
        file = frame.f_code.co_filename
        if not source.is_internal(file) and (not file.startswith(_LIBRARY) or "site-packages" in file):
            return f"at {file}:{frame.f_lineno} ({frame.f_code.co_qualname})"
        frame = frame.f_back
    return "at its end"


class _Peer:
    """One end of a link: sends lines, and cuts what arrives into lines."""
    LONGEST = 1 << 20

    def __init__(self, connection: socket.socket):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(5)                        # for what is sent; the other end always reads
        self.connection, self.waiting, self.lock = connection, b"", threading.Lock()
        self.number: int | None = None                  # of the process, known once it has said hello
        self.who, self.heard, self.done = "", time.monotonic(), False

    def send(self, *message) -> None:
        """Send a line; to one that is gone, nothing: reading will tell."""
        try:
            with self.lock:
                self.connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            pass

    def receive(self) -> list | None:
        """The messages that have arrived; None at the end. Raises ValueError for what is none."""
        try:
            data = self.connection.recv(1 << 16)
        except TimeoutError:
            return []
        except OSError:
            return None
        if not data:
            return None
        self.heard = time.monotonic()
        *lines, self.waiting = (self.waiting + data).split(b"\n")
        if len(self.waiting) > self.LONGEST:
            raise ValueError("a line without end")
        messages = [json.loads(line) for line in lines]
        if not all([isinstance(m, list) and m and isinstance(m[0], str) for m in messages]):
            raise ValueError("not a message")
        return messages


def _let_go(end: socket.socket) -> None:
    """Close this process's copy of a socket, not the connection, which others have too."""
    try:
        os.close(end.detach())
    except OSError:
        pass


class Hub:
    """Process 0's side: knows all processes, and tells each what it must know of the others.

    server: the socket at which it listens. count: of processes. arrival: seconds within which all must come. silence: seconds after which
    one that says nothing is taken for dead.
    """
    def __init__(self, server: socket.socket, count: int, arrival: float, silence: float):
        self.server, self.count, self.arrival, self.silence = server, count, arrival, silence
        self.begun, self.interval = time.monotonic(), min(silence / 5, 1)
        self.peers: dict[int, _Peer] = {}
        self.meetings: dict[tuple, dict[int, str]] = {}
        self.started = self.ended = self.closed = False  # have all come; has one ended that shouldn't have; shall this thread end
        self.refusal: str | None = None
        self.address: str | None = None                 # of this machine, as others reach it
        self.selector = selectors.DefaultSelector()
        self.selector.register(server, selectors.EVENT_READ)
        self.wake, woken = socket.socketpair()
        self.selector.register(woken, selectors.EVENT_READ, "closed")
        os.register_at_fork(after_in_child=self._forget)
        self.thread = threading.Thread(target=self._run, name="mini_jax hub", daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Stop listening, and cut all links."""
        self.closed = True
        self.wake.send(b"!")
        self.thread.join(5)

    def _forget(self) -> None:
        """In a forked child, whose life must not keep links open."""
        for key in list(self.selector.get_map().values()):
            _let_go(key.fileobj)

    def _run(self) -> None:
        passed = looked = time.monotonic()
        while not self.closed:
            for key, _ in self.selector.select(self.interval if self.started else 0.1):
                if type(key.data) is _Peer:
                    self._read(key.data)
                elif key.data is None:
                    self._accept()
            now = time.monotonic()
            if now - passed > self.silence / 2:         # it is this process that stood still
                for peer in self.peers.values():
                    peer.heard = now
            passed = now
            if not (self.started or self.refusal) and now - self.begun > self.arrival:
                self._refuse(self._too_late(self.arrival))
            if now - looked > self.interval:
                looked = now
                self._look_round(now)
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()

    def _accept(self) -> None:
        try:
            connection, _ = self.server.accept()
        except OSError:
            return
        self.selector.register(connection, selectors.EVENT_READ, _Peer(connection))

    def _read(self, peer: _Peer) -> None:
        try:
            messages = peer.receive()
            for kind, *facts in messages or ():
                if peer.number is None and kind != "hello":
                    raise ValueError("no hello")
                getattr(self, f"_on_{kind}")(peer, *facts)
        except (ValueError, TypeError, AttributeError, KeyError):      # whoever that is, it is no process of ours
            messages = None
        if messages is None:
            self.selector.unregister(peer.connection)
            peer.connection.close()
            self._gone(peer)

    def _tell(self, numbers, *message) -> None:
        for number in numbers:
            if number in self.peers:
                self.peers[number].send(*message)

    def _look_round(self, now: float) -> None:
        """Who is silent?"""
        self._tell(self.peers, "alive")
        for number, peer in list(self.peers.items()):
            if self.started and not peer.done and now - peer.heard > self.silence:
                self._ended(number, f"has not been heard of for {self.silence:g} s: it has stopped, or its machine or the network is down")

    def _too_late(self, seconds: float) -> str:
        absent = set(range(self.count)) - set(self.peers)
        here = f"{named(self.peers)} {'is' if len(self.peers) == 1 else 'are'} here" if self.peers else "nobody is here"
        return f"of {self.count} processes, {named(absent)} {'has' if len(absent) == 1 else 'have'} not come within {seconds:g} s; {here}"

    def _refuse(self, why: str, *more: _Peer) -> None:
        """Nothing will come of this program: all who have come, and who still will, are told why."""
        self.refusal = why
        for peer in (*more, *[self.peers[number] for number in sorted(self.peers, reverse=True)]):       # process 0, which ends when it hears it, last
            peer.send("refused", why)
        self.peers = {}

    def _ended(self, number: int, how: str) -> None:
        """One process has ended, so all others must."""
        if not self.ended:
            self.ended = True
            others = sorted(set(self.peers) - {number}, reverse=True)       # process 0, which ends when it hears it, last
            self._tell(others, "ended", number, self.peers[number].who, how)

    def _gone(self, peer: _Peer) -> None:
        if peer.number is None or self.peers.get(peer.number) is not peer:
            return
        if self.started and not peer.done:
            self._ended(peer.number, "has ended without a word: it was killed, or it crashed")
        del self.peers[peer.number]

    # what processes say, by kind

    def _on_hello(self, peer: _Peer, protocol: int, number: int, count: int, who: str) -> None:
        peer.who = who
        if self.refusal:
            peer.send("refused", self.refusal)
        elif self.started:
            peer.send("refused", f"all {self.count} processes have come already; process_id {number} is taken")
        elif protocol != PROTOCOL:
            self._refuse(f"process {number} ({who}) runs another release of mini_jax than process 0", peer)
        elif count != self.count:
            self._refuse(f"process {number} ({who}) was told num_processes={count}, process 0 {self.count}: it must be the same for all", peer)
        elif number in self.peers:
            self._refuse(f"process_id {number} is used twice, by {self.peers[number].who} and by {who}: each process must have its own", peer)
        else:
            peer.number = number
            self.peers[number] = peer
            address = peer.connection.getsockname()[0].removeprefix("::ffff:")
            if self.address is None or not is_loopback(address):
                self.address = address
            if len(self.peers) == self.count:
                self.started = True
                self._tell(self.peers, "start")

    def _on_late(self, peer: _Peer, seconds: float) -> None:
        """One that has waited for so long doesn't wait any longer."""
        if not self.started:
            peer.send("refused", self.refusal or self._too_late(seconds))

    def _on_alive(self, peer: _Peer) -> None:
        pass                                            # that it has spoken is all

    def _on_service(self, peer: _Peer, port: int) -> None:
        self._tell(self.peers, "service", port)

    def _on_meet(self, peer: _Peer, numbers: list, count: int, what: str) -> None:
        """The count-th meeting of the processes `numbers`: once all have come, or two differ, those who are there hear what each has said."""
        key = (tuple(numbers), count)
        said = self.meetings.setdefault(key, {n: "nothing more, it has come to its end" for n in numbers if n not in self.peers or self.peers[n].done})
        said[peer.number] = what
        everyone, alike = len(said) == len(numbers), len(set(said.values())) == 1
        if everyone or not alike:
            self._tell(said, "met", numbers, count, None if alike else sorted(said.items()))
        if everyone:
            del self.meetings[key]

    def _on_absent(self, peer: _Peer, numbers: list, count: int) -> None:
        """Who has not come to a meeting?"""
        self._tell([peer.number], "absent", sorted(set(numbers) - set(self.meetings.get((tuple(numbers), count), numbers))))

    def _on_ask(self, peer: _Peer) -> None:
        """Where is everyone?"""
        self._tell([n for n in self.peers if n != peer.number], "ask", peer.number)

    def _on_answer(self, peer: _Peer, asker: int, where: str) -> None:
        self._tell([asker], "answer", peer.number, where)

    def _on_failed(self, peer: _Peer, why: str) -> None:
        self._ended(peer.number, f"has failed: {why}")
        peer.done = True

    def _on_done(self, peer: _Peer) -> None:
        peer.done = True
        for (numbers, count), said in list(self.meetings.items()):
            if peer.number in numbers and peer.number not in said:
                self._on_meet(peer, list(numbers), count, "nothing more, it has come to its end")
        if all([p.done for p in self.peers.values()]) and not self.ended:
            self._tell(self.peers, "over")


class Link:
    """A process's line to the hub, which a thread reads.

    connection: to the hub. on_end(number, who, how): called in that thread when another process has ended that shouldn't have.
    """

    def __init__(self, connection: socket.socket, number: int, count: int, silence: float, on_end: Callable[[int, str, str], None]):
        self.peer, self.silence, self.on_end = _Peer(connection), silence, on_end
        self.interval = min(silence / 5, 1)
        self.changed = threading.Condition()
        self.started = self.over = False
        self.failed = False                             # this process ends by its own fault, whatever becomes of the others
        self.refused: str | None = None
        self.service: int | None = None                 # the port of XLA's own service
        self.met: dict[tuple, Any] = {}                 # meetings that are over, until who waits has read it
        self.answers: dict[int, str] = {}               # where the others are
        self.absent: list[int] = []                     # who hasn't come to a meeting
        self.counts: dict[tuple, int] = {}              # of meetings, by who takes part
        os.register_at_fork(after_in_child=self._forget)
        self.peer.send("hello", PROTOCOL, number, count, f"pid {os.getpid()} on {socket.gethostname()}")
        threading.Thread(target=self._run, name="mini_jax link", daemon=True).start()

    def say(self, *message) -> None:
        """Tell the hub something."""
        self.peer.send(*message)

    def fail(self, why: str) -> None:
        """Tell all that this process has failed. It hears no more of their ends, which follow from its own."""
        self.failed = True
        self.say("failed", why)

    def _hear(self, number: int, who: str, how: str) -> None:
        """Another process has ended."""
        if not self.failed:
            self.on_end(number, who, how)

    def wait(self, ready: Callable[[], Any], seconds: float) -> bool:
        """Wait until ready() is true of what the hub has said. False if that takes longer. RuntimeError if the hub has refused."""
        with self.changed:
            found = self.changed.wait_for(lambda: ready() or self.refused, max(seconds, 0))
        if self.refused:
            raise RuntimeError(f"distributed.initialize: {self.refused}")
        return bool(found)

    def meet(self, numbers: tuple[int, ...], what: str, seconds: float) -> dict[int, str] | None:
        """Wait until the processes `numbers` have all come here with the same words. If words differ, what each of those said who have come.

        Raises TimeoutError, naming them, if some don't come in time."""
        with self.changed:
            count = self.counts[numbers] = self.counts.get(numbers, 0) + 1
        key = (numbers, count)
        self.say("meet", numbers, count, what)
        if not self.wait(lambda: key in self.met, seconds):
            self.say("absent", numbers, count)
            self.wait(lambda: self.absent, 2)
            absent = self.absent or numbers
            raise TimeoutError(f"{named(absent)} {'has' if len(absent) == 1 else 'have'} not come to {what} within {seconds:g} s. {self.everyone()}")
        said = self.met.pop(key)
        return None if said is None else dict(map(tuple, said))

    def everyone(self, seconds: float = 1.0) -> str:
        """Where the other processes are, as far as they answer."""
        self.answers = {}
        self.say("ask")
        time.sleep(seconds)
        return "; ".join([f"process {n} is {where}" for n, where in sorted(self.answers.items())]) or "The others don't answer."

    def close(self) -> None:
        """Cut it: what follows at the other end is no longer of interest here."""
        self.over = True
        try:
            self.peer.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def _forget(self) -> None:
        """In a forked child, whose life must not keep this link open."""
        _let_go(self.peer.connection)

    def _run(self) -> None:
        spoke = passed = time.monotonic()
        self.peer.connection.settimeout(self.interval)
        while True:
            try:
                messages = self.peer.receive()
                for kind, *facts in messages or ():
                    getattr(self, f"_on_{kind}")(*facts)
            except (ValueError, TypeError, AttributeError):
                messages = None
                self.refused = self.refused or "what answers there is no process of mini_jax"
            if messages is None:
                return self._cut_off()
            now = time.monotonic()
            if now - passed > self.silence / 2:         # it is this process that stood still
                self.peer.heard = now
            passed = now
            if now - spoke > self.interval:
                spoke = now
                self.say("alive")
            if self.started and now - self.peer.heard > self.silence:
                self._hear(0, "", f"has not been heard of for {self.silence:g} s: it has stopped, or its machine or the network is down")

    def _cut_off(self) -> None:
        """The hub is gone, and with it process 0."""
        with self.changed:
            if not self.started:
                self.refused = self.refused or "process 0 has ended before all processes had come"
            self.changed.notify_all()
        if self.started and not self.over:
            self._hear(0, "", "has ended without a word: it was killed, or it crashed")

    # what the hub says, by kind

    def _set(self, name: str, value) -> None:
        with self.changed:
            setattr(self, name, value)
            self.changed.notify_all()

    def _on_alive(self) -> None:
        pass

    def _on_start(self) -> None:
        self._set("started", True)

    def _on_refused(self, why: str) -> None:
        self._set("refused", why)

    def _on_service(self, port: int) -> None:
        self._set("service", port)

    def _on_over(self) -> None:
        self._set("over", True)

    def _on_met(self, numbers: list, count: int, said) -> None:
        with self.changed:
            self.met[tuple(numbers), count] = said
            self.changed.notify_all()

    def _on_absent(self, numbers: list) -> None:
        self._set("absent", numbers)

    def _on_ask(self, asker: int) -> None:
        self.say("answer", asker, whereabouts())

    def _on_answer(self, number: int, where: str) -> None:
        self.answers[number] = where

    def _on_ended(self, number: int, who: str, how: str) -> None:
        self._hear(number, f" ({who})" if who else "", how)


# --- the relay ---------------------------------------------------------------------------------------------------------------------------

def relay(host: str, port: int) -> int:
    """A port of this machine, behind which is host:port: it stays open when that goes away.

    XLA's client aborts the process, with a stack trace of its own, the moment that its connection to process 0 breaks. Behind the relay it
    does not notice; what is to be said then the watch says.
    """
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            near, _ = server.accept()
            try:
                far = socket.create_connection((host, port), 30)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            for origin, sink, last in ((near, far, True), (far, near, False)):
                sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=_pump, args=(origin, sink, last), name="mini_jax relay", daemon=True).start()
    threading.Thread(target=serve, name="mini_jax relay", daemon=True).start()
    return server.getsockname()[1]


def _pump(source: socket.socket, sink: socket.socket, close: bool) -> None:
    """Carry what arrives on one connection to the other; at the end close that, or leave it as it is."""
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
    except OSError:
        pass
    if close:
        for end in (sink, source):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
