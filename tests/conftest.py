"""What every test relies on: eight CPU devices, and no jax in the process from beginning to end."""
import os
import sys
from importlib.metadata import version

# XLA reads this when the first device is asked for, so it stands before anything that could import mini_jax.
DEVICES = "--xla_force_host_platform_device_count"
if DEVICES not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DEVICES}=8".strip()
# Tests compile thousands of small programs and run each once: LLVM's optimisations would cost more than all the rest, and so would
# jaxlib 0.10's newer emitters, which jaxlib 0.11 leaves no choice about (so the run on the newest jaxlib tests those).
FLAGS = {"xla_backend_optimization_level": "0", "xla_cpu_parallel_codegen_split_count": "1"}
if version("jaxlib").startswith("0.10."):
    FLAGS["xla_cpu_use_fusion_emitters"] = "false"
for flag, value in FLAGS.items():
    if flag not in os.environ["XLA_FLAGS"]:
        os.environ["XLA_FLAGS"] += f" --{flag}={value}"

import pytest


# With MINI_JAX_OUTLINE=eager every test runs with the outliner at its most eager, and must pass. This one looks at a program's text:
READ_TEXT = {"test_a_number_of_draws_of_one_shape_share_one_function"}


# These walk tables or programs that are generated. Where an operation by itself takes up to three times as long to compile, on jaxlib 0.11 and newer, one
# case of three runs, so that both runs of .ci/run end within 20 minutes, on a slow day too. (The others are reported as deselected. MINI_JAX_TESTS=all pytest runs all.)
GENERATED = {"test_primitives", "test_public_walk", "test_convolution", "test_scipy_stats", "test_scipy_special", "test_ref_laws", "test_control_flow_laws",
             "test_reduce_axes_laws", "test_outline_everywhere", "test_updates"}


def pytest_collection_modifyitems(config, items):
    if "0.10." not in version("jaxlib") and os.environ.get("MINI_JAX_TESTS") != "all":
        cases = [item for item in items if hasattr(item, "callspec") and item.module.__name__.split(".")[-1] in GENERATED]
        left_out = set(cases) - set(cases[::3]) if {item.path.stem for item in cases} == GENERATED else set()        # of a whole run; files asked for run whole
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    if os.environ.get("MINI_JAX_OUTLINE") == "eager":
        for item in items:
            if getattr(item, "originalname", None) in READ_TEXT:
                item.add_marker(pytest.mark.skip(reason="reads the text of a program that is outlined here"))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """Fail the whole run if anything in it, jaxlib included, imported jax."""
    found = sorted(name for name in sys.modules if name == "jax" or name.startswith("jax."))
    if found:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"\njax was imported during the tests: {', '.join(found[:5])}", file=sys.stderr)
