"""lax: the primitives and the functions that apply them, strict about shapes and dtypes."""
from mini_jax.lax.bitcast import *            # noqa: F401,F403
from mini_jax.lax.collectives import *        # noqa: F401,F403
from mini_jax.lax.constants import *          # noqa: F401,F403
from mini_jax.lax.convolution import *        # noqa: F401,F403
from mini_jax.lax.cumulative import *         # noqa: F401,F403
from mini_jax.lax.dot import *                # noqa: F401,F403
from mini_jax.lax.elementwise import *        # noqa: F401,F403
from mini_jax.lax.fft import *                # noqa: F401,F403
from mini_jax.lax.fitting import *            # noqa: F401,F403
from mini_jax.lax.gather import *             # noqa: F401,F403
from mini_jax.lax.identities import *         # noqa: F401,F403
from mini_jax.lax.iota import *               # noqa: F401,F403
from mini_jax.lax.prng import *               # noqa: F401,F403
from mini_jax.lax.products import *           # noqa: F401,F403
from mini_jax.lax.ragged import *             # noqa: F401,F403
from mini_jax.lax.reductions import *         # noqa: F401,F403
from mini_jax.lax.scaled_dot import *         # noqa: F401,F403
from mini_jax.lax.selection import *          # noqa: F401,F403
from mini_jax.lax.shapes import *             # noqa: F401,F403
from mini_jax.lax.slicing import *            # noqa: F401,F403
from mini_jax.lax.sorting import *            # noqa: F401,F403
from mini_jax.lax.special import *            # noqa: F401,F403
from mini_jax.lax.window_shapes import *      # noqa: F401,F403
from mini_jax.lax.windows import *            # noqa: F401,F403
from mini_jax.lax import linalg               # noqa: F401

# Public names of lax that are transformations of programs, which stand above this floor; they are looked up when asked for.
_ABOVE = {name: module for module, names in {
    "control.scan": ("scan", "scan_p"),
    "control.loops": ("while_loop", "fori_loop", "while_p"),
    "control.branches": ("cond", "switch", "cond_p"),
    "control.map": ("map",),
    "control.platforms": ("platform_dependent", "composite", "platform_index_p"),
    "shards": ("with_sharding_constraint", "sharding_constraint_p"),
    "control.associative_scan": ("associative_scan",),
    "control.solves": ("custom_root", "custom_linear_solve", "custom_linear_solve_p"),
}.items() for name in names}


def __getattr__(name: str):
    module = _ABOVE.get(name)
    if module is None:
        raise AttributeError(f"mini_jax.lax has no attribute {name!r}")
    import importlib
    value = globals()[name] = getattr(importlib.import_module(f"mini_jax.transforms.{module}"), name)
    return value


def __dir__():
    return [*globals(), *_ABOVE]
