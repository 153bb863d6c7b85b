"""The two Pythons that are compared, and running one benchmark in a fresh process of either."""
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def jax_python(given):
    """A Python that has jax on this environment's jaxlib: the given one, or one made in the user's cache."""
    if given:
        return given
    version = importlib.metadata.version("jaxlib")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mini_jax"
    place = cache / f"jax-{version}-python{sys.version_info.major}.{sys.version_info.minor}"
    python = str(place / "bin" / "python")
    if not (place / "ready").exists():
        print(f"Installing jax {version} in {place} (once)", flush=True)
        same = [f"{name}=={importlib.metadata.version(name)}" for name in ("jaxlib", "numpy", "ml_dtypes")]
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", f"jax=={version}", *same], check=True)
        (place / "ready").touch()
    return python


def measure(python, framework, benchmark):
    """What the benchmark gives in a fresh process: the worker's answer, or `failed` and why."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "MINI_JAX_", "XLA_")) and name != "PYTHONDONTWRITEBYTECODE"}      # users' imports find bytecode
    environment |= {"XLA_FLAGS": f"--xla_force_host_platform_device_count={benchmark.devices}",
                    "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2"}
    try:
        done = subprocess.run([python, "-m", "benchmarks.worker", framework, benchmark.name], cwd=ROOT, env=environment,
                              text=True, capture_output=True, timeout=900)
    except subprocess.TimeoutExpired:
        return {"failed": "not done after 15 minutes"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])
