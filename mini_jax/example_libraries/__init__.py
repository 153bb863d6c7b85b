"""`jax.example_libraries`: small libraries of neural networks (stax) and optimizers, to start from."""
from mini_jax.example_libraries import optimizers as optimizers, stax as stax  # noqa: F401
