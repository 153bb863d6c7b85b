"""The cache on disk: what XLA made of programs, kept between processes, so that a second start of a program compiles nothing.

It is in use where `config.compilation_cache_dir` (or the environment's MINI_JAX_COMPILATION_CACHE_DIR) names a directory. Two kinds of
files lie there, each named by a digest of all that decides what is in it (and, for each script, a list of what to load ahead: ahead.py):

    NAME-DIGEST.code      an executable, without what only a reader needs (lean.py) if that is worth while, and whole. Digest: of the program's
                          text without places, and of `xla.fingerprint`: devices, replicas and partitions, compiler options and XLA's flags
                          as XLA itself holds them, jaxlib; and of this processor.
    NAME-DIGEST.known     of a recorded program the digest of its text, and which inputs the text keeps, so that a program known already
                          is neither outlined nor written. Digest: of the program itself, `lowering.digest`, where the proof stands.

Processes don't wait for each other: a file is written under another name and renamed, which is atomic, so a reader sees all of it or nothing,
and of two that write the same one wins, which is as good. Nothing is locked, so nothing can stay locked. A file begins with its checksum;
one that is damaged is removed, with a warning, and made anew. Where `compilation_cache_max_size` bounds the directory, files used last stay.

Executables are code, so a directory in which another user could have put one is refused: it, and each file, must belong to this user or to
root and be writable by no one else. A directory that can't be read or written, is full, slow or gone costs one warning: programs are
compiled. Programs that call Python functions are not stored, since those are addresses in one process.
"""
from __future__ import annotations

import functools
import os
import re
import stat
import struct
import threading
import time
import warnings
from typing import Callable, NamedTuple, Sequence

from lowering.digest import blake2b
from mini_jax.core import config
from mini_jax.runtime import xla
from mini_jax.runtime.ahead import LARGE, Ahead, Use
from mini_jax.runtime.lean import lean

_MAGIC = b"mini_jax stored 1\n"
_FORM = b"lean 1"                   # of what is in .code files and how it was made: whoever changes that changes this, and old files are not found
_HEAD = struct.Struct("<dI")        # seconds that it took to compile, and the bytes of what is lean (0: there is nothing), which comes before the whole
_SUFFIXES = (".code", ".known", ".ahead")
_TEMPORARY = ".writing"
_PATIENCE = 2.0                     # seconds that the disk may take, all in all, before it must have saved more than that
_ABANDONED = 3600.0                 # seconds after which a file that someone was writing is nobody's

_options = config.options
_enabled, _path, _bound = _options["enable_compilation_cache"], _options["compilation_cache_dir"], _options["compilation_cache_max_size"]
_least_seconds, _least_bytes = _options["persistent_cache_min_compile_time_secs"], _options["persistent_cache_min_entry_size_bytes"]
_raising = _options["raise_persistent_cache_errors"]


class Refused(Exception):
    """Why a directory, or a file in it, is not to be used."""


# --- directories --------------------------------------------------------------------------------------------------------------


class _Directory:
    """A directory that is, or was, fit to be used.

    counted, stored: bytes in it when this process last looked (None: it never did), and those that it has added since.
    waited, worth: seconds that the disk took, and seconds of compilation that what was read spared, or what was written will.
    """

    def __init__(self, path: str):
        """Raises Refused, or OSError where it can't be made or looked at."""
        if "://" in path:
            raise Refused("only directories of this machine's file system will do")
        self.path = path = os.path.abspath(os.path.expanduser(path))
        self.reading = self.writing = True
        self.counted, self.stored, self.ahead = None, 0, Ahead(self.read, self.write)
        self.waited, self.worth = 0.0, 0.0
        os.makedirs(path, mode=0o700, exist_ok=True)
        found = os.stat(path)
        if not stat.S_ISDIR(found.st_mode):
            raise Refused("it is not a directory")
        _refuse_strangers(found, "it", f"chmod go-w {path}")

    def read(self, name: str, key: bytes) -> bytes | None:
        """What is stored as `name` for `key`, or None. A damaged file is removed, with a warning."""
        path = os.path.join(self.path, name)
        try:
            with open(path, "rb") as file:
                _refuse_strangers(os.fstat(file.fileno()), name, f"chmod go-w {path}")
                content = file.read()
        except FileNotFoundError:
            return None
        head = len(_MAGIC) + 32
        if content[:len(_MAGIC)] == _MAGIC and content[len(_MAGIC):head] == _digest(content[head:]) and content[head:head + len(key)] == key:
            if _bound.value >= 0:
                try:
                    os.utime(path)                           # it was used last
                except OSError:                              # not ours
                    pass
            return content[head + len(key):]
        self.discard(name, "it is damaged")
        return None

    def write(self, name: str, key: bytes, content: bytes) -> None:
        content = key + content
        content = _MAGIC + _digest(content) + content
        if 0 <= _bound.value < len(content):
            return
        import tempfile                          # who has no cache needn't import it: 10 ms
        handle, temporary = tempfile.mkstemp(_TEMPORARY, dir=self.path)
        try:
            with open(handle, "wb") as file:
                file.write(content)
            os.replace(temporary, os.path.join(self.path, name))
        except BaseException:
            try:
                os.unlink(temporary)
            except OSError:
                pass
            raise
        self.stored += len(content)
        if _bound.value >= 0 and (self.counted is None or self.counted + self.stored > _bound.value or self.stored * 16 > _bound.value):
            self.trim(_bound.value)

    def discard(self, name: str, why: str) -> None:
        _warn(f"{name} in {self.path} is not used: {why}. It is removed and the program compiled")
        try:
            os.unlink(os.path.join(self.path, name))
        except OSError:
            pass

    def trim(self, bound: int) -> None:
        """Remove what was used longest ago, until an eighth of the bound is free if it is exceeded."""
        found, now = [], time.time()
        with os.scandir(self.path) as entries:
            for entry in entries:
                try:
                    if entry.name.endswith(_SUFFIXES):
                        facts = entry.stat(follow_symlinks=False)
                        found.append((facts.st_mtime_ns, facts.st_size, entry.path))
                    elif entry.name.endswith(_TEMPORARY) and now - entry.stat(follow_symlinks=False).st_mtime > _ABANDONED:
                        os.unlink(entry.path)
                except OSError:                              # another process was faster
                    pass
        total = sum([size for _, size, _ in found])
        if total > bound:
            for _, size, path in sorted(found):
                if total <= bound - bound // 8:
                    break
                try:
                    os.unlink(path)
                except FileNotFoundError:                    # likewise
                    pass
                except OSError:                              # not ours
                    continue
                total -= size
        self.counted, self.stored = total, 0

    def fails(self, why: str, *, reading: bool = True) -> None:
        """Use it no more, or no more for writing, and say so once."""
        self.writing, self.reading = False, self.reading and not reading
        _warn(f"the cache of compiled programs in {self.path} is {'not used' if reading else 'not written to'} any more: {why}. Programs are compiled")

    def slow(self) -> bool:
        """Does it cost more than it saves?"""
        return self.waited > _PATIENCE and self.waited > self.worth


def _refuse_strangers(found: os.stat_result, what: str, cure: str) -> None:
    """Raise Refused unless this user or root alone can have written it."""
    if hasattr(os, "geteuid"):
        if found.st_uid not in (os.geteuid(), 0):
            raise Refused(f"{what} belongs to another user, whose programs would be run; use a directory of your own")
        if found.st_mode & 0o022:
            raise Refused(f"{what} can be written by others, whose programs would be run; say `{cure}` if nobody has put any there")


_lock = threading.Lock()
_directories: dict[str, _Directory | None] = {}              # None: refused


def _directory() -> _Directory | None:
    """The directory to be used now, if there is one."""
    path = _path.value
    if not path or not _enabled.value:
        return None
    found = _directories.get(path, _directories)
    if found is _directories:
        with _lock:
            found = _directories.get(path, _directories)
            if found is _directories:
                found, why = None, None
                try:
                    found = _Directory(path)
                except (Refused, OSError) as error:
                    why = error
                _directories[path] = found
                if why is not None:
                    _warn(f"the cache of compiled programs in {path} is not used: {why}")
    return found


def _warn(text: str) -> None:
    if _raising.value:
        raise RuntimeError(text)
    warnings.warn(text, stacklevel=2)


_path.watch(_directories.clear)                              # who sets it again has mended what was wrong


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=32).digest()


# --- executables ----------------------------------------------------------------------------------------------------------------


class Code(NamedTuple):
    """An executable, loaded; and a function that loads one of the same program that is whole, to be shown (None: it is whole itself)."""
    loaded: xla.LoadedExecutable
    whole: Callable[[], xla.LoadedExecutable] | None = None


def load(text_digest: bytes, name: str, devices: Sequence[xla.Device], options: dict | None, counts: dict[str, int],
         compile: Callable[[], xla.LoadedExecutable]) -> tuple[Code, bool | None]:
    """The executable of a program: the stored one, or what `compile()` makes, which is stored. And whether it was there; None: no cache.

    text_digest: of the program's text without places. options, counts: those of `xla.compile`.
    """
    directory = _directory()
    if directory is None or not directory.reading:
        return Code(compile()), None
    sorted_options, sorted_counts = tuple(sorted((options or {}).items())), tuple(sorted(counts.items()))
    key = _digest(_FORM + text_digest + xla.fingerprint(tuple(devices), sorted_counts, options) + processor())
    file = f"{_plain(name)}-{key.hex()}.code"
    use = Use(file, tuple([device.id for device in devices]), sorted_options, sorted_counts)
    _attempt(directory, lambda: directory.ahead.begin(devices[0].client, lambda use, devices: _loaded(directory, use, devices, asked=False)))
    found = directory.ahead.take(use) or _loaded(directory, use, devices)
    if found is not None:
        directory.worth += found.seconds
        if found.size >= LARGE:
            _attempt(directory, lambda: directory.ahead.used(use), writing=True)
        return found.code, True
    start = time.perf_counter()
    loaded = compile()
    seconds = time.perf_counter() - start
    directory.worth += seconds
    if directory.writing and seconds >= _least_seconds.value:
        try:
            code = xla.serialize_executable(loaded)
        except (xla.XlaRuntimeError, RuntimeError, NotImplementedError):         # not all that XLA makes can be written down
            return Code(loaded), False
        if len(code) >= _least_bytes.value:
            import zlib
            loads = lean(code) if devices[0].platform == "cpu" else None
            shorter = b"" if loads is None else zlib.compress(loads, 1)
            content = _HEAD.pack(seconds, len(shorter)) + shorter + zlib.compress(code, 1)
            _attempt(directory, lambda: directory.write(file, key, content), writing=True)
            if len(loads or code) >= LARGE and directory.writing:
                _attempt(directory, lambda: directory.ahead.used(use), writing=True)
    return Code(loaded), False


class _Found(NamedTuple):
    """A stored executable, the seconds that it took to compile, and the bytes that it was loaded from."""
    code: Code
    seconds: float
    size: int


def _loaded(directory: _Directory, use: Use, devices: Sequence[xla.Device], *, asked: bool = True) -> _Found | None:
    """What is stored; None if it is not there, or can't be used. asked: somebody needs it, so XLA knows the foreign functions that it calls
    (LAPACK's, say, which lowering makes known); else it may come too early, and a failure says nothing about the file."""
    import zlib
    content = _attempt(directory, lambda: directory.read(use.file, bytes.fromhex(use.file[-69:-5])))
    if content is None:
        return None

    def made(code: bytes) -> xla.LoadedExecutable:
        return xla.deserialize_executable(code, devices, options=dict(use.options), **dict(use.counts))
    try:
        seconds, size = _HEAD.unpack_from(content)
        content = content[_HEAD.size:]
        code = zlib.decompress(content[:size] if size else content)
        whole = functools.cache(lambda: made(zlib.decompress(content[size:]))) if size else None
        return _Found(Code(made(code), whole), seconds, len(code))
    except (xla.XlaRuntimeError, ValueError, RuntimeError, zlib.error, struct.error) as error:
        if asked:
            directory.discard(use.file, f"XLA can't load it ({str(error).splitlines()[0]:.200})")
        return None


def _attempt(directory: _Directory, act: Callable[[], bytes | None], *, writing: bool = False) -> bytes | None:
    """Do something with the disk; what goes wrong there ends the use of the directory with a warning, and nothing else."""
    start, result = time.perf_counter(), None
    try:
        result = act()
    except Refused as error:
        directory.fails(str(error))
    except OSError as error:
        directory.fails(f"it can't be {'written' if writing else 'read'} ({error.strerror or error})", reading=not writing or not os.path.isdir(directory.path))
    directory.waited += time.perf_counter() - start
    if directory.reading and directory.slow():
        directory.fails(f"its disk took {directory.waited:.1f} s, more than it saves")
    return result


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "_", name)[:64]


@functools.cache
def processor() -> bytes:
    """What of this machine decides how code for its processors looks, as far as the operating system tells: model, features, and how many."""
    import platform
    facts = [platform.machine(), platform.system(), str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
             os.environ.get("NPROC", "")]
    try:
        with open("/proc/cpuinfo") as file:
            first = file.read(1 << 14).split("\n\n")[0]
        facts += [line for line in first.splitlines() if line.split(":")[0].strip() in ("vendor_id", "cpu family", "model", "model name", "stepping",
                                                                                           "flags", "Features", "CPU implementer", "CPU part")]
    except OSError:
        facts.append(platform.processor())
    return _digest("\n".join(facts).encode())


# --- programs that are known ----------------------------------------------------------------------------------------------------------


class Known(NamedTuple):
    """Of a recorded program: the digest of its text, which constants and inputs that keeps, and compiler options chosen for it."""
    text_digest: bytes
    kept_consts: tuple[bool, ...]
    kept: tuple[bool, ...]
    options: dict


def in_use() -> bool:
    """Is there a cache on disk?"""
    directory = _directory()
    return directory is not None and directory.reading


def known(digest: bytes, name: str) -> Known | None:
    """What is known of the program with this digest."""
    import json
    directory = _directory()
    content = _attempt(directory, lambda: directory.read(f"{_plain(name)}-{digest.hex()}.known", digest))
    if content is None:
        return None
    consts, kept, options = json.loads(content[32:])
    return Known(content[:32], tuple(map(bool, consts)), tuple(map(bool, kept)), options)


def make_known(digest: bytes, name: str, facts: Known) -> None:
    """Store what is known of a program."""
    directory = _directory()
    if directory is not None and directory.writing:
        import json
        content = facts.text_digest + json.dumps([list(map(int, facts.kept_consts)), list(map(int, facts.kept)), facts.options]).encode()
        _attempt(directory, lambda: directory.write(f"{_plain(name)}-{digest.hex()}.known", digest, content), writing=True)
