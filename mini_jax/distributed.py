"""`jax.distributed`: several processes, each with devices of its own, as one program over all of them."""
from __future__ import annotations

from typing import Sequence

from mini_jax.runtime import clusters, joining, processes

__all__ = ["initialize", "is_initialized", "shutdown"]


def initialize(coordinator_address: str | None = None, num_processes: int | None = None, process_id: int | None = None,
               local_device_ids: int | Sequence[int] | None = None, cluster_detection_method: str | None = None, initialization_timeout: float = 300,
               heartbeat_timeout_seconds: float | None = None, shutdown_timeout_seconds: float | None = None, coordinator_bind_address: str | None = None,
               slice_index: int | None = None, partition_index: int | None = None, *, collective_timeout_seconds: float | None = None) -> None:
    """Join other processes; to be called in each of them, before anything is computed. Returns when all have come.

    After it `devices()` are those of all processes, `local_devices()` this one's, and pmap, shard_map and jit run over all of them, if every
    process calls the same functions in the same order. When a process ends by an error, dies or stops, the others end with an error that names it.

    coordinator_address: "host:port" of process 0, where it will listen. num_processes; process_id: this one's number, from 0 on. Where they
        are None: JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID of the environment (`python -m mini_jax launch` sets them),
        else what SLURM or Open MPI says.
    local_device_ids: which of its machine's devices this process uses (default: JAX_LOCAL_DEVICE_IDS, else all; of GPUs under SLURM and
        Open MPI, the one of its number on the machine).
    cluster_detection_method: "slurm", "ompi", "mpi4py" (which asks MPI), or "deactivate"; None: SLURM or Open MPI, where they are.
    initialization_timeout: seconds within which all must come.
    heartbeat_timeout_seconds: seconds of silence after which a process is taken for dead (default 100). One that dies closes
        its connections, and is noticed at once; this is for what stops without that.
    shutdown_timeout_seconds: how long a process waits at its end for the others' (default 300).
    collective_timeout_seconds: how long a program waits for what others send, or for them to come to it (default 1800).
        These three have defaults in the environment, too: JAX_HEARTBEAT_TIMEOUT_SECONDS and so on, or the same beginning with MINI_JAX_.
    coordinator_bind_address: where process 0 listens; default: at all addresses of its machine, or at its loopback address if that is given.
    slice_index, partition_index: for parts of TPU pods; they change nothing here.

    Raises ValueError for what is missing or out of range; RuntimeError, naming them, where processes don't come in time, are told different
    counts or have one number, or where devices are in use already; OSError where process 0 can't listen at its address.
    """
    place = clusters.place(clusters.Place(coordinator_address or None, num_processes, process_id, clusters.device_ids(local_device_ids)), cluster_detection_method)
    seconds = lambda value, name, default: next((v for v in (value, clusters.number(name, float)) if v is not None), default)
    limits = processes.Limits(seconds(initialization_timeout, "", 300), seconds(heartbeat_timeout_seconds, "HEARTBEAT_TIMEOUT_SECONDS", 100),
                              seconds(shutdown_timeout_seconds, "SHUTDOWN_TIMEOUT_SECONDS", 300),
                              seconds(collective_timeout_seconds, "COLLECTIVE_TIMEOUT_SECONDS", 1800))
    for name, value in limits._asdict().items():
        if not value > 0:
            raise ValueError(f"distributed.initialize: the limit of seconds of {name} must be positive, not {value}")
    joining.join(place, limits, coordinator_bind_address or clusters.variable("COORDINATOR_BIND_ADDRESS"))


def is_initialized() -> bool:
    """Has this process joined others?"""
    return processes.joined is not None


def shutdown() -> None:
    """Leave the others: wait until all processes have come to this point. It is called by itself at the end of each process.

    A process that has not joined any does nothing.
    """
    joining.leave()
