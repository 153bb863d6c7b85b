"""mini_jax.numpy: NumPy's functions on arrays and traced values, with JAX's semantics."""
from mini_jax.numpy import operators as _operators         # noqa: F401  (sets the operators and methods of arrays)
from mini_jax.numpy.creation import *                       # noqa: F401,F403
from mini_jax.numpy.diagonals import *                      # noqa: F401,F403
from mini_jax.numpy.einsum import *                         # noqa: F401,F403
from mini_jax.numpy.indexing import *                       # noqa: F401,F403
from mini_jax.numpy.joining import *                        # noqa: F401,F403
from mini_jax.numpy.manipulation import *                   # noqa: F401,F403
from mini_jax.numpy.products import *                       # noqa: F401,F403
from mini_jax.numpy.reductions import *                     # noqa: F401,F403
from mini_jax.numpy.selecting import *                      # noqa: F401,F403
from mini_jax.numpy.sorting import *                        # noqa: F401,F403
from mini_jax.numpy.ufuncs import *                         # noqa: F401,F403
