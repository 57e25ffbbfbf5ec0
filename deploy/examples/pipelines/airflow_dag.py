"""Defines a DAG of Airflow: it files two boxes at once, the second after the first, and each task waits for its own.

The workers have the wheel of egs_client, and EGS_URL, EGS_TOKEN and EGS_WORKSPACE in their environment.
"""

from __future__ import annotations

from airflow.sdk import dag, task

from egs_client import Client

SHAPE = "H100-80GB"


@dag(schedule=None, catchup=False, tags=["gpu"])
def train():
    @task
    def file(run: str) -> dict[str, str]:
        with Client() as egs:
            box = {"slice": egs.workspace, "shape": SHAPE, "nodes": 1}
            prep = egs.gprs.create(**box, name=f"prep-{run}", duration_s=3600)
            then = egs.gprs.create(**box, name=f"train-{run}", duration_s=8 * 3600, after=prep.id, after_condition="success")
            return {"prep": prep.id, "train": then.id}

    @task
    def in_box(filed: dict[str, str], name: str) -> list[str]:
        with Client() as egs:
            box = egs.wait(filed[name])
            try:
                return [node.node for node in box.nodes_assigned]  # your work
            finally:
                egs.end(box.id)

    @task(trigger_rule="all_done")
    def give_back(filed: dict[str, str]) -> None:
        with Client() as egs:
            for gpr in reversed(filed.values()):
                egs.end(gpr)

    filed = file(run="{{ run_id }}")
    in_box.override(task_id="prepare")(filed, "prep") >> in_box.override(task_id="train")(filed, "train") >> give_back(filed)


train()
