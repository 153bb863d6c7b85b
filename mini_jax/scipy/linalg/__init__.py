"""Linear algebra by its SciPy names. Matrices are the last two dimensions of arrays; all before them are batches."""
from mini_jax.scipy.linalg.decompositions import *          # noqa: F401,F403
from mini_jax.scipy.linalg.equations import *               # noqa: F401,F403
from mini_jax.scipy.linalg.functions import *               # noqa: F401,F403
from mini_jax.scipy.linalg.structured import *              # noqa: F401,F403
