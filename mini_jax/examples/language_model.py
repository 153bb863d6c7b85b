"""A small transformer learns to write like the reference of the Python language, letter by letter.

    python -m mini_jax.examples.language_model [--steps 500] [--seed 0] [--letters 400]

The text is the one that `help()` shows for keywords and topics: it comes with every Python (`pydoc_data.topics`, 400,000 letters).
The layers have equal shapes, so their parameters are stacked and a `scan` runs through them: the program holds one layer, however
many there are. `checkpoint` keeps only what goes into each layer and computes the rest again on the way back. The model is that of
Vaswani et al., Attention Is All You Need, 2017, with normalisation first; it is trained by Adam with weight decay (Loshchilov and
Hutter, Decoupled Weight Decay Regularization, 2019).
"""
import argparse
import time
from functools import partial
from pydoc_data.topics import topics

import numpy as np

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax, random

WIDTH, HEADS, LAYERS, CONTEXT = 64, 4, 4, 64                  # the model sees the last 64 letters
BATCH, DROPOUT = 16, 0.1
RATE, WARM_UP, DECAY, DECAY_1, DECAY_2 = 5e-3, 50, 0.01, 0.9, 0.99


# The text.

def load():
    """The text as numbers of letters, cut into a part to learn from and a held-out one, and the alphabet, those letters in order."""
    lines = [line for name in sorted(topics) for line in topics[name].splitlines()]
    text = "\n".join(line for line in lines if line.isascii() and "--" not in line and "|" not in line)       # no drawn tables
    alphabet = sorted(set(text))
    number = {letter: i for i, letter in enumerate(alphabet)}
    tokens = np.array([number[letter] for letter in text], np.int32)
    return tokens[:len(tokens) * 9 // 10], tokens[len(tokens) * 9 // 10:], "".join(alphabet)


def pairs_loss(text, held_out, letters):
    """The loss of the model that knows only how often each letter follows each other one: what is to be beaten."""
    counts = np.full((letters, letters), 0.1)
    np.add.at(counts, (text[:-1], text[1:]), 1)
    return -np.mean(np.log(counts / counts.sum(1, keepdims=True))[held_out[:-1], held_out[1:]])


# The model, written for one sequence. `vmap` makes it one for many.

def init(key, letters, width=WIDTH, heads=HEADS, layers=LAYERS, context=CONTEXT):
    """Random parameters. Those of all layers are stacked: each array has one row per layer."""
    key_letters, key_places, key_layers = random.split(key, 3)

    def layer(key):
        keys = random.split(key, 4)
        normal = lambda key, fan_in, *shape: random.normal(key, shape) / np.sqrt(fan_in)
        return {"norm_1": jnp.ones(width), "norm_2": jnp.ones(width),
                "qkv": normal(keys[0], width, 3, width, heads, width // heads),
                "out": normal(keys[1], width * layers, heads, width // heads, width),
                "up": normal(keys[2], width, width, 4 * width),
                "down": normal(keys[3], 4 * width * layers, 4 * width, width)}
    return {"letters": random.normal(key_letters, (letters, width)) * 0.1, "places": random.normal(key_places, (context, width)) * 0.1,
            "layers": jax.vmap(layer)(random.split(key_layers, layers)), "norm": jnp.ones(width)}


def dropout(key, x):
    """Some of x set to 0 by chance, and the rest grown so that the mean stays. Without a key, x."""
    if key is None:
        return x
    return jnp.where(random.bernoulli(key, 1 - DROPOUT, x.shape), x / (1 - DROPOUT), 0)


def attention(layer, x):
    """What each place takes over from itself and the places before it: softmax(q kᵀ / √d) v, for each head."""
    q, k, v = jnp.einsum("td,pdhe->phte", x, layer["qkv"])
    scores = jnp.einsum("hqe,hke->hqk", q, k) / np.sqrt(q.shape[-1])
    scores = jnp.where(jnp.tri(len(x), dtype=bool), scores, -jnp.inf)
    return jnp.einsum("hqk,hke,hed->qd", jax.nn.softmax(scores), v, layer["out"])


@jax.checkpoint
def transform(layer, key, x):
    """One layer: attention, then a network at each place, each added to what was there."""
    keys = (None, None) if key is None else random.split(key)
    x = x + dropout(keys[0], attention(layer, jax.nn.standardize(x) * layer["norm_1"]))
    hidden = jax.nn.gelu(jax.nn.standardize(x) * layer["norm_2"] @ layer["up"])
    return x + dropout(keys[1], hidden @ layer["down"])


def predict(params, tokens, key=None):
    """At each place the scores of the letters that may come next: (places, letters). With a key, by the network with dropout."""
    x = params["letters"][tokens] + params["places"][:len(tokens)]
    keys = None if key is None else random.split(key, len(params["layers"]["norm_1"]))
    x, _ = lax.scan(lambda x, layer: (transform(*layer, x), None), x, (params["layers"], keys))
    return jax.nn.standardize(x) * params["norm"] @ params["letters"].T


def loss(params, tokens, key=None):
    """How surprised the model is by each next letter of the sequences (sequences, places + 1), on average."""
    def surprise(tokens, key):
        scores = jax.nn.log_softmax(predict(params, tokens[:-1], key))
        return -jnp.mean(jnp.take_along_axis(scores, tokens[1:, None], axis=1))
    keys = None if key is None else random.split(key, len(tokens))
    return jnp.mean(jax.vmap(surprise)(tokens, keys))


# What learns.

def adam(params, gradient, state, rate, decay=0.0):
    """The parameters after a step of Adam with weight decay, and its state: steps so far, means of gradients and of their squares."""
    count, mean, square = state
    count = count + 1
    mean = jax.tree.map(lambda m, g: DECAY_1 * m + (1 - DECAY_1) * g, mean, gradient)
    square = jax.tree.map(lambda s, g: DECAY_2 * s + (1 - DECAY_2) * g * g, square, gradient)

    def descend(p, m, s):
        m, s = m / (1 - DECAY_1 ** count), s / (1 - DECAY_2 ** count)
        return p - rate * (m / (jnp.sqrt(s) + 1e-8) + decay * p)
    return jax.tree.map(descend, params, mean, square), (count, mean, square)


def adam_start(params):
    zeros = lambda: jax.tree.map(jnp.zeros_like, params)      # twice, as a step takes over the memory of both
    return jnp.int32(0), zeros(), zeros()


def draw(key, text, context, sequences=BATCH):
    """Sequences of context + 1 letters from random places of the text."""
    starts = random.randint(key, (sequences, 1), 0, len(text) - context)
    return text[starts + jnp.arange(context + 1)]


@partial(jax.jit, donate_argnums=(0, 1))
def step(params, state, key, text):
    """One step of training on a random batch; also its loss."""
    key_batch, key_dropout = random.split(key)
    value, gradient = jax.value_and_grad(loss)(params, draw(key_batch, text, len(params["places"])), key_dropout)
    rate = RATE * jnp.minimum(1, (state[0] + 1) / WARM_UP)
    return *adam(params, gradient, state, rate, DECAY), value


@partial(jax.jit, static_argnums=3)
def generate(params, key, start, letters):
    """As many letters as asked for, each drawn from what the model says after the last ones, of which `start` are the first."""
    def next_letter(window, key):
        letter = random.categorical(key, predict(params, window)[-1])
        return jnp.append(window[1:], letter), letter
    return lax.scan(next_letter, start, random.split(key, letters))[1]


def main():
    parser = argparse.ArgumentParser(prog="python -m mini_jax.examples.language_model", description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--letters", type=int, default=400, help="how many to write at the end")
    args = parser.parse_args()
    if args.steps < 1:
        parser.error(f"--steps {args.steps}: at least 1")

    text, held_out, alphabet = load()
    key_init, key_train, key_test, key_write = random.split(random.key(args.seed), 4)
    params = jax.jit(init, static_argnums=1)(key_init, len(alphabet))
    print(f"{len(text)} letters of {len(alphabet)} kinds; {sum(p.size for p in jax.tree.leaves(params))} parameters")
    test = draw(key_test, held_out, CONTEXT, 128)
    state, test_loss, text_on_device, began = adam_start(params), jax.jit(loss), jnp.asarray(text), time.perf_counter()
    for i, key in enumerate(random.split(key_train, args.steps)):
        params, state, value = step(params, state, key, text_on_device)
        if i % 100 == 99 or i in (0, args.steps - 1):
            print(f"  step {i + 1:4}  loss {value:.3f}  held-out loss {test_loss(params, test):.3f}"
                  f"  {time.perf_counter() - began:5.1f} s", flush=True)

    start = held_out[:CONTEXT]
    written = generate(params, key_write, start, args.letters)
    spell = lambda tokens: "".join(alphabet[token] for token in tokens)
    print(f"{'It is given':-^80}\n{spell(start)}\n{'and goes on':-^80}\n{spell(np.asarray(written))}\n{'':-^80}")
    final, pairs = float(test_loss(params, test)), pairs_loss(text, held_out, len(alphabet))
    print(f"{'Done' if final < pairs else 'FAILED'}: loss {final:.3f} on text that it has not seen; "
          f"knowing pairs of letters only gives {pairs:.3f}.")
    return 0 if final < pairs else 1


if __name__ == "__main__":
    raise SystemExit(main())
