"""Computes the cost of placing a request on a node under each policy: the lower, the better. Compiled by numba.

A request is a row of five int64: CPU, memory, GPUs, thousandths of each, bits of the models allowed. `gpus_left` of a node are its
GPUs' free thousandths, 0 where it has no GPU. A cost of NO_FIT means that it does not fit; a GPU of -1, that there is none to choose:
whole GPUs are taken in their order.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

CPU, MEMORY, GPUS, MILLI, MODELS = range(5)
WHOLE = 1000
# Values of GPUs are tabled in steps of 10/1000.
STEP = 10
NO_FIT = 1e18
# Of two nodes that lose nearly the same, the one with less CPU left: worth 0.1/1000 GPU a core. It keeps whole nodes whole.
TIGHTNESS = 1e-4
# What scarce room for requests of several GPUs counts beside the worths, which see single GPUs.
ROOM = 0.02
# What the published BestFit divides by: the largest node.
MOST_CPU, MOST_GPU = 128_000, 8_000
RANDOM, BEST_FIT, FGD, EGS = range(4)


@njit(cache=True)
def refresh(
    policy: int,
    request: Ints,
    cpu_left: Ints,
    memory_left: Ints,
    gpus_left: Ints,
    models: Ints,
    versions: Ints,
    kinds: Ints,
    shares: Floats,
    worths: Floats,
    classes: Ints,
    cpu_prices: Floats,
    costs: Floats,
    gpus: Ints,
    seen: Ints,
) -> int:
    """Returns the first of the cheapest nodes, or -1. Brings `costs`, `gpus` and `seen` of this request up to date where nodes changed.

    Shapes, for n nodes of at most g GPUs and k kinds: `gpus_left` n×g, `kinds` k×5, `shares` k, `worths` classes×prices×101, the rest n.
    """
    best = -1
    for node in range(cpu_left.shape[0]):
        if seen[node] != versions[node]:
            seen[node] = versions[node]
            costs[node], gpus[node] = NO_FIT, -1
            if fits(request, cpu_left[node], memory_left[node], gpus_left[node], models[node]):
                if policy == BEST_FIT:
                    costs[node] = best_fit_cost(request, cpu_left[node], gpus_left[node])
                    gpus[node] = tightest(request, gpus_left[node])
                elif policy == FGD:
                    costs[node], gpus[node] = fgd_cost(request, cpu_left[node], gpus_left[node], models[node], kinds, shares)
                elif policy == EGS:
                    costs[node], gpus[node] = egs_cost(
                        request, cpu_left[node], gpus_left[node], models[node], kinds, shares, worths[classes[node]], cpu_prices
                    )
                else:
                    costs[node] = 0.0
        if costs[node] < NO_FIT and (best < 0 or costs[node] < costs[best]):
            best = node
    return best


@njit(cache=True)
def fits(request: Ints, cpu_left: int, memory_left: int, gpus_left: Ints, model: int) -> bool:
    if cpu_left < request[CPU] or memory_left < request[MEMORY]:
        return False
    if request[GPUS] == 0:
        return True
    if request[MODELS] & model == 0:
        return False
    return bool(np.sum(gpus_left >= request[MILLI]) >= request[GPUS])


@njit(cache=True)
def take(request: Ints, gpus_left: Ints, gpu: int) -> None:
    """Take the request's GPUs: this one, or with -1 the first free whole ones."""
    if gpu >= 0:
        gpus_left[gpu] -= request[MILLI]
        return
    wanted = request[GPUS]
    for place in range(gpus_left.shape[0]):
        if wanted > 0 and gpus_left[place] == WHOLE:
            gpus_left[place] = 0
            wanted -= 1


@njit(cache=True)
def is_shared(request: Ints) -> bool:
    return bool(request[GPUS] == 1 and request[MILLI] < WHOLE)


@njit(cache=True)
def tightest(request: Ints, gpus_left: Ints) -> int:
    """Returns the GPU with the least left that still takes this share; -1 for whole GPUs."""
    best = -1
    if is_shared(request):
        for gpu in range(gpus_left.shape[0]):
            if gpus_left[gpu] >= request[MILLI] and (best < 0 or gpus_left[gpu] < gpus_left[best]):
                best = gpu
    return best


@njit(cache=True)
def best_fit_cost(request: Ints, cpu_left: int, gpus_left: Ints) -> float:
    """What would be left, CPU and GPU weighed alike, in whole percent of the largest node, as the published figures were made."""
    cpu = (cpu_left - request[CPU]) / MOST_CPU
    gpu = (gpus_left.sum() - request[GPUS] * request[MILLI]) / MOST_GPU
    return float(-math.floor((1.0 - 0.5 * cpu - 0.5 * gpu) * 100))


@njit(cache=True)
def fragmentation(cpu_left: int, gpus_left: Ints, model: int, kinds: Ints, shares: Floats) -> float:
    """Returns the thousandths of GPUs on this node that the average request cannot use.

    For a kind that does not fit at all (or has no GPU) that is all that is free; for one that fits, the GPUs too full for its share.
    Source: Weng et al., "Beware of Fragmentation" (ATC'23), section 3; memory is left out there, too.
    """
    free = gpus_left.sum()
    lost = 0.0
    for kind in range(kinds.shape[0]):
        milli = kinds[kind, MILLI]
        room, scraps = 0, 0
        for gpu in range(gpus_left.shape[0]):
            if gpus_left[gpu] >= milli:
                room += 1
            else:
                scraps += gpus_left[gpu]
        allowed = kinds[kind, GPUS] > 0 and kinds[kind, MODELS] & model != 0
        usable = allowed and cpu_left >= kinds[kind, CPU] and room >= kinds[kind, GPUS]
        lost += shares[kind] * (scraps if usable else free)
    return lost


@njit(cache=True)
def fgd_cost(request: Ints, cpu_left: int, gpus_left: Ints, model: int, kinds: Ints, shares: Floats) -> tuple[float, int]:
    """Fragmentation gradient descent computes how much the fragmentation grows, through a sigmoid into whole percent as published."""
    before = fragmentation(cpu_left, gpus_left, model, kinds, shares)
    best, best_gpu = NO_FIT, -1
    for gpu in range(gpus_left.shape[0] if is_shared(request) else 1):
        if is_shared(request) and gpus_left[gpu] < request[MILLI]:
            continue
        chosen = gpu if is_shared(request) else -1
        after_left = gpus_left.copy()
        take(request, after_left, chosen)
        after = fragmentation(cpu_left - request[CPU], after_left, model, kinds, shares)
        cost = -math.floor(100 / (1 + math.exp((after - before) / WHOLE)))
        if cost < best:
            best, best_gpu = cost, chosen
    return best, best_gpu


@njit(cache=True)
def worth(cpu_left: int, gpus_left: Ints, worths: Floats, cpu_prices: Floats) -> float:
    """Returns what the free part of a node can still earn, in thousandths of a GPU: the dual bound at the best of the CPU's prices.

    At each price: the CPU at that price, plus what each GPU's free share earns after its requests paid for their CPU.
    Shapes: `worths` prices×101, by free share in steps of 10; `cpu_prices` in thousandths of a GPU per thousandth of a core.
    """
    least = NO_FIT
    for price in range(cpu_prices.shape[0]):
        total = cpu_prices[price] * cpu_left
        for gpu in range(gpus_left.shape[0]):
            total += worths[price, gpus_left[gpu] // STEP]
        least = min(least, total)
    return least


@njit(cache=True)
def room(cpu_left: int, gpus_left: Ints, model: int, kinds: Ints, shares: Floats) -> float:
    """Returns the thousandths of GPUs that requests of whole GPUs can have here, each kind alone, weighed by `shares`."""
    whole = np.sum(gpus_left == WHOLE)
    total = 0.0
    for kind in range(kinds.shape[0]):
        if kinds[kind, MODELS] & model != 0:
            count = whole // kinds[kind, GPUS]
            if kinds[kind, CPU] > 0:
                count = min(count, cpu_left // kinds[kind, CPU])
            total += shares[kind] * count * kinds[kind, GPUS] * WHOLE
    return total


@njit(cache=True)
def egs_cost(
    request: Ints, cpu_left: int, gpus_left: Ints, model: int, kinds: Ints, shares: Floats, worths: Floats, cpu_prices: Floats
) -> tuple[float, int]:
    """What the node loses in worth and in scarce room, plus a trifle for each core that it has left.

    `kinds` and `shares` are those with several GPUs and how scarce room for them is.
    """
    before = worth(cpu_left, gpus_left, worths, cpu_prices) + ROOM * room(cpu_left, gpus_left, model, kinds, shares)
    best, best_gpu = NO_FIT, -1
    for gpu in range(gpus_left.shape[0] if is_shared(request) else 1):
        if is_shared(request) and gpus_left[gpu] < request[MILLI]:
            continue
        chosen = gpu if is_shared(request) else -1
        left = gpus_left.copy()
        take(request, left, chosen)
        after = worth(cpu_left - request[CPU], left, worths, cpu_prices) + ROOM * room(cpu_left - request[CPU], left, model, kinds, shares)
        # Rounded, so that GPUs listed in another order, or another machine's exp(), make no difference.
        cost = round(before - after + TIGHTNESS * cpu_left, 6)
        if cost < best:
            best, best_gpu = cost, chosen
    return best, best_gpu
