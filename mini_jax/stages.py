"""The classes of `jax.stages`."""
from mini_jax.transforms.stages import ArgInfo, Compiled, Lowered, Traced                                        # noqa: F401
