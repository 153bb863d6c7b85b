"""mini_jax.numpy.linalg: linear algebra. Matrices are the last two dimensions of arrays; all before them are batches."""
from mini_jax.numpy.linalg.decompositions import *         # noqa: F401,F403
from mini_jax.numpy.linalg.determinants import *           # noqa: F401,F403
from mini_jax.numpy.linalg.equations import *              # noqa: F401,F403
from mini_jax.numpy.linalg.norms import *                  # noqa: F401,F403
from mini_jax.numpy.linalg.products import *               # noqa: F401,F403
