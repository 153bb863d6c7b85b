"""The names of `jax.ad_checkpoint`: checkpointing, its policies, and naming values for them."""
from mini_jax.lax.identities import checkpoint_name                                                              # noqa: F401
from mini_jax.transforms.checkpoint import checkpoint, checkpoint_policies, remat                                # noqa: F401
