"""Laws of several processes: what they compute together is what one computes alone, and none waits for ever for one that has gone."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import mini_jax as jax
from mini_jax import numpy as jnp
from mini_jax.experimental import io_callback, multihost_utils
from mini_jax.runtime import clusters
from mini_jax.runtime.processes import ENDED
from mini_jax.sharding import PartitionSpec as P
from tests.conftest import FLAGS
from tests.process_checks import W, X, step

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 120                                             # seconds: for everything that a test starts


def start(*arguments, **variables):
    """A Python, with nothing of the tests' own settings but what makes compiling quick, and these environment variables."""
    variables.setdefault("XLA_FLAGS", " ".join([f"--{flag}={value}" for flag, value in FLAGS.items()]))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "MINI_JAX_", "XLA_", "SLURM_", "OMPI_"))}
    return subprocess.Popen([sys.executable, *map(str, arguments)], cwd=ROOT, env=environment | {name: str(v) for name, v in variables.items()},
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


class Ended:
    """A process that has ended: what it said, its exit status, and when that was."""

    def __init__(self, process):
        try:
            self.text, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            self.text = f"still running after {LIMIT} s: {process.communicate()[0]}"
        self.status, self.at = process.returncode, time.time()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def launch(count, *arguments, devices=1, **variables):
    return start("-m", "mini_jax", "launch", "-n", count, "--devices", devices, *arguments, **variables)


# --- values ----------------------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def results():
    """What the checks gave in each of two processes with two devices each."""
    done = Ended(launch(2, "tests/process_checks.py", devices=2))
    assert done.status == 0, done.text
    found = [dict(json.loads(line) for line in re.findall(rf"^\[{i}\] (\[\".*)$", done.text, re.MULTILINE)) for i in range(2)]
    assert found[0].keys() == found[1].keys() and len(found[0]) > 30
    return found


@pytest.fixture(scope="module")
def alone():
    """The same by one process, with four devices."""
    total, each = jax.pmap(lambda w, x: step(w, x, "i"), "i", in_axes=(None, 0))(W, X)
    return np.asarray(total), np.asarray(each)


def close(value, wanted):
    np.testing.assert_allclose(value, wanted, rtol=2e-5, atol=2e-6)


def each(results, name):
    """(process, result) of a check that must not have failed."""
    for me, found in enumerate(results):
        assert not (isinstance(found[name], dict) and "error" in found[name]), found[name]
        yield me, found[name]


def refused(results, name, kind, *words):
    """All processes have the error, in words that help."""
    for found in results:
        assert found[name]["error"] == kind, found[name]
        for word in words:
            assert word in found[name]["text"], found[name]


def test_each_process_knows_its_place_and_all_devices(results):
    for me, found in each(results, "facts"):
        assert found == [me, 2, [0, 1], 4, 2, [0, 0, 1, 1], [1, 1], True]
    for me, found in each(results, "older_names"):
        assert found == [[me, 2, [0, 1], [0, 0]], ["DeprecationWarning"] * 4]


def test_a_pmap_of_each_process_s_own_rows_is_the_pmap_of_all(results, alone):
    x = X
    for _ in range(3):
        x = step_of_all(x)[1] * np.float32(0.1)
    for me, (total, rows) in each(results, "pmap_twice"):
        close(total, alone[0][:2])
        close(rows, alone[1][2 * me:2 * me + 2])
    for me, (rows, addressable, shape) in each(results, "pmap_of_what_pmap_returned"):
        close(rows, x[2 * me:2 * me + 2])
        assert addressable and shape == [2, 3]
    for me, mean in each(results, "pmap_shared_result"):
        close(mean, X.mean(0))


def step_of_all(x):
    total = np.tanh(x * W).sum()
    return total, x * 2 + total + np.arange(4)[:, None]


def test_the_gradient_through_a_pmap_is_that_of_all_processes_losses(results):
    gradient = jax.grad(lambda w: jnp.tanh(X * w).sum())(W)
    for _, found in each(results, "pmap_gradient"):
        close(found, 2 * gradient)                      # each process returns the total: twice the loss


def test_nested_pmaps_multiply_within_each_process(results):
    for me, (total, own, index) in each(results, "pmap_nested"):
        close(total, np.broadcast_to(X.sum(0), (1, 2, 3)))
        close(own, np.broadcast_to(X[2 * me:2 * me + 2].sum(0), (1, 2, 3)))
        assert index == [[10 * me, 10 * me + 1]]
    for me, own in each(results, "pmap_of_this_process_alone"):
        close(own, np.broadcast_to(X[2 * me:2 * me + 2].sum(0), (2, 3)))


def test_pmap_over_processes_says_what_it_cannot(results):
    refused(results, "pmap_inside_jit", "NotImplementedError", "call it by itself", "devices=jax.local_devices()", "shard_map")
    refused(results, "pmap_of_too_many", "ValueError", "needs 4 devices in each", "process 0 has 2")


def test_shard_map_and_jit_over_the_mesh_of_all_are_those_of_one_process(results, alone):
    for _, found in each(results, "shard_map_in_and_outside_of_jit"):
        for total, rows in found:
            close(total, alone[0][0])
            close(rows, alone[1])
    for _, (total, product, as_asked) in each(results, "jit_over_a_mesh"):
        close(total, alone[0][0])
        close(product, X @ X.T)
        assert as_asked
    for _, (element, values) in each(results, "operations_one_by_one"):
        close(values, np.sin(X) * 2 + X.sum())
        close(element, (np.sin(X) * 2 + X.sum())[3, 1])
    w = W
    for _ in range(5):
        w = w - 0.1 * 2 / 4 * X.T @ (X @ w - 1)
    for _, found in each(results, "gradient_and_loop"):
        close(found, w)


def test_programs_need_not_be_waited_for(results):
    x = X.astype(float)
    for _ in range(60):
        x = x + x.sum() * 1e-4
        x = x - x.mean()
    for me, (total, y) in each(results, "many_programs_on_their_way"):
        close(total, (x * x).sum())
        close(y, X[2 * me:2 * me + 2] + 30 * np.arange(2 * me, 2 * me + 2)[:, None])


def test_an_array_of_several_processes_says_what_can_be_had_of_it(results):
    for me, (shape, addressable, *texts, shards, own) in each(results, "what_an_array_says"):
        assert shape == [4, 3] and not addressable and set(texts) == {"Array(shape=(4, 3), dtype=float32, on 4 devices of several processes)"}
        assert shards == [[0, 0, 0, me != 0], [0, 1, 0, me != 0], [1, 2, 0, me != 1], [1, 3, 0, me != 1]]
        close(own, X[2 * me:2 * me + 2, None])
    for me, own in each(results, "a_copy"):
        close(own, X[2 * me:2 * me + 2, None])
    for _, values in each(results, "respread"):
        close(values, X)
    refused(results, "reading_what_is_elsewhere", "RuntimeError", "spans non-addressable devices", "addressable_shards", "process_allgather")
    refused(results, "moving_what_is_elsewhere", "ValueError", "addressable_shards", "process_allgather")


def test_arrays_are_made_of_what_each_process_has(results):
    for _, (values, replicas) in each(results, "made_by_callback"):
        close(values, X)
        assert len(replicas) == 2
    for _, values in each(results, "put_alike"):
        close(values, X)
    for _, values in each(results, "data_as_large_as_the_whole"):
        close(values, X + np.array([0, 0, 1, 1])[:, None])
    refused(results, "data_of_no_size_that_fits", "ValueError", "dimension 0 of the data has size 3", "has 4", "hold 2")
    refused(results, "put_differing", "RuntimeError", "process 0: device_put a float32[4, 3]", "must be the same for all", "make_array_from_process_local_data")
    refused(results, "numpy_for_in_shardings", "ValueError", "(2, 3)", "make_array_from_process_local_data")


def test_programs_that_differ_are_noticed_before_they_run_and_nothing_is_broken(results):
    refused(results, "differing_programs", "RuntimeError", "process 0: run jit_<lambda> of (f32[4,3])", "process 1: run jit_<lambda>", "must not depend on the process")
    for _, found in each(results, "after_that"):
        close(found, X.max())


def test_what_python_returns_to_a_program_is_on_all_devices_of_all_processes(results):
    for _, total in each(results, "python_called_by_a_program"):
        close(total, X.sum())
    mesh = jax.make_mesh((4,), ("d",))
    f = jax.jit(lambda x: io_callback(lambda value: np.float32(value.sum()), jax.ShapeDtypeStruct((), "float32"), x))
    close([shard.data for shard in f(jax.device_put(X, jax.NamedSharding(mesh, P("d")))).addressable_shards], np.full(4, X.sum()))


def test_debug_nans_looks_at_each_process_s_parts(results):
    refused(results, "nans_here_and_there", "FloatingPointError", "jit_<lambda>")


def test_multihost_utils_bring_to_all_what_one_or_all_have(results):
    for _, found in each(results, "broadcast"):
        assert found == [[0, 1, 2], 0.0, True, [True, False], [False, True], [1, 2]]      # to the bit: of -0.0 the sign
    for _, found in each(results, "allgather"):
        assert found == [[[0, 1], [1, 2]], [0, 1, 1, 2], [0.0, 1.0], [0, 1]]
    for _, found in each(results, "local_and_global"):
        assert found == [[[8, 2], True], [[4, 4], True], [[4, 4], True], [[8, 2], True]]
    assert [list(each(results, name)) for name in ("waiting", "equal")] == [[(0, None), (1, None)]] * 2
    refused(results, "broadcast_of_none", "ValueError", "is_source is true in none")
    refused(results, "allgather_of_other_shapes", "RuntimeError", "process 0: process_allgather a tree", "float32[2]", "float32[3]")
    refused(results, "waiting_elsewhere", "AssertionError", "process 0: sync_global_devices 'place 0'; process 1: sync_global_devices 'place 1'")
    refused(results, "unequal", "AssertionError", "the seeds differ: process 0 has {'a'", "process 1 has")


def test_a_process_alone_does_it_all_with_itself():
    tree = {"a": np.arange(3), "b": 2.0}
    assert jax.tree.all(jax.tree.map(np.array_equal, multihost_utils.broadcast_one_to_all(tree), tree))
    assert multihost_utils.process_allgather(np.arange(3)).tolist() == [[0, 1, 2]]
    assert multihost_utils.process_allgather(np.arange(3), tiled=True).tolist() == [0, 1, 2]
    multihost_utils.sync_global_devices("alone")
    multihost_utils.assert_equal(tree)
    mesh = jax.make_mesh((4,), ("d",))
    whole = multihost_utils.host_local_array_to_global_array(tree, mesh, {"a": P(), "b": P()})
    assert whole["a"].sharding.mesh == mesh and multihost_utils.global_array_to_host_local_array(whole, mesh, P())["a"].tolist() == [0, 1, 2]
    assert not jax.distributed.is_initialized()
    jax.distributed.shutdown()


def test_the_same_training_gives_the_same_losses_on_one_device_eight_two_times_four_and_two_processes():
    done = Ended(start("-m", "mini_jax.examples.one_to_many", "--steps", 6))
    assert done.status == 0, done.text
    losses = np.array([line.split()[1:] for line in re.findall(r"^ +\d+  .*$", done.text, re.MULTILINE)], float)
    assert losses.shape == (6, 5) and losses[0, 0] > 2.2 and losses[-1, 0] < losses[0, 0] - 0.2
    np.testing.assert_allclose(losses, np.repeat(losses[:, :1], 5, 1), rtol=2e-5)


# --- coming together ---------------------------------------------------------------------------------------------------------------------

JOIN = """
import json, sys
import mini_jax as jax
jax.distributed.initialize(**json.loads(sys.argv[1]))
print("joined")
"""


@pytest.fixture(scope="module")
def meetings():
    """Processes that can't come together, all at once: name -> those that have ended, in order of their numbers."""
    taken = socket.create_server(("127.0.0.1", 0))
    stranger = socket.create_server(("127.0.0.1", 0))
    stranger.settimeout(2 * LIMIT)

    def join(port, count, number, seconds=LIMIT, **more):
        return start("-c", JOIN, json.dumps({"coordinator_address": f"127.0.0.1:{port}", "num_processes": count, "process_id": number, "initialization_timeout": seconds} | more))
    a, b, c = free_port(), free_port(), free_port()
    running = {
        "absent": [join(a, 4, 0, 6), join(a, 4, 2, LIMIT)],
        "counts": [join(b, 2, 0), join(b, 3, 1)],
        "twice": [join(c, 3, 0), join(c, 3, 1), join(c, 3, 1)],
        "taken": [join(taken.getsockname()[1], 2, 0)],
        "unreachable": [join(free_port(), 2, 1, 1)],
        "stranger": [join(stranger.getsockname()[1], 2, 1)],
        "devices": [join(free_port(), 1, 0, local_device_ids=[0, 3])],
        "alone": [join(free_port(), 1, 0, local_device_ids=0)]}
    connection, _ = stranger.accept()
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    found = {name: [Ended(process) for process in processes] for name, processes in running.items()}
    for server in (taken, stranger, connection):
        server.close()
    return found


@pytest.mark.parametrize("name, kind, words", [
    ("absent", "RuntimeError", r"of 4 processes, processes 1 and 3 have not come within 6 s; processes 0 and 2 are here"),
    ("counts", "RuntimeError", r"process 1 \(pid \d+ on .*\) was told num_processes=3, process 0 2"),
    ("twice", "RuntimeError", r"process_id 1 is used twice, by pid \d+ on \S+ and by pid \d+ on"),
    ("taken", "OSError", r"process 0 can't listen at 127.0.0.1:\d+: Address already in use.*choose another port in coordinator_address"),
    ("unreachable", "RuntimeError", r"process 1 can't reach process 0 at 127.0.0.1:\d+: Connection refused"),
    ("stranger", "RuntimeError", r"what answers there is no process of mini_jax"),
    ("devices", "ValueError", r"local_device_ids \[0, 3\], but this process has 1 CPU device")])
def test_processes_that_can_t_come_together_say_why_and_who(meetings, name, kind, words):
    for process in meetings[name]:
        assert process.status == 1 and f"{kind}: " in process.text and re.search(words, process.text, re.DOTALL), process.text
        assert "Fatal" not in process.text and "stack trace" not in process.text, process.text


def test_one_process_may_join_itself(meetings):
    assert [(p.status, p.text) for p in meetings["alone"]] == [(0, "joined\n")]


def test_initialize_comes_before_all_else_and_knows_what_it_needs(monkeypatch):
    jnp.zeros(1)
    with pytest.raises(RuntimeError, match="must be called before anything is computed"):
        jax.distributed.initialize("127.0.0.1:1234", 2, 0)
    with pytest.raises(ValueError, match="process_id 2 is out of range: 2 processes have the numbers 0 to 1"):
        jax.distributed.initialize("127.0.0.1:1234", 2, 2)
    with pytest.raises(ValueError, match='an address must be "host:port"'):
        jax.distributed.initialize("127.0.0.1", 2, 0)
    with pytest.raises(ValueError, match=r"num_processes, process_id not known: .*JAX_NUM_PROCESSES.*mini_jax launch"):
        jax.distributed.initialize("127.0.0.1:1234")
    with pytest.raises(ValueError, match="local_device_ids.*different numbers"):
        jax.distributed.initialize("127.0.0.1:1234", 2, 0, [0, 0])
    with pytest.raises(ValueError, match="limit of seconds of silence must be positive"):
        jax.distributed.initialize("127.0.0.1:1234", 2, 0, heartbeat_timeout_seconds=0)
    monkeypatch.setenv("JAX_NUM_PROCESSES", "many")
    with pytest.raises(ValueError, match="JAX_NUM_PROCESSES.*must be a number, not 'many'"):
        jax.distributed.initialize("127.0.0.1:1234")


# --- what the environment says -----------------------------------------------------------------------------------------------------------

@pytest.fixture
def variables(monkeypatch):
    """Sets environment variables; those of clusters are gone before."""
    for name in list(os.environ):
        if name.startswith(("JAX_", "MINI_JAX_", "SLURM_", "OMPI_", "PMIX_")):
            monkeypatch.delenv(name)
    return lambda **values: [monkeypatch.setenv(name, value) for name, value in values.items()]


def test_arguments_go_before_variables_and_those_before_the_cluster(variables):
    variables(SLURM_JOB_ID="17", SLURM_PROCID="5", SLURM_NTASKS="6", SLURM_JOB_NODELIST="n1", SLURM_LOCALID="1", JAX_NUM_PROCESSES="4", MINI_JAX_PROCESS_ID="3",
              JAX_PROCESS_ID="2", JAX_LOCAL_DEVICE_IDS="2,3")
    found = clusters.place(clusters.Place("host:80"))
    assert found == ("host:80", 4, 3, (2, 3), None)
    assert clusters.place(clusters.Place(None, 8, None, (0,)))[1:] == (8, 3, (0,), (1,))
    with pytest.raises(ValueError, match="coordinator_address not known"):
        clusters.place(clusters.Place(), "deactivate")
    with pytest.raises(ValueError, match="cluster_detection_method can't be 'pbs'"):
        clusters.place(clusters.Place(), "pbs")


@pytest.mark.parametrize("nodes, first", [("gpu[003-007,9],cpu1", "gpu003"), ("n1", "n1"), ("b,a", "b"), ("r[0-3]n[00-11]-ib,x", "r0n00-ib"), ("a-[3,1]", "a-3")])
def test_slurm_s_first_node_has_process_0(variables, nodes, first):
    variables(SLURM_JOB_ID="17", SLURM_STEP_ID="0", SLURM_PROCID="5", SLURM_STEP_NUM_TASKS="6", SLURM_STEP_NODELIST=nodes, SLURM_LOCALID="1")
    found = clusters.place(clusters.Place())
    host, port = clusters.split_address(found.address)
    assert (host, *found[1:]) == (first, 6, 5, None, (1,)) and 1024 < port < 65536
    variables(SLURM_STEP_ID="1")
    assert clusters.place(clusters.Place()).address != found.address          # two steps of a job at once don't meet


def test_mpi4py_is_asked_where_that_is_wanted(variables, monkeypatch):
    class World:
        bcast, Get_size, Get_rank = staticmethod(lambda value, root: "n0:50000"), staticmethod(lambda: 3), staticmethod(lambda: 2)
        Split_type = staticmethod(lambda kind: World)
    mpi = types.SimpleNamespace(MPI=types.SimpleNamespace(COMM_WORLD=World, COMM_TYPE_SHARED=0, Get_processor_name=lambda: "n2"))
    monkeypatch.setitem(sys.modules, "mpi4py", mpi)
    assert clusters.place(clusters.Place(), "mpi4py") == ("n0:50000", 3, 2, None, (2,))


@pytest.mark.parametrize("uri, local, host", [
    ({"OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911"}, "2", "10.96.0.1"),
    ({"PMIX_SERVER_URI41": "prterun-n1-4711@0.0;tcp4://10.0.0.7:41234"}, "2", "10.0.0.7"), ({}, "4", "127.0.0.1")])
def test_open_mpi_s_machine_has_process_0(variables, uri, local, host):
    variables(OMPI_COMM_WORLD_SIZE="4", OMPI_COMM_WORLD_RANK="3", OMPI_COMM_WORLD_LOCAL_RANK="1", OMPI_COMM_WORLD_LOCAL_SIZE=local, **uri)
    found = clusters.place(clusters.Place())
    assert found.address.startswith(host + ":") and found[1:] == (4, 3, None, (1,))
    assert clusters.place(clusters.Place(), "ompi") == found
    with pytest.raises(ValueError, match="'slurm', but nothing of it"):
        clusters.place(clusters.Place(), "slurm")


# --- ends ---------------------------------------------------------------------------------------------------------------------------------

TRAIN = """
import atexit, os, signal, sys, time
import mini_jax as jax, numpy as np
from mini_jax import lax
way, who, *place = sys.argv[1:]
if way == "raise": atexit.register(time.sleep, 1)       # the others are gone before the one that failed
jax.distributed.initialize(*place[:1], *map(int, place[1:]), collective_timeout_seconds=4)
update = jax.pmap(lambda w: w - 0.1 * lax.pmean(w, "i"), "i")
w = np.ones(1, "f4")
for step in range(10000):
    w = update(w)
    w.block_until_ready()
    if step == 20 and jax.process_index() == int(who):
        print("now", time.time(), flush=True)
        child = os.fork()                               # it lives on, with copies of what its parent has open
        if child == 0: os.close(1); os.close(2); time.sleep(40); os._exit(0)
        print("child", child, flush=True)
        if way == "kill": os.kill(os.getpid(), signal.SIGKILL)
        if way == "stop": os.kill(os.getpid(), signal.SIGSTOP)
        sys.excepthook = lambda kind, error, tb: print(f"{kind.__name__}: {error}")        # as pretty printers of errors do
        if way == "raise": raise ValueError("no more data")
        if way == "stay": time.sleep(60)
"""


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    """Trainings of which one process ends, all at once: name -> those that have ended."""
    train = tmp_path_factory.mktemp("ends") / "train.py"
    train.write_text(TRAIN)
    address = f"127.0.0.1:{free_port()}"
    running = {
        "killed": [launch(3, train, "kill", 2)], "raised": [launch(2, train, "raise", 1)], "stayed": [launch(2, train, "stay", 1)],
        "stopped": [launch(2, train, "stop", 1, MINI_JAX_HEARTBEAT_TIMEOUT_SECONDS=3)],
        "killed by hand": [start(train, "kill", 0, address, 3, i) for i in range(3)]}
    with ThreadPoolExecutor(16) as pool:
        waited = {name: [pool.submit(Ended, process) for process in processes] for name, processes in running.items()}
        found = {name: [one.result() for one in found] for name, found in waited.items()}
    yield found
    for child in alive([pid for processes in found.values() for one in processes for pid in children_in(one.text)], 1):
        os.kill(child, signal.SIGKILL)


def children_in(text):
    return [int(pid) for pid in re.findall(r"child (\d+)", text)]


def seconds_after(ended, text):
    return ended.at - float(re.search(r"now ([\d.]+)", text)[1])


def test_one_of_three_killed_in_the_middle_of_training_ends_the_others_who_name_it(ends):
    found, = ends["killed"]
    assert found.status == 128 + signal.SIGKILL and "mini_jax launch: process 2 was killed by SIGKILL" in found.text, found.text
    for i in (0, 1):
        assert re.search(rf"^\[{i}\] mini_jax: process 2 \(pid \d+ on \S+\) has ended without a word: it was killed, or it crashed\. "
                         rf"Process {i}, which was at (\S*train\.py:\d+ \(<module>\)|its end), ends too\.$", found.text, re.MULTILINE), found.text
    assert "Fatal" not in found.text and "stack trace" not in found.text
    assert seconds_after(found, found.text) < 30


def test_so_it_is_without_the_launcher_and_for_process_0_which_all_are_connected_to(ends):
    dead, *others = ends["killed by hand"]
    assert dead.status == -signal.SIGKILL and alive(children_in(dead.text), 1)
    for i, other in enumerate(others, 1):
        assert other.status == ENDED and re.search(rf"mini_jax: process 0 .*has ended without a word.* Process {i}, which was at", other.text), other.text
        assert "Fatal" not in other.text and "stack trace" not in other.text
        assert seconds_after(other, dead.text) < 30


def test_an_uncaught_exception_is_told_to_the_others_and_is_the_launcher_s_failure(ends):
    found, = ends["raised"]
    assert found.status == 1 and "mini_jax launch: process 1 has failed with exit status 1" in found.text, found.text
    assert "[1] ValueError: no more data" in found.text and re.search(r"^\[0\] mini_jax: process 1 .* has failed: ValueError: no more data\.", found.text, re.MULTILINE)


def test_one_that_stops_is_missed_after_the_time_of_silence(ends):
    found, = ends["stopped"]
    assert found.status == ENDED and re.search(r"^\[0\] mini_jax: process 1 .* has not been heard of for 3 s", found.text, re.MULTILINE), found.text
    assert seconds_after(found, found.text) < 30


def test_a_wait_in_a_program_has_a_limit_and_it_is_said_where_the_others_are(ends):
    found, = ends["stayed"]
    assert found.status == 1 and "Gloo" in found.text, found.text
    assert re.search(r"^\[0\] mini_jax: process 0 has waited .* 4 s at most\. process 1 is at \S*train\.py:\d+ \(<module>\)", found.text, re.MULTILINE), found.text
    assert seconds_after(found, found.text) < 30


# --- the launcher ------------------------------------------------------------------------------------------------------------------------

SCRIPT = """
import os, subprocess, sys, time
i = int(os.environ["JAX_PROCESS_ID"])
print("line", i, sys.argv[1:], os.environ["JAX_NUM_PROCESSES"], flush=True)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("pids", os.getpid(), child.pid, flush=True)
sys.stderr.write("no newline at the end")
sys.stderr.flush()
if i == 1 and "fail" in sys.argv: sys.exit(3)
if "well" not in sys.argv: time.sleep(60)
child.kill()
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    file = tmp_path_factory.mktemp("launcher") / "script.py"
    file.write_text(SCRIPT)
    return file


def alive(pids, tries=50):
    """Those of these processes that run, after a moment for the kernel."""
    for _ in range(tries):
        left = [pid for pid in pids if os.path.exists(f"/proc/{pid}") and "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1][:3]]
        if not left:
            break
        time.sleep(0.1)
    return left


def pids_in(text):
    return [int(pid) for line in re.findall(r"pids ([\d ]+)", text) for pid in line.split()]


def test_the_launcher_numbers_lines_passes_arguments_and_ends_all_with_the_first_failure(script):
    well, fails = launch(2, script, "well", "-n", "7"), launch(3, script, "fail")
    well, fails = Ended(well), Ended(fails)
    assert well.status == 0
    for i in range(2):
        assert f"[{i}] line {i} ['well', '-n', '7'] 2\n" in well.text and f"[{i}] no newline at the end\n" in well.text
    assert fails.status == 3 and re.search("^mini_jax launch: process 1 has failed with exit status 3; processes 0 and 2 are ended$", fails.text, re.MULTILINE), fails.text
    assert len(pids_in(fails.text)) == 6 and not alive(pids_in(fails.text))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_whatever_ends_the_launcher_ends_all(script, number):
    running, text = launch(2, script), ""
    while len(pids_in(text)) < 4:
        text += running.stdout.readline()
    running.send_signal(number)
    done = Ended(running)
    assert done.status == (-number if number == signal.SIGKILL else 128 + number)
    own = [int(pid) for pid in re.findall(r"pids (\d+)", text)]
    assert not alive(own if number == signal.SIGKILL else pids_in(text))
    for pid in alive(pids_in(text)):                     # nobody is left to end the children of killed children
        os.kill(pid, signal.SIGKILL)


def test_the_launcher_refuses_what_it_cannot_start():
    none, zero = Ended(launch(2, "no/such/file.py")), Ended(launch(0, "file.py"))
    assert none.status == 2 and "there is no file no/such/file.py" in none.text
    assert zero.status == 2 and "'0' is not a number from 1 on" in zero.text


# --- the page ------------------------------------------------------------------------------------------------------------------------------

def test_the_script_of_the_page_on_processes_prints_what_the_page_says(tmp_path):
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "docs/processes.md").read_text(), re.MULTILINE | re.DOTALL)
    at = [language for language, _ in blocks].index("py")
    (_, program), (_, command), (_, printed) = blocks[at:at + 3]
    (tmp_path / "train.py").write_text(program)
    python, *words = command.split()
    done = Ended(start(*[tmp_path / "train.py" if word == "train.py" else word for word in words]))
    assert python == "python" and done.status == 0, done.text
    assert set(printed.splitlines()) <= set(done.text.splitlines()), done.text        # gloo may write a line of its own in pieces
