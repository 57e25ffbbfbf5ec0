"""Small lists to replay."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

NODE_HEADER = "name,cluster,shape,gpus"
JOB_HEADER = "id,submit_s,reserve_s,run_s,nodes,gpus_per_node,priority,project"


def write(path: Path, header: str, lines: Iterable[str]) -> Path:
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def write_nodes(path: Path, count: int = 3, gpus: int = 4) -> Path:
    return write(path, NODE_HEADER, (f"n{i},c,s,{gpus}" for i in range(count)))


def write_jobs(path: Path, *lines: str) -> Path:
    return write(path, JOB_HEADER, lines)


def random_jobs(seed: int, count: int) -> list[str]:
    """Draws jobs for three nodes of four GPUs, half again as much work as they can do."""
    dice = random.Random(seed)
    lines, submit_s = [], 0
    for i in range(count):
        submit_s += dice.choice([0, 0, 5, 20, 60])
        run_s = dice.randint(1, 120)
        nodes, gpus = dice.choice([(1, 1), (1, 1), (1, 2), (1, 4), (2, 4), (3, 2), (1, 0)])
        reserve_s = run_s * dice.randint(1, 3)
        lines.append(f"j{i},{submit_s},{reserve_s},{run_s},{nodes},{gpus},{dice.choice([50, 101, 201])},x")
    return lines
