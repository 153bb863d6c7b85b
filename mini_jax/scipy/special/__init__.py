"""Special functions by their SciPy names."""
from mini_jax.scipy.special.bessel import *                 # noqa: F401,F403
from mini_jax.scipy.special.error import *                  # noqa: F401,F403
from mini_jax.scipy.special.gamma import *                  # noqa: F401,F403
from mini_jax.scipy.special.harmonics import *              # noqa: F401,F403
from mini_jax.scipy.special.hypergeometric import *         # noqa: F401,F403
from mini_jax.scipy.special.integrals import *              # noqa: F401,F403
from mini_jax.scipy.special.logarithms import *             # noqa: F401,F403
