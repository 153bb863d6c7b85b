"""The launcher: `python -m mini_jax launch -n 4 script.py …` runs a program as several processes of this machine that work together.

Each process finds in its environment what `distributed.initialize()` needs. What they print appears line by line, with the number of the process
before it. When one fails all are ended, and none outlives the launcher.
"""
from __future__ import annotations

import argparse
import ctypes
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time

from mini_jax.runtime.processes import ENDED, named

GRACE, TERMINATION = 2.0, 5.0           # seconds: for the others to end by themselves; after SIGTERM, until SIGKILL
_LIBC = ctypes.CDLL(None)
# Gloo reports each connection, by threads that write through each other.
_GLOO = re.compile(rb"(?=.*(?:\[Gloo\]|peer ranks))(?:\[Gloo\] Rank |\d+| is connected to | peer ranks\. Expected number of connected peer ranks is : |\s)+")


def add_to(commands) -> None:
    """The words of the command line."""
    parser = commands.add_parser("launch", help="run a script as several processes of this machine that work together",
                                 description="Run a script, which calls distributed.initialize() without arguments, as several processes of this machine. What they "
                                             "print is shown with their numbers; when one fails all are ended, and the exit status is that one's.")
    parser.add_argument("-n", "--processes", type=_positive, required=True, metavar="N", help="how many processes")
    parser.add_argument("--devices", type=_positive, metavar="D", help="with D CPU devices each")
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is the name of a module")
    parser.add_argument("script", metavar="SCRIPT", help="a Python file, or with -m a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT", help="its arguments")


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def launch(options) -> int:
    """Run it; the exit status of the process that failed, 128 + the signal's number for one that was killed; 0 if all ended well."""
    if not options.module and not os.path.isfile(options.script):
        print(f"python -m mini_jax launch: there is no file {options.script}", file=sys.stderr)
        return 2
    command = [sys.executable, *(["-m"] if options.module else []), options.script, *options.arguments]
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    return _Processes(command, options.processes, address, options.devices).run()


def environment(number: int, count: int, address: str, devices: int | None) -> dict[str, str]:
    """The environment of one process."""
    out = dict(os.environ) | {"PYTHONUNBUFFERED": "1"}
    for name, value in (("COORDINATOR_ADDRESS", address), ("NUM_PROCESSES", count), ("PROCESS_ID", number)):
        out[f"JAX_{name}"] = out[f"MINI_JAX_{name}"] = str(value)
    if "JAX_HEARTBEAT_TIMEOUT_SECONDS" not in out:
        out.setdefault("MINI_JAX_HEARTBEAT_TIMEOUT_SECONDS", "20")
    if devices:
        for name in ("JAX_NUM_CPU_DEVICES", "MINI_JAX_NUM_CPU_DEVICES"):       # which would go before XLA's flag
            out.pop(name, None)
        flags = re.sub(r"--xla_force_host_platform_device_count=\d+", "", out.get("XLA_FLAGS", ""))
        out["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={devices}".strip()
    return out


class _Processes:
    """The processes, their output and their end."""

    def __init__(self, command: list[str], count: int, address: str, devices: int | None):
        self.selector, self.signal, self.failed = selectors.DefaultSelector(), 0, None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        self.running: dict[int, subprocess.Popen] = {}
        self.lines: dict = {}                           # of each pipe what has come of a line
        for i in range(count):
            child = subprocess.Popen(command, env=environment(i, count, address, devices), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     start_new_session=True, preexec_fn=_die_with_parent)
            self.running[i] = child
            for pipe, out in ((child.stdout, sys.stdout.buffer), (child.stderr, sys.stderr.buffer)):
                os.set_blocking(pipe.fileno(), False)
                self.selector.register(pipe, selectors.EVENT_READ, (b"[%d] " % i, out))
                self.lines[pipe] = b""

    def _on_signal(self, number, frame) -> None:
        self.signal = number

    def run(self) -> int:
        """Show what they print until all have ended, and see to it that they do. The exit status."""
        pids, status, told = [child.pid for child in self.running.values()], {}, set()
        end = None                                      # when all shall have ended by themselves
        try:
            while self.running or self.selector.get_map() and time.monotonic() < end + 1:
                self._show(0.1)
                for i, child in list(self.running.items()):
                    if child.poll() is not None:
                        status[i] = self.running.pop(i).returncode
                now = time.monotonic()
                if self.signal and self.signal not in told:
                    self._tell(self.signal, told)
                    end = now + GRACE
                if self.failed is None and not told:    # else it is this launcher that has ended them
                    self._blame({i: s for i, s in status.items() if s})
                if end is None and (any(status.values()) or not self.running):
                    end = now + GRACE
                for wait, number in ((0, signal.SIGTERM), (TERMINATION, signal.SIGKILL)):
                    if end is not None and now > end + wait and number not in told:
                        self._tell(number, told)
        except BrokenPipeError:                         # nobody reads what we print
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self.signal = signal.SIGPIPE
        finally:
            for pid in pids:                            # whoever they have started goes too
                _signal(pid, signal.SIGKILL)
        if self.signal:
            return 128 + self.signal
        if self.failed is not None:
            return status[self.failed] if status[self.failed] > 0 else 128 - status[self.failed]
        return ENDED if any(status.values()) else 0

    def _blame(self, bad: dict[int, int]) -> None:
        """Say which process has failed first: not one that ended because another had."""
        guilty = [i for i, s in bad.items() if s != ENDED]
        if guilty:
            i = self.failed = next((i for i in guilty if bad[i] < 0), guilty[0])
            how = f"was killed by {signal.Signals(-bad[i]).name}" if bad[i] < 0 else f"has failed with exit status {bad[i]}"
            more = f"; {named(self.running)} {'is' if len(self.running) == 1 else 'are'} ended" if self.running else ""
            print(f"mini_jax launch: process {i} {how}{more}", file=sys.stderr, flush=True)

    def _tell(self, number: int, told: set) -> None:
        """Send a signal to those who run."""
        told.add(number)
        for child in self.running.values():
            _signal(child.pid, number)

    def _show(self, seconds: float) -> None:
        """Print the lines that come within so many seconds at most."""
        for key, _ in self.selector.select(seconds) if self.selector.get_map() else [] if time.sleep(seconds) else []:
            pipe, (prefix, out) = key.fileobj, key.data
            data = pipe.read(1 << 16)
            if data is None:
                continue
            *lines, rest = (self.lines[pipe] + data).split(b"\n")
            if not data:
                self.selector.unregister(pipe)
                pipe.close()
                lines, rest = [rest] if rest else [], b""
            self.lines[pipe] = rest
            shown = [line for line in lines if not _GLOO.fullmatch(line)]
            if shown:
                out.write(b"".join([prefix + line + b"\n" for line in shown]))
                out.flush()


def _signal(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass


def _die_with_parent() -> None:
    """In a child before its program: the kernel kills it when the launcher dies, however that is."""
    if sys.platform == "linux":
        _LIBC.prctl(1, signal.SIGKILL)                  # PR_SET_PDEATHSIG
