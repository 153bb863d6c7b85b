"""Functions of neural networks: activations, softmax, attention, initial weights."""
from mini_jax.nn import initializers as initializers
from mini_jax.nn.activations import *
from mini_jax.nn.attention import *
from mini_jax.nn.one_hot import *
from mini_jax.nn.softmax import *
