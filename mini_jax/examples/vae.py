"""A variational autoencoder learns what handwritten digits look like, says how likely unseen ones are, and writes its own.

    python -m mini_jax.examples.vae [--steps 1500] [--seed 0] [--out out/vae]

A few normal numbers z stand behind each image x: the decoder, a network, says how its pixels are distributed given z. What z may have
been, given x, another network guesses: the encoder's q(z | x) is normal too. Both are trained to raise the evidence lower bound,

    log p(x)  ≥  E_q log p(x | z) - KL(q(z | x) || p(z)),

whose gradient passes through the draw from q, as that is written mean + deviation · noise (Kingma and Welling, Auto-Encoding
Variational Bayes, 2014).
"""
import argparse
import struct
import time
import zlib
from functools import partial
from pathlib import Path

import numpy as np

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import random

from .digits import TRAIN, load
from .language_model import adam, adam_start

PIXELS, LEVELS = 64, 17             # 8 x 8 pixels, each a whole number from 0 to 16
HIDDEN, LATENT, BATCH = 128, 16, 240
RATE, DECAY = 2e-3, 0.1


# The model, written for one image. `vmap` makes it one for many.

def init(key, pixels=PIXELS, hidden=HIDDEN, latent=LATENT):
    """The layers of the encoder and of the decoder: weights and biases."""
    def network(key, *sizes):
        keys = random.split(key, len(sizes) - 1)
        return [(random.normal(k, (m, n)) / np.sqrt(m), jnp.zeros(n)) for k, m, n in zip(keys, sizes, sizes[1:])]
    key_encoder, key_decoder = random.split(key)
    return {"encoder": network(key_encoder, pixels, hidden, hidden, 2 * latent),
            "decoder": network(key_decoder, latent, hidden, hidden, 2 * pixels)}


def apply(layers, x):
    for weights, bias in layers[:-1]:
        x = jax.nn.relu(x @ weights + bias)
    weights, bias = layers[-1]
    return x @ weights + bias


def encode(params, image):
    """The mean of q(z | image), and the logarithm of its standard deviation."""
    return jnp.split(apply(params["encoder"], image / 8 - 1), 2)


def decode(params, z):
    """Of each pixel, given z, the centre of its distribution, from 0 to 16, and the logarithm of the distribution's width."""
    centre, log_width = jnp.split(apply(params["decoder"], z), 2)
    return (LEVELS - 1) * jax.nn.sigmoid(centre), jnp.clip(log_width, -3, 3)


def log_probability(image, centre, log_width):
    """Of each pixel, log of the mass of a logistic distribution between half below and half above it; without end at 0 and 16."""
    low, high = image == 0, image == LEVELS - 1
    below, above = (image - 0.5 - centre) * jnp.exp(-log_width), (image + 0.5 - centre) * jnp.exp(-log_width)
    # sigmoid(a) - sigmoid(b) = sigmoid(a) sigmoid(-b) (1 - exp(b - a))
    return (jnp.where(high, 0, jax.nn.log_sigmoid(above)) + jnp.where(low, 0, jax.nn.log_sigmoid(-below))
            + jnp.where(low | high, 0, jnp.log(-jnp.expm1(-jnp.exp(-log_width)))))


def bound(params, key, image):
    """The evidence lower bound, with the expectation taken at one draw from q."""
    mean, log_deviation = encode(params, image)
    z = mean + jnp.exp(log_deviation) * random.normal(key, mean.shape)
    divergence = jnp.sum(jnp.square(mean) + jnp.exp(2 * log_deviation) - 1) / 2 - jnp.sum(log_deviation)
    return log_probability(image, *decode(params, z)).sum() - divergence


def log_likelihood(params, key, image, draws=256):
    """log p(image) by importance sampling: the mean of p(image | z) p(z) / q(z | image) over draws from q."""
    mean, log_deviation = encode(params, image)
    noise = random.normal(key, (draws, *mean.shape))
    z = mean + jnp.exp(log_deviation) * noise
    log_ratio = jnp.sum(jnp.square(noise) - jnp.square(z), axis=1) / 2 + log_deviation.sum()
    log_p = jax.vmap(lambda z: log_probability(image, *decode(params, z)).sum())(z)
    return jax.nn.logsumexp(log_p + log_ratio) - np.log(draws)


def bits(measure, params, key, images):
    """Bits per pixel, on average: those that it takes to store the images, as far as `measure` knows their log probability."""
    values = jax.vmap(partial(measure, params))(random.split(key, len(images)), images)
    return -jnp.mean(values) / images.shape[1] / np.log(2)


@partial(jax.jit, donate_argnums=(0, 1))
def step(params, state, key, images):
    """One step of training on a random batch; also its bits per pixel."""
    key_batch, key_noise = random.split(key)
    batch = images[random.randint(key_batch, (BATCH,), 0, len(images))]
    value, gradient = jax.value_and_grad(bits, argnums=1)(bound, params, key_noise, batch)
    return *adam(params, gradient, state, RATE, DECAY), value


@partial(jax.jit, static_argnums=2)
def sample(params, key, count):
    """Images (count, pixels): the centres that the decoder sees in so many draws of z."""
    return jax.vmap(partial(decode, params))(random.normal(key, (count, len(params["decoder"][0][0]))))[0]


# The picture.

def sheet(images, columns):
    """Images, one next to the other, as one picture, dark on white; each pixel becomes 4 x 4, and each image has a margin."""
    images = 255 - 255 * np.asarray(images).reshape(-1, columns, 8, 8) / (LEVELS - 1)
    images = np.pad(images, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=255).swapaxes(1, 2)
    return images.reshape(10 * len(images), 10 * columns).repeat(4, axis=0).repeat(4, axis=1).round().astype(np.uint8)


def png(picture) -> bytes:
    """A grey picture, bytes (rows, columns), as a PNG file."""
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    rows, columns = picture.shape
    lines = b"".join(b"\0" + line.tobytes() for line in picture)                      # 0: the line is stored as it is
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


def histogram_bits(images, held_out):
    """Bits per pixel of the model that knows how often each pixel has each value, and takes pixels to be independent."""
    counts = 0.1 + (images[:, :, None] == np.arange(LEVELS)).sum(axis=0)
    log_p = np.log2(counts / counts.sum(axis=1, keepdims=True))
    return -np.mean(log_p[np.arange(images.shape[1]), held_out.astype(int)])


def main():
    parser = argparse.ArgumentParser(prog="python -m mini_jax.examples.vae", description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/vae"), help="folder for the picture")
    args = parser.parse_args()
    if args.steps < 1:
        parser.error(f"--steps {args.steps}: at least 1")

    images = load()[0] * (LEVELS - 1)
    seen, held_out = jnp.asarray(images[:TRAIN]), images[TRAIN:]
    key_init, key_train, key_test, key_sample = random.split(random.key(args.seed), 4)
    params = jax.jit(init)(key_init)
    state, test, began = adam_start(params), jax.jit(bits, static_argnums=0), time.perf_counter()
    for i, key in enumerate(random.split(key_train, args.steps)):
        params, state, value = step(params, state, key, seen)
        if i % 250 == 249 or i in (0, args.steps - 1):
            print(f"  step {i + 1:4}  bits per pixel {value:.3f}  held out {test(bound, params, key_test, held_out):.3f}"
                  f"  {time.perf_counter() - began:5.1f} s", flush=True)

    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "digits.png").write_bytes(png(sheet(sample(params, key_sample, 120), 15)))
    print(f"  {args.out / 'digits.png'}: digits by the decoder")
    at_most, about = test(bound, params, key_test, held_out), test(log_likelihood, params, key_test, held_out)
    independent = histogram_bits(images[:TRAIN], held_out)
    good = at_most < independent - 0.3
    print(f"{'Done' if good else 'FAILED'}: unseen digits take {at_most:.3f} bits per pixel by the bound, {about:.3f} by importance "
          f"sampling; histograms of the pixels give {independent:.3f}.")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
