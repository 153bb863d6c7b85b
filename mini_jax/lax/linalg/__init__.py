"""lax.linalg: decompositions of matrices, one file each. Matrices are the last two dimensions of arrays; all before them are batches."""
from mini_jax.lax.linalg.cholesky import *         # noqa: F401,F403
from mini_jax.lax.linalg.condensed import *        # noqa: F401,F403
from mini_jax.lax.linalg.eigen import *            # noqa: F401,F403
from mini_jax.lax.linalg.lu import *               # noqa: F401,F403
from mini_jax.lax.linalg.polar import *            # noqa: F401,F403
from mini_jax.lax.linalg.qr import *               # noqa: F401,F403
from mini_jax.lax.linalg.schur import *            # noqa: F401,F403
from mini_jax.lax.linalg.svd import *              # noqa: F401,F403
from mini_jax.lax.linalg.symmetric import *        # noqa: F401,F403
from mini_jax.lax.linalg.triangular import *       # noqa: F401,F403
from mini_jax.lax.linalg.tridiagonal_solve import *    # noqa: F401,F403
