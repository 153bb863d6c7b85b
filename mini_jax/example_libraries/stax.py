"""`jax.example_libraries.stax`: neural networks as pairs of functions.

A layer is (init_fun, apply_fun): init_fun(key, input_shape) -> (output_shape, params), where -1 stands for a size that does not matter, and
apply_fun(params, inputs, rng=key) -> outputs. `serial` and `parallel` make layers of layers.

    >>> init, apply = serial(Dense(64), Relu, Dense(10), LogSoftmax)
    >>> shape, params = init(random.key(0), (-1, 784))
    >>> apply(params, images)
"""
from __future__ import annotations

import functools
import math
from typing import Callable, Sequence

import mini_jax.numpy as jnp
from mini_jax import lax, random
from mini_jax.nn import elu, gelu, leaky_relu, log_softmax, relu, selu, sigmoid, softmax, softplus, standardize
from mini_jax.nn.initializers import glorot_normal, normal, ones, zeros

__all__ = ["AvgPool", "BatchNorm", "Conv", "Conv1DTranspose", "ConvTranspose", "Dense", "Dropout", "Elu", "Exp", "FanInConcat", "FanInSum", "FanOut",
           "Flatten", "Gelu", "GeneralConv", "GeneralConvTranspose", "Identity", "LeakyRelu", "LogSoftmax", "MaxPool", "Relu", "Selu", "Sigmoid",
           "Softmax", "Softplus", "SumPool", "Tanh", "elementwise", "parallel", "serial", "shape_dependent"]


# --- linear layers ----------------------------------------------------------------------------------------------------------------------

def Dense(out_dim: int, W_init: Callable = glorot_normal(), b_init: Callable = normal()):
    """x w + b: (..., in_dim) -> (..., out_dim). params: (w, b)."""
    def init_fun(rng, input_shape):
        for_w, for_b = random.split(rng)
        return (*input_shape[:-1], out_dim), (W_init(for_w, (input_shape[-1], out_dim)), b_init(for_b, (out_dim,)))

    def apply_fun(params, inputs, **kwargs):
        w, b = params
        return jnp.dot(inputs, w) + b
    return init_fun, apply_fun


def _convolution(apply: Callable, shape_of: Callable, dimension_numbers, out_chan, filter_shape, strides, padding, W_init, b_init):
    """A layer that convolves by `apply` and adds one number for each channel. shape_of(input, kernel, strides): the result's shape."""
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    strides = strides or (1,) * len(filter_shape)
    W_init = W_init or glorot_normal(rhs_spec.index("O"), rhs_spec.index("I"))

    def init_fun(rng, input_shape):
        sizes, channels = iter(filter_shape), input_shape[lhs_spec.index("C")]
        kernel = [out_chan if c == "O" else channels if c == "I" else next(sizes) for c in rhs_spec]
        for_w, for_b = random.split(rng)
        bias = [out_chan if c == "C" else 1 for c in out_spec]
        return shape_of(input_shape, kernel, strides), (W_init(for_w, kernel), b_init(for_b, bias))

    def apply_fun(params, inputs, **kwargs):
        w, b = params
        return apply(inputs, w, strides, padding, dimension_numbers=dimension_numbers) + b
    return init_fun, apply_fun


def GeneralConv(dimension_numbers, out_chan: int, filter_shape: Sequence[int], strides=None, padding="VALID", W_init=None, b_init=normal(1e-6)):
    """A convolution, and one number added for each channel; dimension_numbers as for lax.conv_general_dilated. params: (w, b)."""
    return _convolution(lax.conv_general_dilated,
                        lambda x, w, strides: lax.conv_general_shape_tuple(x, w, strides, padding, dimension_numbers),
                        dimension_numbers, out_chan, filter_shape, strides, padding, W_init, b_init)


def GeneralConvTranspose(dimension_numbers, out_chan: int, filter_shape: Sequence[int], strides=None, padding="VALID", W_init=None,
                         b_init=normal(1e-6)):
    """A transposed convolution (lax.conv_transpose), and one number added for each channel. params: (w, b)."""
    return _convolution(lax.conv_transpose,
                        lambda x, w, strides: lax.conv_transpose_shape_tuple(x, w, strides, padding, dimension_numbers),
                        dimension_numbers, out_chan, filter_shape, strides, padding, W_init, b_init)


Conv = functools.partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))
Conv1DTranspose = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))
ConvTranspose = functools.partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))


# --- normalisation, pooling, dropout ----------------------------------------------------------------------------------------------------

def BatchNorm(axis=(0, 1, 2), epsilon: float = 1e-5, center: bool = True, scale: bool = True, beta_init: Callable = zeros, gamma_init: Callable = ones):
    """gamma (x - mean) / sqrt(variance + epsilon) + beta, with the mean and variance of x along `axis`. params: (beta, gamma), () for what is not
    wanted."""
    axis = (axis,) if isinstance(axis, int) else tuple(axis)

    def init_fun(rng, input_shape):
        shape = tuple([d for i, d in enumerate(input_shape) if i not in axis])
        for_beta, for_gamma = random.split(rng)
        return input_shape, (beta_init(for_beta, shape) if center else (), gamma_init(for_gamma, shape) if scale else ())

    def apply_fun(params, x, **kwargs):
        beta, gamma = params
        spread = tuple([None if i in axis else slice(None) for i in range(jnp.ndim(x))])
        z = standardize(x, axis, epsilon=epsilon)
        z = gamma[spread] * z if scale else z
        return z + beta[spread] if center else z
    return init_fun, apply_fun


def _pooling(reducer: Callable, init_val: float, rescale: bool = False):
    def layer(window_shape: Sequence[int], strides: Sequence[int] | None = None, padding="VALID", spec: str | None = None):
        """Over windows of this shape in the dimensions of space (spec: where N, the examples, and C, the channels, stand; default first and last)."""
        window, strides = list(window_shape), list(strides or (1,) * len(window_shape))
        for i in [0, len(window) + 1] if spec is None else sorted([spec.index("N"), spec.index("C")]):
            window.insert(i, 1), strides.insert(i, 1)

        def init_fun(rng, input_shape):
            pads = lax.padtype_to_pads(input_shape, window, strides, padding)
            return lax.reduce_window_shape_tuple(input_shape, window, strides, pads), ()

        def apply_fun(params, inputs, **kwargs):
            over = lambda x: lax.reduce_window(x, init_val, reducer, window, strides, padding)
            return over(inputs) / over(jnp.ones_like(inputs)) if rescale else over(inputs)
        return init_fun, apply_fun
    return layer


MaxPool, SumPool, AvgPool = _pooling(lax.max, -math.inf), _pooling(lax.add, 0.0), _pooling(lax.add, 0.0, rescale=True)


def Dropout(rate: float, mode: str = "train"):
    """Each number kept with the probability `rate`, and then divided by it, else 0. apply_fun needs rng, unless mode is another than "train",
    which keeps all."""
    def apply_fun(params, inputs, **kwargs):
        if mode != "train":
            return inputs
        rng = kwargs.get("rng")
        if rng is None:
            raise ValueError("Dropout needs a random key: call apply_fun(params, inputs, rng=key); or make the layer with another mode than 'train'")
        return jnp.where(random.bernoulli(rng, rate, inputs.shape), inputs / rate, 0)
    return _unchanged, apply_fun


# --- layers without parameters -----------------------------------------------------------------------------------------------------------

def _unchanged(rng, input_shape):
    return input_shape, ()


def elementwise(fun: Callable, **fun_kwargs):
    """The layer that applies fun(inputs, **fun_kwargs)."""
    return _unchanged, lambda params, inputs, **kwargs: fun(inputs, **fun_kwargs)


Tanh, Relu, Exp = elementwise(jnp.tanh), elementwise(relu), elementwise(jnp.exp)
LogSoftmax, Softmax = elementwise(log_softmax, axis=-1), elementwise(softmax, axis=-1)
Softplus, Sigmoid, Elu, LeakyRelu, Selu, Gelu = [elementwise(fun) for fun in (softplus, sigmoid, elu, leaky_relu, selu, gelu)]
Identity = _unchanged, lambda params, inputs, **kwargs: inputs
Flatten = (lambda rng, input_shape: ((input_shape[0], math.prod(input_shape[1:])), ()),
           lambda params, inputs, **kwargs: jnp.reshape(inputs, (inputs.shape[0], -1)))


def FanOut(num: int):
    """The list of the input num times, for `parallel`."""
    return lambda rng, input_shape: ([input_shape] * num, ()), lambda params, inputs, **kwargs: [inputs] * num


FanInSum = (lambda rng, input_shape: (input_shape[0], ()), lambda params, inputs, **kwargs: sum(inputs))


def FanInConcat(axis: int = -1):
    """A list of inputs as one, next to each other along `axis`."""
    def init_fun(rng, input_shape):
        at = axis % len(input_shape[0])
        return (*input_shape[0][:at], sum([shape[at] for shape in input_shape]), *input_shape[0][at + 1:]), ()
    return init_fun, lambda params, inputs, **kwargs: jnp.concatenate(inputs, axis)


# --- layers of layers ---------------------------------------------------------------------------------------------------------------------

def serial(*layers):
    """One layer after the other. params: the list of theirs."""
    inits, applies = zip(*layers) if layers else ((), ())

    def init_fun(rng, input_shape):
        params = []
        for init in inits:
            rng, own = random.split(rng)
            input_shape, param = init(own, input_shape)
            params.append(param)
        return input_shape, params

    def apply_fun(params, inputs, **kwargs):
        for apply, param, rng in zip(applies, params, _keys(kwargs.pop("rng", None), len(applies)), strict=True):
            inputs = apply(param, inputs, rng=rng, **kwargs)
        return inputs
    return init_fun, apply_fun


def parallel(*layers):
    """Each layer on an input of its own: lists of inputs and outputs, as FanOut makes and FanInSum takes. params: the list of theirs."""
    inits, applies = zip(*layers) if layers else ((), ())

    def init_fun(rng, input_shape):
        found = [init(key, shape) for init, key, shape in zip(inits, random.split(rng, len(inits)), input_shape, strict=True)]
        return [shape for shape, _ in found], [params for _, params in found]

    def apply_fun(params, inputs, **kwargs):
        keys = _keys(kwargs.pop("rng", None), len(applies))
        return [apply(param, x, rng=rng, **kwargs) for apply, param, x, rng in zip(applies, params, inputs, keys, strict=True)]
    return init_fun, apply_fun


def _keys(rng, count: int):
    return [None] * count if rng is None else random.split(rng, count)


def shape_dependent(make_layer: Callable):
    """The layer make_layer(input_shape), made when the shape is known."""
    return (lambda rng, input_shape: make_layer(input_shape)[0](rng, input_shape),
            lambda params, inputs, **kwargs: make_layer(inputs.shape)[1](params, inputs, **kwargs))
