"""mini_jax.numpy: NumPy's functions on arrays and traced values, with JAX's semantics."""
from mini_jax.numpy import operators as _operators         # noqa: F401  (sets the operators and methods of arrays)
from mini_jax.numpy.array_api import *                      # noqa: F401,F403
from mini_jax.numpy.bits import *                           # noqa: F401,F403
from mini_jax.numpy.comparing import *                      # noqa: F401,F403
from mini_jax.numpy.constants import *                      # noqa: F401,F403
from mini_jax.numpy.creation import *                       # noqa: F401,F403
from mini_jax.numpy.diagonals import *                      # noqa: F401,F403
from mini_jax.numpy.einsum import *                         # noqa: F401,F403
from mini_jax.numpy.files import *                          # noqa: F401,F403
from mini_jax.numpy.grids import *                          # noqa: F401,F403
from mini_jax.numpy.indexing import *                       # noqa: F401,F403
from mini_jax.numpy.joining import *                        # noqa: F401,F403
from mini_jax.numpy.manipulation import *                   # noqa: F401,F403
from mini_jax.numpy.mapping import *                        # noqa: F401,F403
from mini_jax.numpy.padding import *                        # noqa: F401,F403
from mini_jax.numpy.polynomials import *                    # noqa: F401,F403
from mini_jax.numpy.products import *                       # noqa: F401,F403
from mini_jax.numpy.reductions import *                     # noqa: F401,F403
from mini_jax.numpy.scalars import *                        # noqa: F401,F403
from mini_jax.numpy.selecting import *                      # noqa: F401,F403
from mini_jax.numpy.sets import *                           # noqa: F401,F403
from mini_jax.numpy.signals import *                        # noqa: F401,F403
from mini_jax.numpy.sorting import *                        # noqa: F401,F403
from mini_jax.numpy.statistics import *                     # noqa: F401,F403
from mini_jax.numpy.ufuncs import *                         # noqa: F401,F403
from mini_jax.numpy.ufunc_methods import *                  # noqa: F401,F403
from mini_jax.runtime.array import Array as ndarray         # noqa: F401


def __getattr__(name: str):
    if name in ("fft", "linalg"):                           # imported when first asked for
        import importlib
        return importlib.import_module(f"mini_jax.numpy.{name}")
    raise AttributeError(f"module 'mini_jax.numpy' has no attribute {name!r}")


def __dir__():
    return [*globals(), "fft", "linalg"]
