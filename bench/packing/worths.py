"""Computes shadow prices: what a share of a GPU is worth to the demand that is expected, and what CPU costs beside it.

The best fractional packing of a demand into nodes is a linear program over patterns, as in cutting stock (Gilmore and Gomory 1961).
Its duals say what each kind of request is worth: less than its size where kinds that share a GPU well with it are many. With the
price of CPU as a multiplier (Lagrange) a node's GPUs fall apart into single ones, and the best pattern of one GPU is a knapsack over
its free thousandths. The maximum there is a soft one: a choice that is nearly as good counts nearly as much. So the duals are smooth
and found by steps along the gap between supply and demand, and free shares that many patterns can fill are worth more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

from bench.packing.kernels import CPU, GPUS, MILLI, MODELS, STEP, Bools, Floats, Ints, room
from bench.packing.model import WHOLE_GPU, Kind, PackNode, model_bits, model_mask

# Prices of a core to choose from, in thousandths of a GPU.
CORE_PRICES = (0, 4, 8, 12, 16, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 80, 90, 100, 120, 150, 200, 300, 500)
CPU_PRICES = np.array(CORE_PRICES, dtype=np.float64) / 1000
# How many thousandths of a GPU a choice may be worse and still count a good third.
SOFTNESS = 20.0
ROUNDS = 150
FIRST_STEP = 0.05
# A price may fall below zero: a soft maximum would otherwise still pick what nobody asks for.
LEAST_PRICE = -200.0


@dataclass(frozen=True, slots=True, eq=False)
class Worths:
    """`table` is classes×prices×101: what a GPU with so much free earns, at each price of CPU. Models that the demand cannot tell
    apart share a class. `prices` are those of the kinds with a GPU, in the demand's order, in thousandths of a GPU."""

    table: Floats
    class_of: dict[str, int]
    prices: Floats


def worths_of(nodes: Sequence[PackNode], demand: Sequence[Kind]) -> Worths:
    """The worths for empty `nodes` under a demand scaled to as many GPUs as they have. They depend on no order of the nodes.

    O(rounds × prices × 100 × kinds) for each class of models.
    """
    bits = model_bits(nodes)
    kinds, shares = kind_rows(demand, bits)
    is_gpu = kinds[:, GPUS] > 0
    kinds, shares = kinds[is_gpu], shares[is_gpu]

    classes: dict[tuple[bool, ...], int] = {}
    class_of = {
        model: classes.setdefault(tuple(bool(mask & bit) for mask in kinds[:, MODELS]), len(classes)) for model, bit in bits.items()
    }
    usable = np.array(list(classes), dtype=np.bool_).reshape(len(classes), len(kinds))
    shapes = sorted({(node.cpu_milli, node.gpu_count, class_of[node.model]) for node in nodes})
    count = dict.fromkeys(shapes, 0)
    for node in nodes:
        count[node.cpu_milli, node.gpu_count, class_of[node.model]] += 1
    shape_rows = np.array([(*shape, count[shape]) for shape in shapes], dtype=np.int64).reshape(len(shapes), 4)

    sizes = (kinds[:, GPUS] * kinds[:, MILLI]).astype(np.float64)
    total = float((shares * sizes).sum())
    capacity = WHOLE_GPU * sum(node.gpu_count for node in nodes)
    wanted = shares * capacity / total if total else shares
    table, prices = _solve(kinds, sizes, wanted, usable, shape_rows, CPU_PRICES)
    return Worths(table, class_of, prices)


def scarcity_of(nodes: Sequence[PackNode], kinds: Ints, shares: Floats, bits: dict[str, int]) -> tuple[Ints, Floats]:
    """The kinds with several GPUs, and for each its part of all GPUs asked for, times how many GPUs it cannot have per one it can.

    Worths see single GPUs, so they would break up the few nodes that can take eight GPUs with much CPU. Where every node can take
    a kind it weighs nothing: the worths do well there.
    """
    shapes = Counter((node.cpu_milli, node.gpu_count, bits[node.model]) for node in nodes)
    capacity = WHOLE_GPU * sum(node.gpu_count for node in nodes)
    sizes = shares * kinds[:, GPUS] * kinds[:, MILLI]
    several = kinds[:, GPUS] > 1
    weights = sizes[several] / max(1e-9, float(sizes.sum()))
    for place, row in enumerate(kinds[several]):
        places = sum(
            count * room(cpu, np.full(gpu_count, WHOLE_GPU), model, row.reshape(1, -1), np.ones(1))
            for (cpu, gpu_count, model), count in shapes.items()
        )
        weights[place] *= capacity / places - 1 if places else 0.0
    return kinds[several], weights


def kind_rows(demand: Sequence[Kind], bits: dict[str, int]) -> tuple[Ints, Floats]:
    """Returns the demand as kernels want it: k×5 and k."""
    rows = [(kind.request.cpu_milli, 0, kind.request.gpu_count, kind.request.gpu_milli, model_mask(kind.request, bits)) for kind in demand]
    return np.array(rows, dtype=np.int64).reshape(len(rows), 5), np.array([kind.share for kind in demand], dtype=np.float64)


@njit(cache=True)
def _solve(kinds: Ints, sizes: Floats, wanted: Floats, usable: Bools, shapes: Ints, cpu_prices: Floats) -> tuple[Floats, Floats]:
    """Raise the price of kinds that get too few places, lower it where there are too many. `shapes`: CPU, GPUs, class, nodes."""
    prices = sizes.copy()
    weights = wanted * sizes / max(1e-9, (wanted * sizes).sum())
    table = np.zeros((usable.shape[0], cpu_prices.shape[0], WHOLE_GPU // STEP + 1))
    for round_ in range(ROUNDS + 1):
        for class_ in range(table.shape[0]):
            for price in range(table.shape[1]):
                _fill(table[class_, price], kinds, prices, weights, usable[class_], cpu_prices[price])
        if round_ == ROUNDS:
            break
        supply = _supply(table, kinds, prices, weights, usable, shapes, cpu_prices)
        step = FIRST_STEP / math.sqrt(1 + round_ / 20)
        gap = (supply - wanted) / (supply + wanted + 1e-9)
        prices = np.minimum(sizes, np.maximum(prices - step * gap * sizes, LEAST_PRICE))
    return table, prices


@njit(cache=True)
def _fill(worth: Floats, kinds: Ints, prices: Floats, weights: Floats, usable: Bools, cpu_price: float) -> None:
    """Fills the soft knapsack of one GPU: `worth[r]` from `worth[r - 1]` and from each kind that fits into r steps."""
    earned = (prices - cpu_price * kinds[:, CPU]) / kinds[:, GPUS]
    steps = (kinds[:, MILLI] + STEP - 1) // STEP
    worth[0] = 0.0
    for free in range(1, worth.shape[0]):
        most = worth[free - 1]
        for kind in range(kinds.shape[0]):
            if usable[kind] and steps[kind] <= free:
                most = max(most, earned[kind] + worth[free - steps[kind]])
        total = math.exp((worth[free - 1] - most) / SOFTNESS)
        for kind in range(kinds.shape[0]):
            if usable[kind] and steps[kind] <= free:
                total += weights[kind] * math.exp((earned[kind] + worth[free - steps[kind]] - most) / SOFTNESS)
        worth[free] = most + SOFTNESS * math.log(total)


@njit(cache=True)
def _supply(table: Floats, kinds: Ints, prices: Floats, weights: Floats, usable: Bools, shapes: Ints, cpu_prices: Floats) -> Floats:
    """How many requests of each kind the empty nodes would take at these prices."""
    supply = np.zeros(kinds.shape[0])
    top = table.shape[2] - 1
    for shape in range(shapes.shape[0]):
        cpu, gpu_count, class_, node_count = shapes[shape]
        if gpu_count == 0:
            continue
        # Its dual bound per GPU at each price of CPU; the lowest is the best, those near it count, too.
        bounds = cpu_prices * cpu / gpu_count + table[class_, :, top]
        chances = np.exp((bounds.min() - bounds) / SOFTNESS)
        chances /= chances.sum()
        for price in range(cpu_prices.shape[0]):
            if chances[price] > 1e-3:
                picks = _picks(table[class_, price], kinds, prices, weights, usable[class_], cpu_prices[price])
                supply += node_count * gpu_count * chances[price] * picks / kinds[:, GPUS]
    return supply


@njit(cache=True)
def _picks(worth: Floats, kinds: Ints, prices: Floats, weights: Floats, usable: Bools, cpu_price: float) -> Floats:
    """Returns how many of each kind the soft knapsack puts on one empty GPU, on average: its choices followed from the top down."""
    earned = (prices - cpu_price * kinds[:, CPU]) / kinds[:, GPUS]
    steps = (kinds[:, MILLI] + STEP - 1) // STEP
    picks = np.zeros(kinds.shape[0])
    reached = np.zeros(worth.shape[0])
    reached[-1] = 1.0
    for free in range(worth.shape[0] - 1, 0, -1):
        if reached[free] < 1e-9:
            continue
        reached[free - 1] += reached[free] * math.exp((worth[free - 1] - worth[free]) / SOFTNESS)
        for kind in range(kinds.shape[0]):
            if usable[kind] and steps[kind] <= free:
                rest = free - steps[kind]
                chance = reached[free] * weights[kind] * math.exp((earned[kind] + worth[rest] - worth[free]) / SOFTNESS)
                picks[kind] += chance
                reached[rest] += chance
    return picks
