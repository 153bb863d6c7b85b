"""Groups of observations."""
from mini_jax.scipy.cluster import vq                       # noqa: F401
