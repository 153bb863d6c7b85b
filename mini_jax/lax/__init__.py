"""lax: the primitives and the functions that apply them, strict about shapes and dtypes."""
from mini_jax.lax.bitcast import *            # noqa: F401,F403
from mini_jax.lax.elementwise import *        # noqa: F401,F403
from mini_jax.lax.constants import *              # noqa: F401,F403
from mini_jax.lax.gather import *             # noqa: F401,F403
from mini_jax.lax.identities import *         # noqa: F401,F403
from mini_jax.lax.iota import *               # noqa: F401,F403
from mini_jax.lax.selection import *            # noqa: F401,F403
from mini_jax.lax.shapes import *             # noqa: F401,F403
from mini_jax.lax.slicing import *            # noqa: F401,F403
