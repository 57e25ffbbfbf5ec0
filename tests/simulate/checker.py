"""Checks a schedule against its lists, from the three files alone: it shares no code with what made them."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path


def check(nodes: Path, jobs: Path, schedule: Path) -> list[str]:
    """Every job once, at its full length, not before it was submitted, on as many nodes as it asked for, and no GPU twice."""
    gpus_of = {row["name"]: int(row["gpus"]) for row in _rows(nodes)}
    job_of = {row["id"]: row for row in _rows(jobs)}
    found: list[str] = []
    changes: dict[str, list[tuple[int, int]]] = defaultdict(list)
    seen: set[str] = set()
    for row in _rows(schedule):
        found += _check_row(row, job_of, gpus_of, seen)
        for node in row["nodes"].split():
            # An end and a start in the same second do not overlap: -gpus sorts before +gpus.
            gpus = int(row["gpus_per_node"]) or gpus_of.get(node, 0)
            changes[node] += [(int(row["start_s"]), gpus), (int(row["end_s"]), -gpus)]
    found += [f"{id_} never ran" for id_ in job_of.keys() - seen]
    return found + [f"{node} is over-full" for node in changes if _most(changes[node]) > gpus_of.get(node, 0)]


def _check_row(row: dict[str, str], job_of: dict[str, dict[str, str]], gpus_of: dict[str, int], seen: set[str]) -> list[str]:
    id_, job, names = row["id"], job_of.get(row["id"]), row["nodes"].split()
    if job is None or id_ in seen:
        return [f"{id_} is unknown or ran twice"]
    seen.add(id_)
    asked = int(job["gpus_per_node"])
    claims = {
        "starts before it was submitted": int(row["start_s"]) < int(job["submit_s"]),
        "does not run at its full length": int(row["end_s"]) - int(row["start_s"]) != int(job["run_s"]),
        "has the wrong nodes": not len(names) == len(set(names)) == int(job["nodes"]) or not set(names) <= gpus_of.keys(),
        "has the wrong GPUs": any((int(row["gpus_per_node"]) or gpus_of[n]) != (asked or gpus_of[n]) for n in names),
    }
    return [f"{id_} {claim}" for claim, is_so in claims.items() if is_so]


def _most(changes: list[tuple[int, int]]) -> int:
    used = most = 0
    for _, change in sorted(changes):
        used += change
        most = max(most, used)
    return most


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
