"""Arrays: the Python half of jaxlib's array class, and moving values to and from devices.

C++ holds the buffers; what a user sees of an array, apart from arithmetic (that is the numpy library's), is set on the
class here.
"""
from __future__ import annotations

import operator
from typing import Any, Callable, NamedTuple

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.types import ShapedArray, array_type
from mini_jax.runtime import processes, xla
from mini_jax.runtime.devices import current_device, resolve
from mini_jax.runtime.memories import Space, TransferToMemoryKind, elsewhere, in_kind
from mini_jax.runtime.sharding import Index, device_list, on_device, python_half

ArrayImpl = xla.ArrayImpl


class _ArrayMeta(type):
    """isinstance by a list of classes: a fifth of abc.ABCMeta's time."""
    members: tuple[type, ...] = (ArrayImpl,)

    def __instancecheck__(cls, value):
        return isinstance(value, _ArrayMeta.members)

    def __subclasscheck__(cls, other):
        return other is cls or issubclass(other, _ArrayMeta.members)

    def register(cls, member: type) -> type:
        """Make instances of `member` Arrays."""
        if member not in _ArrayMeta.members:
            _ArrayMeta.members += (member,)
        return member


class Array(metaclass=_ArrayMeta):
    """An array on one or more devices, or a tracer standing for one: `isinstance(x, mini_jax.Array)`."""
    __slots__ = ()

    def __new__(cls, *args, **kwargs):
        raise TypeError("mini_jax.Array is for isinstance; make arrays with mini_jax.numpy.array or mini_jax.device_put")


class Shard(NamedTuple):
    """One device's part of an array.

    index: the part, as the slices that cut it from the whole; replica_id: 0 for the first copy of the part, 1 for the
    next, …; data: the part itself, an array on that device (None when the device belongs to another process).
    """
    device: xla.Device
    index: Index
    replica_id: int
    data: Any


def _scalar_only(self, convert):
    if self.ndim:
        raise TypeError(f"only arrays without dimensions convert to Python's {convert.__name__}; this has shape {self.shape}")
    return convert(self._value)


@python_half(ArrayImpl)
class _Array:
    __array_priority__ = 100
    __hash__ = None         # `==` is elementwise

    # C++ keeps the type; attrgetter keeps Python code out of the way of these
    shape = property(operator.attrgetter("aval.shape"), doc="The size of each dimension.")
    dtype = property(operator.attrgetter("aval.dtype"), doc="The type of the elements.")
    ndim = property(operator.attrgetter("aval.ndim"), doc="The number of dimensions.")
    size = property(operator.attrgetter("aval.size"), doc="The number of elements.")
    weak_type = property(operator.attrgetter("aval.weak_type"), doc="True when the dtype gives way in promotion.")
    sharding = property(operator.attrgetter("_sharding"), doc="Which device holds which part.")
    committed = property(operator.attrgetter("_committed"), doc="True when computations must stay on this array's devices.")
    itemsize = property(operator.attrgetter("aval.dtype.itemsize"), doc="Bytes of one element.")
    nbytes = property(lambda self: self.size * self.itemsize, doc="Bytes of all elements.")

    # -- the value, on the host --
    @property
    def _value(self) -> np.ndarray:
        """The whole array as a read-only NumPy array: a view where the device is the host, else a copy that is kept."""
        host = self._npy_value
        if host is None:
            check_alive(self)
            sharding = self._sharding
            with xla.spared_search:
                if sharding.num_devices == 1:
                    host, copied = self._single_device_array_to_np_array_did_copy()
                elif sharding.is_fully_replicated:
                    host, copied = self._fully_replicated_shard()._single_device_array_to_np_array_did_copy()
                else:
                    host, copied = _gather(self), True
            host.flags.writeable = False
            if copied:              # a view is not kept: while it lives, the buffer cannot be donated
                self._npy_value = host
        return host

    def __array__(self, dtype=None, copy=None):
        value = self._value
        if copy:
            return np.array(value, dtype=dtype)
        if dtype is None or dtype == value.dtype:
            return value
        if copy is False:
            raise ValueError(f"copy=False, but {value.dtype} → {np.dtype(dtype)} needs one")
        return value.astype(dtype)

    def __bool__(self):
        if self.size != 1:
            raise ValueError("the truth value of an array with more than one element is ambiguous: use a.any() or a.all()"
                             if self.size else "the truth value of an empty array is ambiguous: test a.size > 0")
        return bool(self._value)

    def __int__(self):
        return _scalar_only(self, int)

    def __float__(self):
        return _scalar_only(self, float)

    def __complex__(self):
        return _scalar_only(self, complex)

    def __index__(self):
        if self.ndim or not dtypes.is_integer(self.dtype):
            raise TypeError(f"only integer arrays without dimensions can be used as an index; this has type {self.aval}")
        return int(self._value)

    def __len__(self):
        if not self.ndim:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def item(self, *args):
        """The element (of several, the one `args` name) as a Python scalar."""
        return self._value.item(*args)

    def tolist(self):
        """The elements as nested lists of Python scalars."""
        return self._value.tolist()

    def tobytes(self, order="C"):
        """The elements' bytes."""
        return self._value.tobytes(order)

    # -- as text --
    def __repr__(self):
        if self.is_deleted():
            return f"Array(shape={self.shape}, dtype={self.dtype.name}, deleted)"
        if out_of_reach(self):
            return f"Array(shape={self.shape}, dtype={self.dtype.name}, on {len(self._sharding.device_set)} devices of several processes)"
        end = f"dtype={_dtype_name(self.dtype)}{', weak_type=True' if self.weak_type else ''})"
        if not self.size:
            return f"Array([], shape={self.shape}, {end}"
        body = np.array2string(self._value, prefix="Array(", suffix=",", separator=", ", threshold=np.get_printoptions()["threshold"])
        last = body[body.rfind("\n") + 1:] if "\n" in body else "Array(" + body
        gap = " " if len(last) + len(end) + 2 <= np.get_printoptions()["linewidth"] else "\n      "
        return f"Array({body},{gap}{end}"

    def __str__(self):
        return repr(self) if out_of_reach(self) else str(self._value)

    def __format__(self, spec):
        return repr(self) if out_of_reach(self) else format(self._value[()] if not self.ndim else self._value, spec)

    # -- where it is --
    @property
    def device(self):
        """The device, when there is one; the sharding, when there are several."""
        sharding = self._sharding
        return sharding._device if type(sharding) is xla.SingleDeviceSharding else sharding

    def devices(self):
        """The set of devices that hold a part."""
        return self._sharding.device_set

    @property
    def is_fully_addressable(self):
        """True when this process can read all of it."""
        return self._sharding.is_fully_addressable

    @property
    def is_fully_replicated(self):
        """True when every device holds the whole array."""
        return self._sharding.is_fully_replicated

    @property
    def addressable_shards(self):
        """The parts on this process's devices."""
        return [shard for shard in self.global_shards if shard.data is not None]

    @property
    def global_shards(self):
        """All parts; those on other processes' devices without data."""
        check_alive(self)
        sharding = self._sharding
        with xla.spared_search:
            data = dict(zip(sharding._addressable_device_assignment, self._arrays))
        part = array_type(sharding.shard_shape(self.shape), self.dtype, self.weak_type)
        seen: dict[Any, int] = {}
        out = []
        for device, index in sharding.devices_indices_map(self.shape).items():
            where = tuple((s.start, s.stop) for s in index)
            replica = seen[where] = seen.get(where, -1) + 1
            buffer = data.get(device)
            out.append(Shard(device, index, replica,
                             None if buffer is None else xla.array_from_shards(part, on_device(device, elsewhere(sharding)), [buffer], True)))
        return out

    def addressable_data(self, index: int):
        """The part on the `index`-th device of this process."""
        return self.addressable_shards[index].data

    device_buffer = property(lambda self: self.addressable_data(0), doc="The part on the first device of this process (an older name).")
    device_buffers = property(lambda self: [shard.data for shard in self.addressable_shards], doc="The parts on this process's devices (an older name).")

    def copy_to_host_async(self):
        """Start copying to the host; a later `np.asarray` then waits less."""
        check_alive(self)
        if self._npy_value is None:
            for shard in self._arrays:
                shard._copy_single_device_array_to_host_async()

    def __dlpack_device__(self):
        from_platform = {"cpu": 1, "cuda": 2, "rocm": 10}       # DLDeviceType
        device = self.device
        if not isinstance(device, xla.Device):
            raise BufferError("an array on several devices has no DLPack form: take one of its addressable_shards")
        return from_platform[device.client.platform_version.split()[0].lower()
                             if device.platform == "gpu" else device.platform], device.local_hardware_id or 0

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        check_alive(self)
        here = self.__dlpack_device__()
        if dl_device is not None and tuple(map(int, dl_device)) != here:
            raise BufferError(f"this array is on DLPack device {here}; move it with device_put first")
        array = xla.always_copy(self, device_list((self.device,)), self._sharding) if copy else self
        return xla.to_dlpack(array, stream, max_version)

    # -- copies --
    def __reduce__(self):
        return _unpickle, (np.asarray(self._value), self.weak_type)

    def __copy__(self):
        return self.copy()

    def __deepcopy__(self, memo):
        return self.copy()

    def copy(self):
        """A copy that shares no memory."""
        check_alive(self)
        if not self.is_fully_addressable:       # this process copies its parts
            parts = [xla.always_copy(part, device_list((part._sharding._device,)), part._sharding) for part in self._arrays]
            return xla.array_from_shards(self.aval, self._sharding, parts, self._committed)
        out = xla.always_copy(self, device_list(self._sharding._device_assignment), self._sharding)
        return out if out.aval is self.aval else xla.array_from_shards(self.aval, self._sharding, out._arrays, self._committed)


def _dtype_name(dtype) -> str:
    return dtype.name if dtype.names is None else str(dtype)


def _unpickle(host: np.ndarray, weak_type: bool):
    return put_host(host, array_type(host.shape, host.dtype, weak_type), on_device(current_device()), False)


def _gather(array: ArrayImpl) -> np.ndarray:
    """The whole of an array that is spread over devices."""
    if out_of_reach(array):
        raise RuntimeError(f"the value of {array!r} can't be read here: it spans non-addressable devices, which belong to other processes. Read this process's parts, "
                           "array.addressable_shards, or bring all of it to every process with experimental.multihost_utils.process_allgather(array, tiled=True)")
    buffers = array._arrays
    if buffers[0]._sharding._device.platform != "cpu":
        for buffer in buffers:
            buffer._copy_single_device_array_to_host_async()
    host = np.empty(array.shape, array.dtype)
    for buffer, index in zip(buffers, array._sharding.devices_indices_map(array.shape).values()):
        host[index] = buffer._single_device_array_to_np_array_did_copy()[0]
    return host


def out_of_reach(array: ArrayImpl) -> bool:
    """Has this process no way to read all of an array, since other processes have parts of which it has no copy?"""
    return not array._sharding.is_fully_addressable and not array._sharding.is_fully_replicated


def check_alive(array: ArrayImpl) -> None:
    if array.is_deleted():
        raise RuntimeError(f"Array has been deleted with shape={array.dtype.name}{list(array.shape)}. "
                           "It was donated to a jitted function, or its delete() was called.") from None


# ---- values to devices ---------------------------------------------------------------------------------------------------
def host_value(x) -> tuple[np.ndarray, bool]:
    """A Python scalar, NumPy scalar or NumPy array → (array in C order of a canonical dtype, whether it is weakly typed).

    float0 becomes bool, as in programs. Raises TypeError for what is no array, OverflowError for an int that does not fit.
    """
    if type(x) in dtypes.python_scalar_types:
        dtypes.check_scalar_range(x)
        dtype = dtypes.canonicalize(dtypes.python_scalar_types[type(x)])
        return np.array(x, dtype), type(x) is not bool
    host = np.asarray(x)
    dtype = dtypes.canonicalize(host.dtype if host.dtype.isnative else host.dtype.newbyteorder("="))
    if dtype == dtypes.float0:
        return np.zeros(host.shape, bool), False
    if dtype not in xla.VALID_DTYPES:
        raise TypeError(f"a value of type {type(x).__name__} with dtype {host.dtype} cannot be put on a device: "
                        "arrays hold numbers and booleans")
    if dtype is host.dtype and host.flags.c_contiguous:
        return host, False
    return np.ascontiguousarray(host, dtype).reshape(host.shape), False       # reshape: it makes scalars one-dimensional


def put_host(host: np.ndarray, type_: ShapedArray, sharding, committed: bool, *, copy: bool = True) -> ArrayImpl:
    """A host array onto the devices of `sharding`, each getting its part. copy=False may share the memory."""
    if type(sharding) is xla.SingleDeviceSharding and (processes.joined is None or sharding.is_fully_addressable):
        return xla.put(type_, sharding, [host], [sharding._device], committed, copy=copy)
    local = sharding._addressable_device_assignment
    if not local:
        raise ValueError(f"none of the devices of {sharding} is this process's own: it can put nothing there")
    index = sharding.devices_indices_map(type_.shape)
    parts = [host[index[device]] for device in local]
    if copy and not sharding.is_fully_replicated and (None in getattr(sharding, "dims", (None,)) or not host.size) and len({part.ctypes.data for part in parts}) < len(parts):
        # jaxlib fails ("bad_function_call") on some, but not all, parts being the same memory
        parts = [part.copy() for part in parts]
    return xla.put(type_, sharding, parts, list(local), committed, copy=copy)


def move(array: ArrayImpl, sharding, committed: bool) -> ArrayImpl:
    """An array onto other devices; buffers that are there already are shared, not copied."""
    check_alive(array)
    old = array._sharding
    with xla.spared_search:
        if old is sharding or old == sharding:
            return array if array._committed == committed else xla.array_from_shards(array.aval, sharding, array._arrays, committed)
        if type(old) is xla.SingleDeviceSharding and type(sharding) is xla.SingleDeviceSharding:
            moved = xla.copy_arrays([array], [device_list((sharding._device,))], [sharding])[0]
            return xla.array_from_shards(array.aval, sharding, moved._arrays, committed)
        same_memory = old.memory_kind == sharding.memory_kind
        if same_memory and old.device_set == sharding.device_set:
            if old.devices_indices_map(array.shape) == sharding.devices_indices_map(array.shape):    # only the order of the devices differs, or only the words
                by_device = dict(zip(old._addressable_device_assignment, array._arrays))
                return xla.array_from_shards(array.aval, sharding, [by_device[d] for d in sharding._addressable_device_assignment], committed)
        if same_memory and old.is_fully_replicated and type(sharding) is xla.SingleDeviceSharding:
            for device, buffer in zip(old._addressable_device_assignment, array._arrays):
                if device is sharding._device:
                    return xla.array_from_shards(array.aval, sharding, [buffer], committed)
    if out_of_reach(array):
        return _respread(array, sharding)
    return put_host(array._value, array.aval, sharding, committed)


_respread: Callable[[ArrayImpl, xla.Sharding], ArrayImpl] | None = None


def set_respreader(respread: Callable[[ArrayImpl, xla.Sharding], ArrayImpl]) -> None:
    """Name the function that spreads an array of several processes in another way, which takes a program: respread(array, sharding)."""
    global _respread
    _respread = respread


def device_put(x, device=None) -> ArrayImpl:
    """One value onto a device.

    x: an array, NumPy array, NumPy scalar or Python number. NumPy data is copied: what is written there later never shows.
    device: a Device, a platform name or a Sharding: the result is committed to it; a memory kind (Space, TransferToMemoryKind): that of the
    devices where x is. None: the default device, uncommitted; an array stays where it is.
    """
    if device is None:
        if type(x) is ArrayImpl:
            return x
        sharding, committed = on_device(current_device()), False
    else:
        if isinstance(device, (Space, TransferToMemoryKind)):
            device = in_kind(x._sharding if type(x) is ArrayImpl else on_device(current_device()), device)
        sharding, committed = device if isinstance(device, xla.Sharding) else on_device(resolve(device)), True
    if type(x) is ArrayImpl:
        return move(x, sharding, committed)
    if hasattr(x, "_put"):                      # an array of an extended dtype, which consists of one
        return x._put(device)
    host, weak_type = host_value(x)
    return put_host(host, array_type(host.shape, host.dtype, weak_type), sharding, committed)


def device_get(x):
    """An array → the NumPy array it holds (read-only). Anything else as it is."""
    return x._value if type(x) is ArrayImpl else x
