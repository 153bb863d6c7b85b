"""Random numbers from explicit keys: the same key gives the same numbers, on every device and under every transformation."""
from mini_jax.random.binomial import *
from mini_jax.random.choice import *
from mini_jax.random.continuous import *
from mini_jax.random.counts import *
from mini_jax.random.gamma import *
from mini_jax.random.keys import *
from mini_jax.random.multivariate import *
from mini_jax.random.uniform import *
