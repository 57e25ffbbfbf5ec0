"""The openb traces (Alibaba 2023, published with ATC'23): nodes, requests, the order they arrive in, and mixes made anew of them."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bench.packing.model import WHOLE_GPU, PackNode, PackRequest

# Demand that arrives, in GPUs of the cluster's.
LOAD = 1.3

Mix = tuple[Sequence[PackNode], Sequence[PackRequest]]


def read_nodes(folder: Path) -> list[PackNode]:
    with (folder / "openb_node_list_gpu_node.csv").open() as file:
        return [
            PackNode(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
            for row in csv.DictReader(file)
        ]


def read_requests(folder: Path, workload: str) -> list[PackRequest]:
    with (folder / f"openb_pod_list_{workload}.csv").open() as file:
        return [_request(row) for row in csv.DictReader(file)]


def _request(row: dict[str, str]) -> PackRequest:
    gpu_count = int(row["num_gpu"])
    if gpu_count == 0:
        return PackRequest(int(row["cpu_milli"]), int(row["memory_mib"]))
    models = tuple(model for model in row.get("gpu_spec", "").split("|") if model)
    return PackRequest(int(row["cpu_milli"]), int(row["memory_mib"]), gpu_count, min(int(row["gpu_milli"]), WHOLE_GPU), models)


def published(folder: Path, workload: str, policy: str) -> dict[int, float]:
    """Returns the GPUs that the paper allocated, in percent, when 130 % of demand has arrived, by seed."""
    with (folder / "fgd_expected_allocation.csv").open() as file:
        return {
            int(row["seed"]): float(row["130"])
            for row in csv.DictReader(file)
            if row["workload"] == f"openb_pod_list_{workload}" and row["sc_policy"].partition("-")[2] == policy
        }


def arrivals(requests: Sequence[PackRequest], capacity: int, rng: random.Random) -> list[PackRequest]:
    """Returns all requests in random order, plus others drawn from them up to LOAD times the capacity, or without some."""
    stream, goal = list(requests), LOAD * capacity
    rng.shuffle(stream)
    asked = sum(request.gpu_milli_sum for request in stream)
    while asked > goal:
        asked -= stream.pop(rng.randrange(len(stream))).gpu_milli_sum
    while asked + (request := rng.choice(requests)).gpu_milli_sum <= goal:
        asked += request.gpu_milli_sum
        stream.append(request)
    return stream


def mixes(nodes: Sequence[PackNode], requests: Sequence[PackRequest]) -> dict[str, Mix]:
    """Makes workloads and clusters unlike the published ones, the same ones each time."""
    made: dict[str, Mix] = {}
    for percent in (20, 60):
        made[f"{percent} % of GPUs shared"] = nodes, _with_share(requests, _is_shared, percent / 100)
    for percent in (30, 50):
        made[f"{percent} % of GPUs in several"] = nodes, _with_share(requests, _is_several, percent / 100)
    without_gpu = [request for request in requests if request.gpu_count == 0]
    made["none without a GPU"] = nodes, [request for request in requests if request.gpu_count]
    made["twice those without a GPU"] = nodes, [*requests, *without_gpu]
    for percent in (10, 33):
        made[f"{percent} % name a model"] = nodes, _with_models(requests, nodes, percent / 100)
    made["whole GPUs only"] = nodes, [replace(request, gpu_milli=WHOLE_GPU) if request.gpu_count else request for request in requests]
    made["a tenth of the nodes"] = random.Random(1).sample(nodes, len(nodes) // 10), requests
    return made


def _is_shared(request: PackRequest) -> bool:
    return 0 < request.gpu_milli < WHOLE_GPU


def _is_several(request: PackRequest) -> bool:
    return request.gpu_count > 1


def _with_share(requests: Sequence[PackRequest], chosen: Callable[[PackRequest], bool], share: float) -> list[PackRequest]:
    """Keeps as many GPUs as before and puts that share of them into chosen requests; those without a GPU stay."""
    rng = random.Random(1)
    total = sum(request.gpu_milli_sum for request in requests)
    made = [request for request in requests if request.gpu_count == 0]
    for wanted, goal in ((True, share * total), (False, (1 - share) * total)):
        pool = [request for request in requests if request.gpu_count and chosen(request) == wanted]
        asked = 0
        while asked < goal:
            made.append(rng.choice(pool))
            asked += made[-1].gpu_milli_sum
    return made


def _with_models(requests: Sequence[PackRequest], nodes: Sequence[PackNode], share: float) -> list[PackRequest]:
    """Lets this share of the requests with a GPU name the model of a random GPU on a node that could hold them."""
    rng = random.Random(1)
    weights = [node.gpu_count for node in nodes]
    made = []
    for request in requests:
        if request.gpu_count and rng.random() < share:
            node = rng.choices(nodes, weights)[0]
            if node.gpu_count >= request.gpu_count and node.cpu_milli >= request.cpu_milli:
                request = replace(request, models=(node.model,))  # noqa: PLW2901 - the same one, told apart
        made.append(request)
    return made
