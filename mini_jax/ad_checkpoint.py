"""The names of `jax.ad_checkpoint`: checkpointing, its policies, and naming values for them."""
from mini_jax.lax.identities import checkpoint_name                                                              # noqa: F401
from mini_jax.transforms.checkpoint import Offloadable, Recompute, Saveable, checkpoint, checkpoint_policies, remat      # noqa: F401
from mini_jax.transforms.residuals import print_saved_residuals                                                  # noqa: F401
