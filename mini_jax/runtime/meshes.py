"""Meshes: devices in a grid with named axes, and arrays spread over them by `PartitionSpec`s.

    mesh = make_mesh((4, 2), ("x", "y"))
    NamedSharding(mesh, P("x", None))        rows over the axis x, the same for all along y
"""
from __future__ import annotations

import enum
import functools
import math
import threading
from collections import OrderedDict
from contextlib import contextmanager
from typing import Any, Sequence

import numpy as np

from mini_jax.runtime import xla
from mini_jax.runtime.devices import devices as all_devices
from mini_jax.runtime.memories import elsewhere
from mini_jax.runtime.sharding import Index, device_list


class AxisType(enum.Enum):
    """Who decides how values are spread over an axis. Auto: XLA; Explicit: types; Manual: the program, inside shard_map."""
    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self):
        return self.name


class Mesh:
    """Devices in a grid whose axes have names.

    devices: an array of devices (or a list), with one dimension for each name of axis_names. As a context manager it is the mesh that
    PartitionSpecs alone refer to. Equal meshes have equal devices, names and types.
    Raises ValueError where names repeat or don't fit the number of dimensions.
    """
    __slots__ = ("devices", "axis_names", "axis_types", "_key", "_hash", "_saved", "__weakref__")

    def __init__(self, devices, axis_names, axis_types=None):
        if isinstance(devices, xla.Device):
            devices = [devices]
        devices = np.array(devices, dtype=object) if not isinstance(devices, np.ndarray) else devices.copy()
        names = (axis_names,) if isinstance(axis_names, str) or not isinstance(axis_names, (tuple, list)) else tuple(axis_names)
        if len(set(names)) != len(names):
            raise ValueError(f"Mesh: axis_names {names} repeat a name")
        if devices.ndim != len(names):
            raise ValueError(f"Mesh: devices have {devices.ndim} dimensions (shape {devices.shape}), but axis_names are {names}: one name for each")
        if len(set(devices.flat)) != devices.size:
            raise ValueError("Mesh: a device stands in it twice")
        types = (AxisType.Auto,) * len(names) if axis_types is None else (axis_types,) * len(names) if isinstance(axis_types, AxisType) else tuple(axis_types)
        if len(types) != len(names):
            raise ValueError(f"Mesh: axis_types {types} must have one entry for each of the axes {names}")
        devices.flags.writeable = False
        self.devices, self.axis_names, self.axis_types = devices, names, types
        self._key = (tuple(devices.flat), devices.shape, names, types)
        self._hash, self._saved = hash(self._key), []

    axis_sizes = property(lambda self: self.devices.shape)
    shape = property(lambda self: OrderedDict(zip(self.axis_names, self.devices.shape)), doc="name → size of each axis.")
    shape_tuple = property(lambda self: tuple(zip(self.axis_names, self.devices.shape)))
    size = property(lambda self: self.devices.size, doc="The number of devices.")
    empty = property(lambda self: self.devices.ndim == 0)
    abstract_mesh = property(lambda self: AbstractMesh(self.devices.shape, self.axis_names, self.axis_types))
    device_ids = property(lambda self: np.vectorize(lambda d: d.id, otypes=[int])(self.devices))
    local_devices = property(lambda self: [d for d in self.devices.flat if d.process_index == d.client.process_index()])
    is_multi_process = property(lambda self: len({d.process_index for d in self.devices.flat}) > 1)

    def __eq__(self, other):
        return self is other or type(other) is Mesh and self._key == other._key

    def __hash__(self):
        return self._hash

    def __reduce__(self):
        raise TypeError("a Mesh holds devices of this process and can't be pickled")

    def __enter__(self) -> "Mesh":
        self._saved.append(_current.mesh)
        _current.mesh = self
        return self

    def __exit__(self, *_):
        _current.mesh = self._saved.pop()

    def __repr__(self):
        types = "" if set(self.axis_types) <= {AxisType.Auto} else f", axis_types={self.axis_types}"
        return f"Mesh({', '.join(f'{name!r}: {size}' for name, size in self.shape_tuple)}{types})"


class AbstractMesh:
    """The names, sizes and types of a mesh's axes, without devices."""
    __slots__ = ("axis_sizes", "axis_names", "axis_types")

    def __init__(self, axis_sizes, axis_names=None, axis_types=None):
        if axis_names is None:                           # pairs (name, size)
            axis_names, axis_sizes = zip(*axis_sizes) if axis_sizes else ((), ())
        self.axis_sizes, self.axis_names = tuple(axis_sizes), tuple(axis_names)
        self.axis_types = (AxisType.Auto,) * len(self.axis_names) if axis_types is None else tuple(axis_types)

    shape = property(lambda self: OrderedDict(zip(self.axis_names, self.axis_sizes)))
    shape_tuple = property(lambda self: tuple(zip(self.axis_names, self.axis_sizes)))
    size = property(lambda self: math.prod(self.axis_sizes))
    empty = property(lambda self: not self.axis_names)

    def __eq__(self, other):
        return type(other) is AbstractMesh and (self.shape_tuple, self.axis_types) == (other.shape_tuple, other.axis_types)

    def __hash__(self):
        return hash((self.shape_tuple, self.axis_types))

    def __repr__(self):
        return f"AbstractMesh({', '.join(f'{name!r}: {size}' for name, size in self.shape_tuple)})"


class _Current(threading.local):
    mesh: Mesh | None = None


_current = _Current()


def current_mesh() -> Mesh | None:
    """The mesh of the innermost `with mesh:` or `set_mesh`."""
    return _current.mesh


def get_mesh() -> Mesh:
    """The mesh set by `set_mesh` or `with mesh:`. Raises ValueError where there is none."""
    if _current.mesh is None:
        raise ValueError("no mesh is set: use `with set_mesh(mesh):`")
    return _current.mesh


def get_abstract_mesh() -> AbstractMesh:
    """Names and sizes of the axes of the mesh that is set; an empty one where none is."""
    return AbstractMesh((), ()) if _current.mesh is None else _current.mesh.abstract_mesh


class set_mesh:
    """Make `mesh` the one that PartitionSpecs alone refer to: from now on, or as a context manager in its block."""
    __slots__ = ("mesh", "saved")

    def __init__(self, mesh: Mesh):
        if not isinstance(mesh, Mesh):
            raise TypeError(f"set_mesh takes a Mesh, got {mesh!r:.100}")
        self.mesh, self.saved = mesh, _current.mesh
        _current.mesh = mesh

    def __enter__(self) -> Mesh:
        return self.mesh

    def __exit__(self, *_):
        _current.mesh = self.saved


@contextmanager
def use_abstract_mesh(mesh: AbstractMesh):
    """A context without effect on programs here, whose meshes always have devices."""
    yield mesh


def make_mesh(axis_shapes: Sequence[int], axis_names: Sequence[str], axis_types=None, *, devices=None) -> Mesh:
    """A mesh of the given sizes and names, of `devices` (default: the first there are), in order.

    Raises ValueError where there are too few devices.
    """
    shape, count = tuple(axis_shapes), math.prod(axis_shapes)
    if len(shape) != len(tuple(axis_names)):
        raise ValueError(f"make_mesh: axis_shapes {shape} and axis_names {tuple(axis_names)} must have one length")
    given = all_devices() if devices is None else list(devices)
    if len(given) < count or devices is not None and len(given) != count:
        raise ValueError(f"make_mesh: a mesh of shape {shape} takes {count} devices, and there are {len(given)}"
                         + (f". To try it on CPU, set XLA_FLAGS=--xla_force_host_platform_device_count={count} before the first use of a device."
                            if given and given[0].platform == "cpu" and devices is None else ""))
    return Mesh(np.array(given[:count], dtype=object).reshape(shape), tuple(axis_names), axis_types)


# --- how an array is cut ------------------------------------------------------------------------------------------------------

class _Unconstrained:
    def __repr__(self):
        return "UNCONSTRAINED"

    def __reduce__(self):
        return "UNCONSTRAINED"


UNCONSTRAINED = _Unconstrained()


class PartitionSpec(tuple):
    """How the dimensions of an array are cut: for each, from the first on, None (not cut), the name of a mesh axis, a tuple of names
    (cut over all of them, the first one slowest), or UNCONSTRAINED. Dimensions beyond it are not cut."""
    __slots__ = ()
    UNCONSTRAINED = UNCONSTRAINED

    def __new__(cls, *partitions, unreduced=frozenset(), reduced=frozenset()):
        if unreduced or reduced:
            raise NotImplementedError("PartitionSpec: unreduced and reduced axes are not supported")
        return tuple.__new__(cls, [None if p == () else p[0] if isinstance(p, (tuple, list)) and len(p) == 1 else tuple(p) if isinstance(p, list) else p
                                   for p in partitions])

    def names(self) -> list:
        """All axes that it names."""
        return [name for entry in self for name in entry_names(entry)]

    def trimmed(self) -> tuple:
        """Without the None at its end, which say nothing."""
        entries = list(self)
        while entries and entries[-1] is None:
            entries.pop()
        return tuple(entries)

    def __eq__(self, other):
        return tuple.__eq__(self, other)

    __hash__ = tuple.__hash__

    def __add__(self, other):
        return PartitionSpec(*self, *other) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other):
        return PartitionSpec(*other, *self) if isinstance(other, tuple) else NotImplemented

    def __repr__(self):
        return f"PartitionSpec({', '.join(map(repr, self))})"

    __str__ = __repr__

    def __getnewargs__(self):
        return tuple(self)


def entry_names(entry) -> tuple:
    """The axes that an entry of a PartitionSpec names."""
    return () if entry is None or entry is UNCONSTRAINED else entry if isinstance(entry, tuple) else (entry,)


class NamedSharding(xla.GSPMDSharding):
    """An array spread over the devices of a mesh as a PartitionSpec says. Being a C++ GSPMDSharding it takes the dispatcher's fast path.

    Raises ValueError for axes that the mesh doesn't have or that the spec names twice.
    """

    def __init__(self, mesh: Mesh, spec: PartitionSpec, *, memory_kind: str | None = None, _logical_device_ids=None):
        if not isinstance(mesh, Mesh):
            raise TypeError(f"NamedSharding takes a Mesh first, got {mesh!r:.100}")
        if not isinstance(spec, PartitionSpec):
            raise TypeError(f"NamedSharding takes a PartitionSpec, got {spec!r:.100} of type {type(spec).__name__}")
        names = spec.names()
        unknown = [name for name in names if name not in mesh.axis_names]
        if unknown:
            raise ValueError(f"NamedSharding: {spec} names the axis {unknown[0]!r}, which {mesh} does not have")
        if len(set(names)) != len(names):
            raise ValueError(f"NamedSharding: {spec} names an axis twice")
        devices = tuple(mesh.devices.flat)
        super().__init__(device_list(devices), hlo_tiles(mesh, spec, len(spec)), memory_kind=memory_kind)
        here = devices[0].client.process_index()
        self.mesh, self.spec = mesh, spec
        self.is_fully_replicated = all([mesh.shape[name] == 1 for name in names])
        self._device_assignment = devices
        self._addressable_device_assignment = tuple([d for d in devices if d.process_index == here])
        self._hash = hash((mesh, spec.trimmed()))

    memory_kind = property(lambda self: self._memory_kind)

    def _to_xla_hlo_sharding(self, ndim: int) -> xla.HloSharding:
        return hlo_tiles(self.mesh, self.spec, ndim)

    def with_spec(self, spec) -> "NamedSharding":
        """The same mesh with another spec."""
        return NamedSharding(self.mesh, spec if isinstance(spec, PartitionSpec) else PartitionSpec(*spec), memory_kind=elsewhere(self))

    def update(self, *, spec=None, **_) -> "NamedSharding":
        return self if spec is None else self.with_spec(spec)

    def with_memory_kind(self, kind: str) -> "NamedSharding":
        """The same parts, in another memory of each device. ValueError, which names those there are, for a kind that they don't have."""
        return NamedSharding(self.mesh, self.spec, memory_kind=kind)

    def counts(self, ndim: int) -> list[int]:
        """Into how many parts each dimension is cut. ValueError where the spec has more entries than there are dimensions."""
        if len(self.spec.trimmed()) > ndim:
            raise ValueError(f"{self.spec} cuts {len(self.spec)} dimensions, but the array has {ndim}")
        sizes = self.mesh.shape
        out = [math.prod([sizes[name] for name in entry_names(entry)]) for entry in self.spec[:ndim]]
        return out + [1] * (ndim - len(out))

    def shard_shape(self, shape) -> tuple[int, ...]:
        """The shape of each device's part; ValueError where a dimension does not divide."""
        out = []
        for d, (size, n) in enumerate(zip(shape, self.counts(len(shape)))):
            if size % n:
                raise ValueError(f"{self}: dimension {d} of an array of shape {tuple(shape)} has size {size}, which can't be cut into {n} equal parts")
            out.append(size // n)
        return tuple(out)

    def devices_indices_map(self, shape) -> dict[xla.Device, Index]:
        """device → the part of an array of `shape` that it holds."""
        return dict(zip(self._device_assignment, _parts(self, tuple(shape))))

    def __eq__(self, other):
        return self is other or type(other) is NamedSharding and self._hash == other._hash and self.mesh == other.mesh and (
            self.spec.trimmed() == other.spec.trimmed() and self.memory_kind == other.memory_kind)

    def __hash__(self):
        return self._hash

    def __repr__(self):
        kind = elsewhere(self)
        return f"NamedSharding(mesh={self.mesh}, spec={self.spec}{f', memory_kind={kind}' if kind else ''})"


def replicated_over(mesh: Mesh) -> NamedSharding:
    """All of an array on each device of a mesh."""
    return NamedSharding(mesh, PartitionSpec())


@functools.lru_cache(maxsize=4096)
def _parts(sharding: NamedSharding, shape: tuple[int, ...]) -> tuple[Index, ...]:
    """The part of an array of `shape` on each device, in the order of the devices."""
    part, sizes = sharding.shard_shape(shape), sharding.mesh.shape
    out = []
    for place in np.ndindex(*sharding.mesh.devices.shape):
        at, index = dict(zip(sharding.mesh.axis_names, place)), [slice(None)] * len(shape)
        for d, entry in enumerate(sharding.spec[:len(shape)]):
            number = 0
            for name in entry_names(entry):
                number = number * sizes[name] + at[name]
            if part[d] != shape[d]:
                index[d] = slice(number * part[d], (number + 1) * part[d])
        out.append(tuple(index))
    return tuple(out)


@functools.lru_cache(maxsize=4096)
def hlo_tiles(mesh: Mesh, spec: PartitionSpec, ndim: int) -> xla.HloSharding:
    """XLA's form of a sharding: how often each dimension is cut, and the order in which devices take the tiles."""
    entries = [*spec[:ndim], *[None] * (ndim - len(spec))]
    place = {name: i for i, name in enumerate(mesh.axis_names)}
    order = [place[name] for entry in entries for name in entry_names(entry)]
    tiles = [math.prod([mesh.devices.shape[place[name]] for name in entry_names(entry)]) for entry in entries]
    if math.prod(tiles) == 1:
        return xla.HloSharding.replicate()
    whole = [i for i in range(len(mesh.axis_names)) if i not in order]
    copies = math.prod([mesh.devices.shape[i] for i in whole])
    sizes = list(mesh.devices.shape)
    if copies == 1:
        return xla.HloSharding.iota_tile(tiles, sizes, order + whole)
    return xla.HloSharding.iota_tile([*tiles, copies], sizes, order + whole, [xla.REPLICATED])


def spec_of(mesh: Mesh, hlo: Any, ndim: int) -> PartitionSpec | None:
    """The PartitionSpec over a mesh that is XLA's sharding `hlo` of an array of ndim dimensions; None where there is none."""
    if hlo.is_replicated() or not ndim:
        return PartitionSpec()
    tiles = np.full(hlo.tile_assignment_dimensions(), -1)
    tiles.flat[:] = hlo.tile_assignment_devices()
    spec = _spec(mesh, {int(device): index for index, device in np.ndenumerate(tiles)}, ndim)
    return spec if hlo_tiles(mesh, spec, ndim) == hlo else None


def sharding_of(mesh: Mesh, hlo: Any, ndim: int, others: Sequence[Mesh] = ()) -> NamedSharding:
    """XLA's sharding `hlo` of an array of ndim dimensions over a mesh; or over one of `others`, of the same devices in the same order; or over
    one with the mesh's axes cut into smaller ones, where XLA has cut dimensions by parts of an axis."""
    if hlo is None:
        return replicated_over(mesh)
    for mesh in (mesh, *others, _refined(mesh)):
        spec = spec_of(mesh, hlo, ndim)
        if spec is not None:
            return NamedSharding(mesh, spec)
    raise NotImplementedError(f"XLA spread a result over {mesh} in a way that no PartitionSpec says: {hlo}. Say how with out_shardings")


def over(sharding: NamedSharding, mesh: Mesh, ndim: int) -> NamedSharding | None:
    """A sharding over the same devices, in their own memory, as one whose mesh has them in the order of `mesh`; None where no PartitionSpec
    says so."""
    if elsewhere(sharding):
        sharding = NamedSharding(sharding.mesh, sharding.spec)
    devices = sharding.mesh.devices
    if devices is mesh.devices or tuple(devices.flat) == tuple(mesh.devices.flat):
        return sharding
    counts = tuple(sharding.counts(ndim))
    parts = sharding.devices_indices_map(counts)
    where = {i: tuple([s.start or 0 for s in parts[device]]) for i, device in enumerate(mesh.devices.flat)}
    for mesh in (mesh, _refined(mesh)):
        found = NamedSharding(mesh, _spec(mesh, where, ndim))
        if tuple(found.counts(ndim)) == counts and found.devices_indices_map(counts) == parts:
            return found
    return None


def _refined(mesh: Mesh) -> Mesh:
    """The mesh with each axis cut into axes whose sizes are prime."""
    sizes, names = [], []
    for name, size in mesh.shape_tuple:
        factors = [p for p in range(2, size + 1) for _ in range(_multiplicity(size, p)) if all([p % q for q in range(2, p)])]
        sizes += factors
        names += [f"{name}.{i}" for i in range(len(factors))]
    return Mesh(mesh.devices.reshape(sizes), tuple(names))


def _multiplicity(n: int, p: int) -> int:
    """How often p divides n."""
    return 0 if n % p else 1 + _multiplicity(n // p, p)


def _spec(mesh: Mesh, where: dict, ndim: int) -> PartitionSpec:
    """The spec that, if one does, puts tile where[i] of an array on the i-th device of a mesh."""
    number = np.arange(mesh.size).reshape(mesh.devices.shape)
    names: list[list] = [[] for _ in range(ndim)]
    for axis in sorted(range(number.ndim), key=lambda a: -_step(number, a, where, ndim)):
        dim = _moves(number, axis, where, ndim)
        if dim is not None:
            names[dim].append(mesh.axis_names[axis])
    return PartitionSpec(*PartitionSpec(*[None if not n else n[0] if len(n) == 1 else tuple(n) for n in names]).trimmed())


def _tile(number: np.ndarray, axis: int, where: dict) -> tuple:
    """The tiles of the first device and of its neighbour along an axis."""
    first = (0,) * number.ndim
    second = tuple([1 if i == axis else 0 for i in range(number.ndim)])
    return where[int(number[first])], where[int(number[second])]


def _moves(number: np.ndarray, axis: int, where: dict, ndim: int) -> int | None:
    """The dimension along which tiles go when devices go along a mesh axis."""
    if number.shape[axis] == 1:
        return None
    a, b = _tile(number, axis, where)
    return next((d for d in range(ndim) if a[d] != b[d]), None)


def _step(number: np.ndarray, axis: int, where: dict, ndim: int) -> int:
    """How far they go at each step: within one dimension, axes with longer steps come first."""
    d = _moves(number, axis, where, ndim)
    if d is None:
        return 0
    a, b = _tile(number, axis, where)
    return abs(b[d] - a[d])
