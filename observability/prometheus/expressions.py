"""Writes PromQL for the courses of GPUs, by the table of exporters, and reads the answers. It is pure.

One expression asks for one metric of all vendors: each source is a branch that a label names, and `read` takes of each GPU the best source
that is there, as the agent does with a scrape.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from protocol.gpus.exporters import NOT_A_PART, PART_LABELS, SOURCES, Reads, Source
from protocol.gpus.telemetry import FAULT_TOTALS, SERIES, SUMMED_OVER_PARTS, RollUp

BRANCH: Final = "egs_branch"
NEW_FAULTS: Final = "new_faults"
# The labels by which each vendor's exporter names a GPU, a node with an index, and a part of a GPU. Keys begin the metrics' names.
_NAMES: Final = {
    "DCGM_": (("UUID", "gpu_uuid"), (("Hostname", "gpu"), ("hostname", "gpu")), "GPU_I_ID"),
    "xpum_": (("uuid",), (), "sub_dev"),
    "": (("gpu_uuid", "UUID"), (("hostname", "gpu_id"),), "gpu_partition_id"),
}
_Sources = dict[tuple[str, bool, str], float]  # by metric, whether it is of a part, and the exporter's name
_OVER: Final = {RollUp.MOST: "max_over_time", RollUp.MEAN: "avg_over_time"}
MATCHERS: Final = re.compile(r'[a-zA-Z_]\w*(=|!=|=~|!~)"(?:[^"\\\n]|\\.)*"(,[a-zA-Z_]\w*(=|!=|=~|!~)"(?:[^"\\\n]|\\.)*")*')


@dataclass(frozen=True, slots=True)
class NamedGpu:
    """Names a GPU as exporters may name it."""

    key: UUID
    uuid: str
    node: str
    index: int
    is_by_place: bool  # the driver's UUID is not known: by its node and index, too


@dataclass(frozen=True, slots=True)
class Branch:
    name: str
    source: Source
    labels: tuple[str, ...]  # that name the GPU
    is_part: bool  # of parts of a GPU: counts where nothing is said about the whole
    text: str


@dataclass(frozen=True, slots=True)
class Expression:
    metric: str
    text: str
    branches: tuple[Branch, ...]


def expressions(gpus: Sequence[NamedGpu], *, step_s: int, matchers: str) -> list[Expression]:
    """Returns one for each metric with a course."""
    found = []
    for metric in SERIES:
        branches = list(_branches(metric.name, metric.roll_up, gpus, step_s, matchers))
        marked = (f'label_replace({branch.text}, "{BRANCH}", "{number}", "", "")' for number, branch in enumerate(branches))
        found.append(Expression(metric.name, " or ".join(marked), tuple(branches)))
    return found


def read(expression: Expression, series: Iterable[Mapping[str, Any]], gpus: Sequence[NamedGpu]) -> dict[UUID, dict[float, float]]:
    """Returns the values by GPU and by the end of the step. Raises KeyError, TypeError or ValueError for what is no answer to it."""
    by_uuid = {gpu.uuid: gpu.key for gpu in gpus}
    by_place = {(gpu.node, str(gpu.index)): gpu.key for gpu in gpus if gpu.is_by_place}
    found: dict[UUID, dict[float, _Sources]] = defaultdict(lambda: defaultdict(dict))
    for each in series:
        labels = each["metric"]
        branch = expression.branches[int(labels[BRANCH])]
        named = tuple(labels[name] for name in branch.labels)
        key = by_uuid.get(named[0]) if len(named) == 1 else by_place.get((named[0], named[1]))
        if key is None:
            continue
        source, of = branch.source, (branch.source.metric, branch.is_part, branch.name)
        for at_s, text in each["values"]:
            value = float(text) * source.scale
            if value - value == 0:  # no NaN and no infinity
                # A source may name the GPU in two ways: then it says the same twice.
                point = found[key][float(at_s)]
                point[of] = max(value, point.get(of, value))
    return {key: {at_s: _value(sources) for at_s, sources in points.items()} for key, points in found.items()}


def _value(sources: _Sources) -> float:
    """Take the best source of each metric, and add up the metrics: only faults have several."""
    ranked: dict[str, dict[tuple[bool, int], float]] = defaultdict(dict)
    for (metric, is_part, name), value in sources.items():
        source = SOURCES[name.encode()]
        of, rank = ranked[metric], (is_part, source.rank)
        of[rank] = of.get(rank, 0.0) + value if source.is_part else max(value, of.get(rank, value))
    return sum(of[min(of)] for of in ranked.values())


def _branches(metric: str, roll_up: RollUp, gpus: Sequence[NamedGpu], step_s: int, matchers: str) -> Iterator[Branch]:
    wanted = (*FAULT_TOTALS, "xid") if metric == NEW_FAULTS else (metric,)
    uuids, placed = [gpu.uuid for gpu in gpus], [gpu for gpu in gpus if gpu.is_by_place]
    for raw, source in SOURCES.items():
        if source.metric not in wanted:
            continue
        name = raw.decode()
        uuid_labels, places, part = _NAMES[next(begin for begin in _NAMES if name.startswith(begin))]
        ways: list[tuple[tuple[str, ...], str]] = [((label,), f"{label}=~{_any(uuids)}") for label in uuid_labels]
        ways += [
            ((node, index), f"{node}=~{_any({gpu.node for gpu in placed})},{index}=~{_any({str(gpu.index) for gpu in placed})}")
            for node, index in places
            if placed
        ]
        function = _function(source, roll_up)
        for labels, match in ways:
            said = [match, *([matchers] if matchers else []), *([f"{source.only[0]}={json.dumps(source.only[1])}"] if source.only else [])]
            none = _any(NOT_A_PART)
            whole = ",".join([*said, *(f"{label}=~{none}" for label in PART_LABELS)])
            yield Branch(name, source, labels, False, _summed(f"{function}({name}{{{whole}}}[{step_s}s])", labels, source.adds, "sum"))
            over = "sum" if metric in SUMMED_OVER_PARTS else "max"
            parts = ",".join([*said, f"{part}!~{none}"])
            yield Branch(name, source, labels, True, _summed(f"{function}({name}{{{parts}}}[{step_s}s])", labels, part, over))


def _function(source: Source, roll_up: RollUp) -> str:
    if source.metric == "xid":
        return "changes"
    if source.reads is Reads.TOTAL:
        return "increase"
    return "rate" if source.reads is Reads.RATE else _OVER[roll_up]


def _summed(inner: str, labels: Sequence[str], adds: str, over: str) -> str:
    """Merge several series of one GPU: each pod that used it makes one, and so does each scrape job."""
    by = ",".join(labels)
    return f"{over} by ({by}) (max by ({by},{adds}) ({inner}))" if adds else f"max by ({by}) ({inner})"


def _any(texts: Iterable[str]) -> str:
    """Return a quoted regular expression that matches any of these texts; PromQL matches the whole label."""
    return json.dumps("|".join(re.sub(r"([^\w-])", r"\\\1", text) for text in sorted(texts)))
