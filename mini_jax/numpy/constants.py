"""Constants."""
import math

__all__ = ["e", "euler_gamma", "inf", "nan", "newaxis", "pi"]

e, pi, inf, nan = math.e, math.pi, math.inf, math.nan
euler_gamma = 0.5772156649015329
newaxis = None
