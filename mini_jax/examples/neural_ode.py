"""A neural ordinary differential equation learns the law of motion of a spiral from points on it.

    python -m mini_jax.examples.neural_ode [--steps 1000] [--seed 0] [--out out/neural_ode]

A network f says how fast a point moves, dy/dt = f(θ, y). Where the point is at given times is computed by steps whose size adapts to
the error that they make, in a `while_loop`, which has no reverse derivative. It gets one by `custom_vjp`: the cotangent of y obeys a
differential equation of its own, and is integrated backward in time by the same solver (the adjoint method; Chen, Rubanova,
Bettencourt and Duvenaud, Neural Ordinary Differential Equations, 2018). A `scan` goes from one time to the next.
"""
import argparse
import time
from functools import partial
from pathlib import Path

import numpy as np

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax, random
from mini_jax.flatten_util import ravel_pytree

POINTS, SPAN = 41, 6.0              # the spiral is seen at 41 times, from 0 to 6
STRETCH, EVERY = 9, 4               # and fitted in stretches of 9 points, of which one begins at every fourth point
HIDDEN = 32
RATE, FADING, DECAY_1, DECAY_2 = 0.02, 0.997, 0.9, 0.99       # of Adam, whose steps become smaller: else where it ends hangs on rounding


# The solver.

def one_step(f, y, h):
    """y after a time h, by three evaluations of f, and its error, by a fourth (Bogacki and Shampine's pair of orders 3 and 2)."""
    k1 = f(y)
    k2 = f(y + h * k1 / 2)
    k3 = f(y + h * k2 * 3 / 4)
    end = y + h * (2 * k1 + 3 * k2 + 4 * k3) / 9
    k4 = f(end)
    return end, h * (-5 * k1 + 6 * k2 + 8 * k3 - 9 * k4) / 72


def solve(f, y, duration, tolerance):
    """The vector y, moving by dy/dt = f(y), after `duration`. NaN where no step is small enough."""
    def advance(state):
        y, left, h = state
        h = jnp.minimum(h, left)
        end, error = one_step(f, y, h)
        error = jnp.sqrt(jnp.mean(jnp.square(error / (tolerance * (1 + jnp.abs(y))))))      # at most 1 is good enough
        good = error <= 1
        return jnp.where(good, end, y), jnp.where(good, left - h, left), h * jnp.clip(0.9 * error ** (-1 / 3), 0.2, 5)
    y, left, _ = lax.while_loop(lambda state: (state[1] > 0) & (state[2] > 1e-6 * duration), advance, (y, duration, duration / 2))
    return jnp.where(left > 0, jnp.nan, y)


@partial(jax.custom_vjp, nondiff_argnums=(0, 4))
def move(f, params, y, duration, tolerance):
    """y after `duration`, moving by dy/dt = f(params, y)."""
    return solve(partial(f, params), y, duration, tolerance)


def move_forward(f, params, y, duration, tolerance):
    end = move(f, params, y, duration, tolerance)
    return end, (params, end, duration)                       # nothing of what happened on the way


def move_backward(f, tolerance, saved, cotangent):
    """Back in time along y: the cotangent a of y grows by a ∂f/∂y, and that of the parameters by a ∂f/∂θ."""
    params, y, duration = saved
    start, unravel = ravel_pytree((y, cotangent, jax.tree.map(jnp.zeros_like, params)))

    def back(state):
        y, a, _ = unravel(state)
        speed, pull = jax.vjp(f, params, y)
        grow_params, grow_y = pull(a)
        return ravel_pytree((-speed, grow_y, grow_params))[0]
    _, at_start, of_params = unravel(solve(back, start, duration, tolerance))
    return of_params, at_start, cotangent @ f(params, y)


move.defvjp(move_forward, move_backward)


def trajectory(f, params, y, times, tolerance=1e-4):
    """Where y, which is there at the first of the times, is at each of them: (times, 2)."""
    def next_point(y, duration):
        y = move(f, params, y, duration, tolerance)
        return y, y
    return jnp.concatenate([y[None], lax.scan(next_point, y, jnp.diff(times))[1]])


# What is learnt, and what learns it.

def spiral(matrix, y):
    """The law that is to be found."""
    return matrix @ y ** 3


def init(key):
    """A network of one hidden layer that hardly moves anything yet."""
    first, second = random.split(key)
    return [(random.normal(first, (HIDDEN, 2)) * 0.5, jnp.zeros(HIDDEN)), (random.normal(second, (2, HIDDEN)) * 0.05, jnp.zeros(2))]


def network(params, y):
    (weights, bias), (weights_out, bias_out) = params
    return weights_out @ jnp.tanh(weights @ y ** 3 + bias) + bias_out


def loss(params, times, points, tolerance=1e-4):
    """The mean square distance of the points from where the network takes the first point of their stretch."""
    stretches = np.arange(0, POINTS - STRETCH + 1, EVERY)[:, None] + np.arange(STRETCH)
    fitted = jax.vmap(lambda y, times: trajectory(network, params, y, times, tolerance))(points[stretches[:, 0]], times[stretches])
    return jnp.mean(jnp.square(fitted - points[stretches]))


@jax.jit
def step(state, times, points):
    """One step of Adam."""
    count, params, mean, square = state
    value, gradient = jax.value_and_grad(loss)(params, times, points)
    count = count + 1
    mean = jax.tree.map(lambda m, g: DECAY_1 * m + (1 - DECAY_1) * g, mean, gradient)
    square = jax.tree.map(lambda s, g: DECAY_2 * s + (1 - DECAY_2) * g * g, square, gradient)
    rate = RATE * FADING ** count * jnp.sqrt(1 - DECAY_2 ** count) / (1 - DECAY_1 ** count)
    params = jax.tree.map(lambda p, m, s: p - rate * m / (jnp.sqrt(s) + 1e-8), params, mean, square)
    return (count, params, mean, square), value


def observe():
    """The times, and the points of the true spiral at those."""
    times = jnp.linspace(0.0, SPAN, POINTS)
    return times, jax.jit(partial(trajectory, spiral))(jnp.array([[-0.1, 2.0], [-2.0, -0.1]]), jnp.array([2.0, 0.0]), times)


def draw(points, curve) -> str:
    """A picture, in SVG, of points and a curve in the plane."""
    place = lambda ys: [f"{200 + 80 * x:.1f},{200 - 80 * y:.1f}" for x, y in np.asarray(ys)]
    dots = "".join(f'<circle cx="{at.split(",")[0]}" cy="{at.split(",")[1]}" r="4" fill="darkorange"/>\n' for at in place(points))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 400">\n<title>Points of a spiral, and the trajectory that was fitted</title>\n'
            f'<rect width="400" height="400" fill="white"/>\n{dots}<polyline points="{" ".join(place(curve))}" fill="none" stroke="navy" stroke-width="2"/>\n</svg>\n')


def main():
    parser = argparse.ArgumentParser(prog="python -m mini_jax.examples.neural_ode", description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/neural_ode"), help="folder for the picture")
    args = parser.parse_args()
    if args.steps < 1:
        parser.error(f"--steps {args.steps}: at least 1")

    times, points = observe()
    params = init(random.key(args.seed))
    zeros = jax.tree.map(jnp.zeros_like, params)
    state, began = (jnp.int32(0), params, zeros, zeros), time.perf_counter()
    for i in range(args.steps):
        state, value = step(state, times, points)
        if i % 200 == 199 or i in (0, args.steps - 1):
            print(f"  step {i + 1:4}  mean square distance {value:.5f}  {time.perf_counter() - began:5.1f} s", flush=True)

    fine = jnp.linspace(0.0, SPAN, 300)
    curve = jax.jit(partial(trajectory, network))(state[1], points[0], fine)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "spiral.svg").write_text(draw(points, curve))
    print(f"  {args.out / 'spiral.svg'}: the points, and the trajectory that was fitted")
    distance = float(jnp.mean(jnp.linalg.norm(trajectory(network, state[1], points[0], times) - points, axis=1)))
    good = distance < 0.15
    print(f"Done: from the first point on, the trajectory passes the others at {distance:.3f}." if good
          else f"FAILED: from the first point on, the trajectory passes the others at {distance:.3f}, not under 0.15")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
