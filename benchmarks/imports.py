"""What is imported, by `-X importtime`: how many modules, and how long their own code takes. The heaviest: `python -m benchmarks.imports mini_jax`."""
import re
import subprocess
import sys

from benchmarks.registry import BENCHMARKS, Benchmark

_LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+([\w.]+)$", re.MULTILINE)
_PROGRAMS = {
    "import": "import {0}, {0}.numpy",
    "first calls": "import {0} as jax, {0}.numpy as jnp; f = jax.jit(lambda x: jnp.sum(jnp.tanh(x) + 1)); x = jnp.ones(3) + 1; f(x), jax.grad(f)(x), jax.vmap(f)(x)",
}


def seconds_by_module(program, rounds=5):
    """The seconds that each module's own code takes when `program` is run: the least of some rounds, since others use the machine too."""
    least = {}
    for _ in range(rounds):
        run = subprocess.run([sys.executable, "-X", "importtime", "-c", program], text=True, capture_output=True, check=True)
        for microseconds, module in _LINE.findall(run.stderr):
            least[module] = min(least.get(module, float("inf")), int(microseconds) * 1e-6)
    return least


def _own(name):
    """The framework's packages, and the libraries under it, which are the same for both, left out."""
    return {"mini_jax": ("mini_jax", "lowering"), "jax": ("jax",)}[name]


def _imports(jax):
    name, values = jax.__name__, {}
    for what, program in _PROGRAMS.items():
        found = seconds_by_module(program.format(name))
        own = [seconds for module, seconds in found.items() if module.split(".")[0] in _own(name)]
        values |= {f"{what}: all modules": len(found), f"{what}: own modules": len(own), f"{what}: time of own modules": sum(own), f"{what}: time of all modules": sum(found.values())}
    return values


BENCHMARKS["import_modules"] = Benchmark("import_modules", {
    f"{what}: {measure}": 0.45 if measure == "time of own modules" else None
    for what in _PROGRAMS for measure in ("all modules", "own modules", "time of own modules", "time of all modules")}, _imports, False, 1)


if __name__ == "__main__":
    for what, program in _PROGRAMS.items():
        found = seconds_by_module(program.format(sys.argv[1] if len(sys.argv) > 1 else "mini_jax"))
        print(f"{what}: {len(found)} modules, {sum(found.values()) * 1e3:.0f} ms. The heaviest, with the time that their own code takes:")
        for module in sorted(found, key=found.get, reverse=True)[:20]:
            print(f"{found[module] * 1e3:8.1f} ms  {module}")
