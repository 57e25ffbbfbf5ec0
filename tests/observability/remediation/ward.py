"""Helpers of the tests of remediation: a stage whose agent can repair nodes, and readings of its GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from inventory.models import AgentCredential, AgentSession, Node, Repair
from inventory.services.sync import desired_set
from journal.models import Event
from observability.models import RemediationCase
from observability.remediation.services import remediation_step
from protocol.agents.events import Outcome, StepEvent
from protocol.assignments import Assignment, Phase
from protocol.nodes.steps import CAPABILITIES
from tests.builders import nodes_of
from tests.inventory.agent import seen_of
from tests.lifecycle.stage import Stage
from tests.observability.telemetry.saying import gpus_of, reading, store, with_xids


class Ward(Stage):
    """The time is the stage's; every `look` is a step of remediation after new readings."""

    def __init__(self, *, nodes: int = 2, gpus: int = 2) -> None:
        super().__init__(nodes=nodes, gpus=gpus)
        AgentSession.objects.update(capabilities=list(CAPABILITIES))
        AgentCredential.objects.update(expires_at=self.now + timedelta(days=90))
        self.said: dict[Any, dict[str, float]] = {}
        self.xids: dict[Any, dict[int, int]] = {}  # of GPUs whose exporter counts them
        self.look()

    @property
    def node(self) -> Node:
        return nodes_of(self.cluster)[0]

    @property
    def case(self) -> RemediationCase:
        return RemediationCase.objects.select_related("node").get(node=self.node, closed_at=None)

    def read(self, node: Node | None = None, gpu: int = 0, **counts: float) -> None:
        """Sets what this GPU has counted from now on."""
        self.count(counts, node=node, gpu=gpu)

    def count(self, counts: Mapping[str, float], *, node: Node | None = None, gpu: int = 0) -> None:
        self.said.setdefault(gpus_of(node or self.node)[gpu].pk, {}).update(counts)

    def look(self, after_s: float = 15) -> None:
        self.after(after_s)
        zero = dict.fromkeys(("xid", "ecc_corrected", "ecc_uncorrected", "rows_remapped", "rows_failed", "pcie_replays"), 0.0)
        gpus = [gpu for node in nodes_of(self.cluster) for gpu in gpus_of(node)]
        readings = [(gpu, reading(gpu, at=self.now, **{**zero, **self.said.get(gpu.pk, {})})) for gpu in gpus]
        store(self.cluster, *(with_xids(said, self.xids.get(gpu.pk, {})) for gpu, said in readings), now=self.now)
        remediation_step(now=self.now)

    # -- the agent of a repair -----------------------------------------------------------------------------------------

    @property
    def repair(self) -> Assignment:
        return next(each for each in desired_set(cluster_id=self.cluster.pk, now=self.now) if each.is_repair)

    def repair_says(self, *phases: Phase, **said: Any) -> None:
        for phase in phases:
            self.agent.sync(seen_of(self.repair, phase, **said), at=self.now)

    def step_ends(self, name: str, outcome: Outcome = Outcome.OK, **said: Any) -> None:
        self.agent.seq += 1
        told: dict[str, Any] = {"attempt": 1, "started_s": self.now.timestamp(), "ended_s": self.now.timestamp(), **said}
        of, epoch = self.repair.id, self.repair.epoch
        event = StepEvent(seq=self.agent.seq, assignment_id=of, epoch=epoch, step=name, outcome=outcome, **told)
        self.agent.events(event, at=self.now)

    def passes(self) -> None:
        """Every step passes, and the agent leaves the node."""
        for step in self.repair.entry_steps:
            self.step_ends(step)
        self.repair_says(Phase.ENTERING, Phase.ENTERED)
        self.look()
        self.repair_says(Phase.EXITING, Phase.RELEASED)
        self.look()

    def fails(self, step: str = "gpu_health", **said: Any) -> None:
        self.step_ends(step, Outcome.FAILED, **said)
        self.repair_says(Phase.ENTERING)
        self.repair_says(Phase.FAILED, failure=f"check {step} failed 2 times on node {self.node.name}")
        self.look()
        self.repair_says(Phase.RELEASED)
        self.look()


def told(*kinds: str) -> list[str]:
    return list(Event.objects.filter(kind__in=[f"remediation.{kind}" for kind in kinds]).order_by("pk").values_list("message", flat=True))


def repairs_of(node: Node) -> list[str]:
    return list(Repair.objects.filter(node=node).order_by("begun_at").values_list("action", flat=True))
