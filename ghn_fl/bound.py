"""How many samples are enough: theorem 4.1 of RecipFL as functions.

Assumed: a loss in [0, 1] that is K-Lipschitz in the hypernetwork's d parameters, all of them in
[-R, R], and M clients with N samples each. Then with probability 1 - delta the true loss is at most
the training loss + epsilon, for all parameters at once, if

    N >= max( 4 d / (M eps²) · ln x + 4 / (M eps²) · ln(4 / delta),  1 / eps² ),  x = 4 R K √d / eps

Differences from the paper: the statement prints x in brackets, its proof needs a whole number of
cubes above x; `rounding` chooses. Where x is below 1 its logarithm counts as 0: one cube is enough.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from ghn_fl.errors import GhnFlError

Rounding: TypeAlias = Literal["none", "ceil", "strict"]


def samples_needed(
    *,
    epsilon: float,
    delta: float,
    parameters: int,
    clients: float,
    radius: float = 1.0,
    lipschitz: float = 1.0,
    rounding: Rounding = "none",
) -> float:
    """The samples N that every one of `clients` needs; any whole number from there on is enough.

    Args:
        epsilon: how far the true loss may be above the training loss, in (0, 1).
        delta: how likely it may be that it is further, in (0, 1).
        parameters: d, of the hypernetwork.
        clients: M; a client with k times the samples counts as k.
        radius: R.
        lipschitz: K.
        rounding: of x: "none" is the formula, "ceil" rounds up, "strict" takes the first whole
            number above x, as the proof does.

    >>> round(samples_needed(epsilon=0.5, delta=0.04, parameters=4, clients=2), 4)
    125.5642
    >>> samples_needed(epsilon=1.5, delta=0.04, parameters=4, clients=2)
    Traceback (most recent call last):
    ghn_fl.errors.GhnFlError: epsilon must be above 0 and below 1, got 1.5
    """
    _check_fraction("epsilon", epsilon)
    _check_common(delta, parameters, clients, radius, lipschitz, rounding)
    needed = _needed(epsilon, delta, parameters, clients, radius * lipschitz, rounding)
    if needed == math.inf:
        raise GhnFlError(
            f"more samples than can be counted are needed for epsilon {epsilon:g}, radius "
            f"{radius:g} and lipschitz {lipschitz:g}; take a larger epsilon"
        )
    return needed


def weak_threshold(
    *,
    epsilon: float,
    delta: float,
    parameters: int,
    weak: int,
    ratio: float,
    strong: int = 1,
    radius: float = 1.0,
    lipschitz: float = 1.0,
    rounding: Rounding = "none",
) -> float:
    """The samples N that a weak client needs beside `strong` clients with `ratio` times as many.

    A strong client with k·N samples counts as k clients with N: it needs `ratio` times the result.

    >>> alone = samples_needed(epsilon=0.1, delta=0.05, parameters=1000, clients=100)
    >>> helped = weak_threshold(epsilon=0.1, delta=0.05, parameters=1000, weak=100, ratio=100)
    >>> round(alone / helped, 6)  # as if there were 200 of them
    2.0
    """
    if not (weak >= 0 and strong >= 0):
        raise GhnFlError(f"weak and strong must be 0 or more, got {weak} and {strong}")
    if not (math.isfinite(ratio) and ratio > 0):
        raise GhnFlError(f"ratio must be above 0, got {ratio:g}")
    return samples_needed(
        epsilon=epsilon,
        delta=delta,
        parameters=parameters,
        clients=weak + strong * ratio,
        radius=radius,
        lipschitz=lipschitz,
        rounding=rounding,
    )


def epsilon_for(
    *,
    samples: float,
    delta: float,
    parameters: int,
    clients: float,
    radius: float = 1.0,
    lipschitz: float = 1.0,
    rounding: Rounding = "none",
) -> float:
    """The least epsilon that `samples` a client guarantee: the inverse of `samples_needed`.

    >>> round(epsilon_for(samples=125.5642, delta=0.04, parameters=4, clients=2), 4)
    0.5
    """
    _check_common(delta, parameters, clients, radius, lipschitz, rounding)
    scale = radius * lipschitz
    least = _needed(1.0, delta, parameters, clients, scale, rounding)
    if not samples > least:
        raise GhnFlError(
            f"{samples:g} samples a client guarantee nothing: more than {least:.6g} are needed "
            "for any epsilon below 1"
        )
    low, high = 1 / math.sqrt(samples), 1.0  # the second term of the maximum gives `low`
    # samples_needed falls as epsilon grows, so that halving the interval keeps the answer inside;
    # after 100 halvings the two ends are one float.
    for _ in range(100):
        middle = (low + high) / 2
        if _needed(middle, delta, parameters, clients, scale, rounding) <= samples:
            high = middle
        else:
            low = middle
    return high


def _needed(
    epsilon: float, delta: float, parameters: int, clients: float, scale: float, rounding: Rounding
) -> float:
    x = 4 * scale * math.sqrt(parameters) / epsilon
    if x == math.inf or epsilon**2 == 0:
        return math.inf
    cubes = {"none": x, "ceil": math.ceil(x), "strict": math.floor(x) + 1}[rounding]
    capacity = parameters * max(math.log(cubes), 0.0)
    return max(4 / (clients * epsilon**2) * (capacity + math.log(4 / delta)), 1 / epsilon**2)


def _check_fraction(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise GhnFlError(f"{name} must be above 0 and below 1, got {value:g}")


def _check_common(
    delta: float,
    parameters: int,
    clients: float,
    radius: float,
    lipschitz: float,
    rounding: Rounding,
) -> None:
    _check_fraction("delta", delta)
    positive = {
        "parameters": parameters,
        "clients": clients,
        "radius": radius,
        "lipschitz": lipschitz,
    }
    for name, value in positive.items():
        if not (math.isfinite(value) and value > 0):
            raise GhnFlError(f"{name} must be above 0, got {value:g}")
    if rounding not in ("none", "ceil", "strict"):
        raise GhnFlError(f"rounding must be none, ceil or strict, got {rounding!r}")
