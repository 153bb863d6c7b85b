"""On an accelerator, where there is one: values, devices and memories. Where there is only CUDA's plugin (`pip install mini-jax[cuda13]`) and no
device, its compiler at least must take the programs. Skipped, saying so, elsewhere."""
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.runtime import platforms, xla
from tests.test_primitives import CASES, application, draw, usual_dtype

CPU = jax.devices("cpu")[0]


@pytest.fixture(scope="module")
def device():
    """The first device of the first platform that isn't the CPU and starts."""
    reasons = []
    for platform in platforms.plugins():
        try:
            return jax.devices(platform)[0]
        except RuntimeError as error:
            reasons.append(str(error))
    pytest.skip("; ".join(reasons) or "no accelerator: no PJRT plugin is installed")


def on(device, fun, *args):
    """fun(*args), jitted, on a device."""
    return jax.tree.map(np.asarray, jax.jit(fun)(*jax.device_put(args, device)))


def agree(device, fun, *args, tolerance=1e-4):
    for a, b in zip(jax.tree.leaves(on(device, fun, *args)), jax.tree.leaves(on(CPU, fun, *args)), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


# --- with a device ------------------------------------------------------------------------------------------------------------------------

def test_arrays_live_on_it_and_move(device):
    x = jax.device_put(np.arange(4.0, dtype=np.float32), device)
    assert x.device == device and (x + 1).device == device and x.committed
    assert np.asarray(x * 2).tolist() == [0, 2, 4, 6] and jax.device_put(x, CPU).device == CPU
    with jax.default_device(device):
        assert jnp.ones(3).device == device
    with pytest.raises(ValueError, match="committed to"):
        jax.jit(lambda x, y: x + y)(x, jax.device_put(x, CPU))


def test_its_memories_are_told(device):
    stats = device.memory_stats()
    assert stats is None or stats["bytes_in_use"] >= 0
    kinds = {memory.kind for memory in device.addressable_memories()}
    assert device.default_memory().kind in kinds
    x = jax.device_put(np.ones(4, np.float32), device)
    for kind in kinds - {"unpinned_host"}:
        there = jax.device_put(x, x.sharding.with_memory_kind(kind))
        assert there.sharding.memory_kind == kind and (there + 1).tolist() == [2.0] * 4


def test_programs_compute_what_they_compute_on_the_cpu(device):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((8, 16)).astype(np.float32), rng.standard_normal((16, 16)).astype(np.float32)
    with jax.default_matmul_precision("highest"):
        loss = lambda w, x: (lax.scan(lambda h, _: (jnp.tanh(h @ w), h.sum()), x, None, length=3)[0] ** 2).mean()
        agree(device, jax.value_and_grad(loss), w, x)
        agree(device, jax.vmap(jax.grad(loss), (None, 0)), w, x)
        agree(device, lambda x, w: (jnp.sort(x), jnp.cumsum(x, 1), jnp.fft.fft(x), jax.nn.softmax(x @ w), x[::2, jnp.array([3, 1])], jnp.argmax(x, 1)), x, w)
    for fun in (jax.random.normal, jax.random.bits):
        agree(device, lambda key: fun(jax.random.wrap_key_data(key), (64,)), np.array([0, 7], np.uint32))


def test_decompositions_hold_on_it(device):
    a = np.random.default_rng(1).standard_normal((2, 6, 6)).astype(np.float32)
    h = a + a.transpose(0, 2, 1)
    with jax.default_matmul_precision("highest"):
        (q, r), (u, s, vh), (w, v), inverse = on(device, lambda a, h: (jnp.linalg.qr(a), jnp.linalg.svd(a), tuple(jnp.linalg.eigh(h)), jnp.linalg.inv(a)), a, h)
    near = lambda x, y: np.testing.assert_allclose(x, y, atol=2e-4)
    near(q @ r, a), near((u * s[:, None]) @ vh, a), near(h @ v, v * w[:, None]), near(inverse @ a, np.broadcast_to(np.eye(6), a.shape))


def test_what_it_can_not_do_is_refused_by_name(device):
    x = jax.device_put(np.ones((2, 2), np.float32), device)
    with pytest.raises(NotImplementedError, match="lax.linalg.eig is there on CPU only"):
        jnp.linalg.eig(x)
    with pytest.raises(NotImplementedError, match="pure_callback"):
        jax.jit(lambda x: jax.pure_callback(np.sin, x, x))(x)


# --- without a device -----------------------------------------------------------------------------------------------------------------------

H100 = """
gpu_device_info { threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98 device_memory_size: 84978434048 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 } registers_per_core_limit: 65536 registers_per_block_limit: 65536 }
platform_name: "CUDA" dnn_version_info { major: 9 minor: 12 } device_description_str: "NVIDIA H100 80GB HBM3" """


def test_the_compiler_of_cuda_takes_every_primitive():
    plugin = platforms.plugins().get("cuda")
    if plugin is None or plugin.library is None:
        pytest.skip("CUDA's plugin is not installed")
    compile_ = xla.compiler_without_devices("cuda", plugin.library, {"target_config": H100, "topology": "1x1x1"})
    tried = set()
    for case in CASES:
        primitive, sample = case.values
        if primitive.name not in tried:
            tried.add(primitive.name)
            try:
                text = jax.jit(application(primitive, sample)).trace(*draw(sample, usual_dtype(primitive, sample))).lower(lowering_platforms=("cuda",)).as_text()
            except NotImplementedError:
                continue
            compile_(text)                       # raises where XLA does not know something in it
