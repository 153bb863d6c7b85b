"""Probability distributions, each a module of functions of its samples and parameters, and statistics of samples."""
from mini_jax.scipy.stats import (                                                                              # noqa: F401
    bernoulli, beta, betabinom, binom, cauchy, chi2, dirichlet, expon, gamma, gennorm, geom, gumbel_l, gumbel_r, laplace, logistic, multinomial,
    multivariate_normal, nbinom, norm, pareto, poisson, t, truncnorm, uniform, vonmises, wrapcauchy)
from mini_jax.scipy.stats.density_estimate import *         # noqa: F401,F403
from mini_jax.scipy.stats.samples import *                  # noqa: F401,F403
