"""Clusters: what the environment of a process says about the program of several processes that it belongs to."""
from __future__ import annotations

import os
import re
import zlib
from typing import Any, Callable, NamedTuple, Sequence


class Place(NamedTuple):
    """A process's place among others. None: not known.

    address: "host:port" of process 0. count: of the processes; process: this one's number. devices: the numbers of the devices that it
    uses of those of its machine; "gpu": which of them, if they are GPUs, a cluster means for it.
    """
    address: str | None = None
    count: int | None = None
    process: int | None = None
    devices: tuple[int, ...] | None = None
    gpu: tuple[int, ...] | None = None


def variable(name: str) -> str | None:
    """The environment variable MINI_JAX_name, or JAX_name; None where neither is set."""
    return os.environ.get(f"MINI_JAX_{name}") or os.environ.get(f"JAX_{name}") or None


def number(name: str, kind: Callable[[str], Any] = int):
    """That variable as a number. Raises ValueError, naming it, where it is none."""
    text = variable(name)
    try:
        return None if text is None else kind(text)
    except ValueError:
        raise ValueError(f"the environment variable JAX_{name} (or MINI_JAX_{name}) must be a number, not {text!r}") from None


def by_variables() -> Place:
    """What JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID and JAX_LOCAL_DEVICE_IDS say, or the same beginning with MINI_JAX_."""
    ids = variable("LOCAL_DEVICE_IDS")
    try:
        devices = None if ids is None else tuple([int(part) for part in ids.split(",")])
    except ValueError:
        raise ValueError(f"the environment variable JAX_LOCAL_DEVICE_IDS must be numbers with commas between them, not {ids!r}") from None
    return Place(variable("COORDINATOR_ADDRESS"), number("NUM_PROCESSES"), number("PROCESS_ID"), devices)


# --- SLURM ----------------------------------------------------------------------------------------------------------------------------

def by_slurm() -> Place | None:
    """What srun says to each task of a step: process 0 is on the first node of the list. None outside of a step."""
    have = os.environ.get
    if not (have("SLURM_JOB_ID") and have("SLURM_PROCID")):
        return None
    nodes, count = have("SLURM_STEP_NODELIST") or have("SLURM_JOB_NODELIST"), have("SLURM_STEP_NUM_TASKS") or have("SLURM_NTASKS")
    if not nodes or not count:
        return None
    port = _port(f"{have('SLURM_JOB_ID')}.{have('SLURM_STEP_ID', '')}")
    return Place(f"{first_node(nodes)}:{port}", int(count), int(have("SLURM_PROCID")), None, _local(have("SLURM_LOCALID")))


def first_node(nodes: str) -> str:
    """The first of a list of nodes as SLURM writes it: "gpu[003-007,9],cpu1" → "gpu003"."""
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes).group())


# --- Open MPI --------------------------------------------------------------------------------------------------------------------------

def by_open_mpi() -> Place | None:
    """What mpirun of Open MPI says. Process 0 is taken to be on the machine where mpirun runs, as it is by default. None without mpirun."""
    have = os.environ.get
    if not (have("OMPI_COMM_WORLD_SIZE") and have("OMPI_COMM_WORLD_RANK")):
        return None
    uri = have("OMPI_MCA_orte_hnp_uri") or next((value for name, value in sorted(os.environ.items()) if name.startswith("PMIX_SERVER_URI")), "")
    count, address = int(have("OMPI_COMM_WORLD_SIZE")), None
    host = re.search(r"tcp4?://([\d.]+)", uri)
    if have("OMPI_COMM_WORLD_LOCAL_SIZE") == have("OMPI_COMM_WORLD_SIZE"):
        address = f"127.0.0.1:{_port(uri)}"
    elif host:
        address = f"{host[1]}:{_port(uri)}"
    return Place(address, count, int(have("OMPI_COMM_WORLD_RANK")), None, _local(have("OMPI_COMM_WORLD_LOCAL_RANK")))


def by_mpi4py() -> Place | None:
    """What any MPI says through the package mpi4py. None where that isn't installed."""
    try:
        from mpi4py import MPI
    except ImportError:
        return None
    world = MPI.COMM_WORLD
    address = world.bcast(f"{MPI.Get_processor_name()}:{_port(str(os.getpid()))}", root=0)
    near = world.Split_type(MPI.COMM_TYPE_SHARED)
    return Place(address, world.Get_size(), world.Get_rank(), None, (near.Get_rank(),))


def _local(rank: str | None) -> tuple[int, ...] | None:
    """Each process of one machine has the GPU of its own number."""
    return None if rank is None else (int(rank),)


def _port(job: str) -> int:
    """A port that all processes of a job choose alike, and different jobs not."""
    return 49152 + zlib.crc32(job.encode()) % 12000


# --- all of it -------------------------------------------------------------------------------------------------------------------------

METHODS: dict[str, Callable[[], Place | None]] = {"slurm": by_slurm, "ompi": by_open_mpi, "mpi4py": by_mpi4py}


def place(given: Place, method: str | None = None) -> Place:
    """A process's place: as given; else by the environment variables of jax; else by the cluster's.

    method: the one of METHODS to ask, "deactivate" for none; None: SLURM and Open MPI, where they are. Raises ValueError, saying what is
    missing and how to say it, where something remains unknown, and for numbers out of range.
    """
    if method not in (None, "deactivate", *METHODS):
        raise ValueError(f"cluster_detection_method can't be {method!r}: it may be {', '.join(map(repr, METHODS))}, 'deactivate' or None")
    found = _filled(given, by_variables())
    if method != "deactivate" and None in found[:3]:
        asked = [METHODS[method]()] if method else [by_slurm(), by_open_mpi()]
        if method and asked == [None]:
            raise ValueError(f"cluster_detection_method={method!r}, but nothing of it is to be seen in this process")
        for cluster in asked:
            if cluster is not None:
                found = _filled(found, cluster)
    missing = [name for name, value in zip(("coordinator_address", "num_processes", "process_id"), found) if value is None]
    if missing:
        raise ValueError(f"distributed.initialize: {', '.join(missing)} not known: pass {'it' if len(missing) == 1 else 'them'}, or set "
                         f"{', '.join([f'JAX_{name.upper()}' for name in missing])} in the environment, or start the program with "
                         "`python -m mini_jax launch -n 4 script.py`, srun or mpirun")
    _check(found)
    return found


def _filled(first: Place, second: Place) -> Place:
    return Place(*[b if a is None else a for a, b in zip(first, second)])


def _check(found: Place) -> None:
    for name, value in (("num_processes", found.count), ("process_id", found.process)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"distributed.initialize: {name} must be an int, not {value!r}")
    if found.count < 1:
        raise ValueError(f"distributed.initialize: num_processes is {found.count}; there must be one at least")
    if not 0 <= found.process < found.count:
        raise ValueError(f"distributed.initialize: process_id {found.process} is out of range: {found.count} processes have the numbers 0 to {found.count - 1}")
    split_address(found.address)
    ids = found.devices
    if ids is not None and (not ids or len(set(ids)) != len(ids) or min(ids) < 0):
        raise ValueError(f"distributed.initialize: local_device_ids {list(ids)} must be different numbers of devices, one at least, from 0 on")


def split_address(address: str) -> tuple[str, int]:
    """"host:port" → (host, port). Raises ValueError for what is none."""
    match = re.fullmatch(r"\[?([^\[\]]+?)\]?:(\d{1,5})", address) if isinstance(address, str) else None
    if match is None or not 0 < int(match[2]) < 65536:
        raise ValueError(f'distributed.initialize: an address must be "host:port", such as "10.0.0.1:1234", not {address!r}')
    return match[1], int(match[2])


def device_ids(ids: int | Sequence[int] | None) -> tuple[int, ...] | None:
    """local_device_ids as users write them. Raises TypeError for what are no ints."""
    if ids is None:
        return None
    ids = (ids,) if isinstance(ids, int) else tuple(ids)
    if not all([isinstance(i, int) and not isinstance(i, bool) for i in ids]):
        raise TypeError(f"distributed.initialize: local_device_ids must be an int or a sequence of ints, not {ids!r}")
    return ids
