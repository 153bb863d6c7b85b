"""Platforms: which there are besides the CPU, found as PJRT plugins by their library files, which is the default, and how each starts.

A plugin is a package, known by an entry point of the group `jax_plugins` or by standing in the namespace package `jax_plugins`. What it
needs of Python it has from jax, so only its library is used: a shared object in the package's directory, loaded by jaxlib. Nothing of the
package is imported.
"""
from __future__ import annotations

import functools
import glob
import importlib
import os
import re
import sys
import warnings
from importlib.machinery import PathFinder
from typing import NamedTuple

from mini_jax.core import config
from mini_jax.runtime import xla

_ALIASES = {"gpu": ("cuda", "rocm")}                  # the platforms that a name may stand for; devices of all of them call theirs so
_FIRST = ("cuda", "rocm", "tpu")                      # the order in which a default is looked for; then other plugins, then the CPU


class Plugin(NamedTuple):
    """A platform that some package brings. source: what named it, for messages; library: its file, None where the package has none."""
    platform: str
    source: str
    library: str | None


# --- finding -----------------------------------------------------------------------------------------------------------------------------

@functools.cache
def plugins() -> dict[str, Plugin]:
    """The plugins that are installed, by platform.

    They are looked for in `PJRT_NAMES_AND_LIBRARY_PATHS` ("name:path,name:path"), in the entry points of the group `jax_plugins`, in the
    namespace package `jax_plugins` and, for TPUs, in `TPU_LIBRARY_PATH` and the package libtpu; the first that names a platform has it.
    """
    found: dict[str, Plugin] = {}

    def add(platform: str, source: str, library: str | None) -> None:
        if platform not in found or found[platform].library is None:
            found[platform] = Plugin(platform, source, library)

    variable = "PJRT_NAMES_AND_LIBRARY_PATHS"
    for pair in filter(None, os.environ.get(variable, "").split(",")):
        name, colon, path = pair.strip().partition(":")
        if not (name and path):
            raise RuntimeError(f"{variable}={os.environ[variable]!r}: {pair!r} is no pair name:path")
        add(name.lower(), variable, path)
    modules = _entry_points("jax_plugins")
    if directories := _directories("jax_plugins"):
        import pkgutil
        for entry in pkgutil.iter_modules(directories):
            modules.setdefault(f"jax_plugins.{entry.name}", entry.name)
    for module, name in modules.items():
        add(_platform(name), f"the plugin {module}", _library(_directories(module)))
    tpu = os.environ.get("TPU_LIBRARY_PATH")
    directories = _directories("libtpu")
    if tpu or directories:
        add("tpu", "TPU_LIBRARY_PATH" if tpu else "the package libtpu", tpu or _library(directories))
    return found


def _entry_points(group: str) -> dict[str, str]:
    """The names that installed packages have in a group of entry points, by the module that they stand for.

    Most often there is none, which looking at the files shows in a tenth of the time that importlib.metadata takes to be imported and to read them.
    """
    if all([os.path.isdir(place or ".") or not os.path.exists(place) for place in sys.path]):
        files = [os.path.join(place or ".", name, "entry_points.txt") for place in sys.path if os.path.isdir(place or ".")
                 for name in os.listdir(place or ".") if name.endswith((".dist-info", ".egg-info"))]
        if not any([_contains(file, group) for file in files]):
            return {}
    from importlib.metadata import entry_points
    return {point.value.partition(":")[0]: point.name for point in entry_points(group=group)}


def _contains(file: str, words: str) -> bool:
    try:
        with open(file, encoding="utf-8", errors="replace") as text:
            return words in text.read()
    except OSError:
        return False


def _platform(name: str) -> str:
    """xla_cuda13 → cuda: the platform that a plugin of this name is for."""
    return re.sub(r"^(xla|pjrt)_|(_?plugin)$|\d+$", "", re.sub(r"\d+$", "", name.lower().replace("-", "_"))) or name.lower()


def _directories(module: str) -> list[str]:
    """Where a package is, without importing it or those around it."""
    path, names = None, module.split(".")
    for i in range(len(names)):
        spec = PathFinder.find_spec(".".join(names[:i + 1]), path)
        path = None if spec is None else spec.submodule_search_locations
        if path is None:
            return []
    return list(path)


def _library(directories: list[str]) -> str | None:
    """The library in a plugin's package: of several that which is called after PJRT, or a plugin."""
    files = [file for directory in directories for ending in ("so", "dylib") for file in sorted(glob.glob(os.path.join(directory, f"*.{ending}")))]
    return next((file for file in files if re.search("pjrt|plugin|libtpu", os.path.basename(file))), files[0] if files else None)


# --- choosing -----------------------------------------------------------------------------------------------------------------------------

def platforms() -> tuple[str, ...]:
    """Names of the platforms that there are, the one to be the default first; cpu is always one.

    The option `platforms`, a comma-separated list (`config.update("jax_platforms", …)`, MINI_JAX_PLATFORMS, JAX_PLATFORMS), or the older
    `platform_name`, chooses and orders them; otherwise all plugins stand before the CPU. RuntimeError for a name of that list that no plugin has.
    """
    names = chosen()
    for name in names:
        if not _known(name):
            raise RuntimeError(f"unknown platform {name!r} in the option platforms (MINI_JAX_PLATFORMS, JAX_PLATFORMS) = "
                               f"{','.join(names)!r}; available: {', '.join(_all())}")
    return tuple(dict.fromkeys([*([exact(name) for name in names] or _all()), "cpu"]))


def chosen() -> list[str]:
    """The platforms that the options name, in order; none where they leave the choice."""
    text = config.options["platforms"].value or config.options["platform_name"].value or ""
    return [name.strip().lower() for name in text.split(",") if name.strip()]


def _all() -> list[str]:
    found = plugins()
    return [*[name for name in _FIRST if name in found], *sorted(set(found) - set(_FIRST)), "cpu"]


def _known(name: str) -> bool:
    return name == "cpu" or exact(name) in plugins()


def exact(name: str) -> str:
    """The platform that a name stands for here: cuda, for gpu, where there is its plugin."""
    return next((p for p in _ALIASES.get(name, ()) if p in plugins()), name)


# --- starting -----------------------------------------------------------------------------------------------------------------------------

def find(name: str | None):
    """The client of a platform, or of the default one: the first that starts, where no option names any, else the first named."""
    if name is not None:
        name = name.lower()
        if not _known(name):
            raise RuntimeError(f"unknown backend {name!r}: available are {', '.join(platforms())}")
        return _start(exact(name))
    order = platforms()
    if chosen():
        return _start(order[0])
    for platform in order[:-1]:
        if platform == "tpu" and not _tpu_chips():
            continue
        try:
            return _start(platform)
        except RuntimeError as error:
            warnings.warn(f"{error}\nThe next platform is used. MINI_JAX_PLATFORMS=cpu, for instance, chooses without trying.", stacklevel=4)
    return _start("cpu")


xla.set_client_finder(find)


def _tpu_chips() -> bool:
    """Are there any? libtpu, asked to start without, waits for minutes."""
    return bool(glob.glob("/dev/accel*") or glob.glob("/dev/vfio/[0-9]*"))


def _start(platform: str):
    if platform == "cpu":
        count = config.options["num_cpu_devices"].value
        return xla.start("cpu", lambda **options: xla.make_cpu_client(**{**({"num_devices": count} if count > 0 else {}), **options}))
    return xla.start(platform, lambda **options: _start_plugin(plugins()[platform], **options))


def _start_plugin(plugin: Plugin, **options):
    """Load a plugin's library and make its client. RuntimeError, which names plugin and library, where that fails."""
    where = f"the platform {plugin.platform} ({plugin.source}, library {plugin.library})"
    if plugin.library is None:
        raise RuntimeError(f"the platform {plugin.platform}: {plugin.source} has no library (*.so) in its directory; install it anew")
    if not os.path.exists(plugin.library):
        raise RuntimeError(f"{where}: there is no such file")
    release, ours = _release(plugin), xla.jaxlib.__version__
    if release is not None and _numbers(release) < _numbers(ours):                  # loaded, it may end the process
        raise RuntimeError(f"{where} is of release {release}, older than jaxlib's, {ours}, and would not work with it: install equal ones")
    if plugin.platform == "cuda":
        _preload_nvidia()
    if plugin.platform in ("cuda", "rocm"):
        options = _gpu_options(plugin.platform) | options
    try:
        return xla.plugin_client(plugin.platform, plugin.library, options, _extension(plugin))
    except xla.XlaRuntimeError as error:
        hint = "it is no PJRT plugin: a library of one has a function GetPjrtApi" if "GetPjrtApi" in str(error) else \
            "" if release in (None, ours) else f"the plugin is of release {release}, jaxlib of {ours}: install equal ones"
        raise RuntimeError(f"{where} did not start: {error}{'; ' + hint if hint else ''}") from None


def _extension(plugin: Plugin):
    """The module that lets foreign functions be registered with a GPU's plugin (`ffi`): of jax-cuda13-plugin for jax_plugins.xla_cuda13."""
    package = re.search(r"xla_(\w+)$", plugin.source)
    try:
        return package and importlib.import_module(f"jax_{package[1]}_plugin.{plugin.platform}_plugin_extension")
    except ImportError:
        return None


def _release(plugin: Plugin) -> str | None:
    """The release of the package jax-cuda13-pjrt that brings jax_plugins.xla_cuda13, and the like."""
    from importlib.metadata import PackageNotFoundError, version             # see plugins()
    package = re.search(r"xla_(\w+)$", plugin.source)
    try:
        return package and version(f"jax-{package[1]}-pjrt")
    except PackageNotFoundError:
        return None


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", release)[:3]))


def _gpu_options(platform: str) -> dict:
    """The options of a GPU client: jaxlib's, by the environment (XLA_PYTHON_CLIENT_PREALLOCATE, XLA_CLIENT_MEM_FRACTION, …), and which devices."""
    visible = config.options[f"{platform}_visible_devices"].value
    options = xla.gpu_options() | {"platform_name": platform}
    if visible not in (None, "", "all"):
        try:
            options["visible_devices"] = [int(number) for number in visible.split(",")]
        except ValueError:
            raise RuntimeError(f"the option {platform}_visible_devices={visible!r} must be comma-separated numbers, or 'all'") from None
    return options


_NVIDIA = "cudart nvrtc nvJitLink cublasLt cublas nccl cupti cusparse cusolver cufft nvshmem_host cudnn".split()


def _preload_nvidia() -> None:
    """Load CUDA's libraries where pip has put them (nvidia/*/lib), in the order in which they need each other: the plugin finds those then."""
    import ctypes
    directories = _directories("nvidia")
    for name in _NVIDIA:
        for directory in directories:
            for file in sorted(glob.glob(os.path.join(directory, "*", "lib", f"lib{name}.so.*"))):
                try:
                    ctypes.CDLL(file)
                except OSError as error:
                    warnings.warn(f"a CUDA library does not load: {error}", stacklevel=2)
