"""A set-up with one of each kind that needs no identity provider, and calls for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.api.conftest import Answer, Caller
from tests.builders import SHAPE

SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(days=30)


def at(days: int) -> str:
    return (SOON + timedelta(days=days)).isoformat().replace("+00:00", "Z")


SETUP = f"""\
# What depends on others comes first here: the order of documents says nothing.
apiVersion: egs.io/v1alpha1
kind: GPRTemplate
metadata: {{name: half-node}}
spec: {{workspace: robots, cluster: aurora, default: true, shape: {SHAPE}, nodes: 1, gpusPerNode: 4, duration: 8h30m}}
---
apiVersion: egs.io/v1alpha1
kind: Channel
metadata: {{name: hook}}
spec: {{workspace: robots, kind: webhook, target: https://hooks.example.org/egs, noticeKinds: [ended, started], digest: hourly}}
---
apiVersion: egs.io/v1alpha1
kind: Channel
metadata: {{name: slack}}
spec: {{workspace: robots, kind: slack_webhook, secretFrom: robots-slack, enabled: false}}
---
apiVersion: egs.io/v1alpha1
kind: AlertRule
metadata: {{name: Hot in robots}}
spec:
  workspace: robots
  signal: temperature_c
  kind: threshold
  level: 81.5
  clearLevel: 78
  severeLevel: 90
  hold: 5m
  severity: warning
  cluster: aurora
  shape: {SHAPE}
  runbook: "Lower the batch size."
---
apiVersion: egs.io/v1alpha1
kind: AlertRule
metadata: {{name: Fleet is slow}}
spec: {{signal: queue_wait_s, kind: threshold, level: 7200, severity: info, tells: admins, enabled: false}}
---
apiVersion: egs.io/v1alpha1
kind: Member
metadata: {{name: outsider}}
spec: {{workspace: robots, role: viewer}}
---
apiVersion: egs.io/v1alpha1
kind: Member
metadata: {{name: ada}}
spec: {{workspace: robots, role: owner}}
---
apiVersion: egs.io/v1alpha1
kind: ServiceAccount
metadata: {{name: nightly}}
spec: {{workspace: robots, role: viewer, active: false}}
---
apiVersion: egs.io/v1alpha1
kind: Quota
spec: {{workspace: robots, shape: {SHAPE}, guaranteedGpus: 4, mostGpus: 8}}
---
apiVersion: egs.io/v1alpha1
kind: Quota
spec: {{project: autonomy, shape: {SHAPE}, guaranteedGpus: 8}}
---
apiVersion: egs.io/v1alpha1
kind: Budget
spec: {{workspace: robots, period: week, gpuHours: 500, atLimit: refuse}}
---
apiVersion: egs.io/v1alpha1
kind: Budget
spec: {{project: autonomy, shape: {SHAPE}, period: range, startsAt: {at(0)}, endsAt: {at(30)}, gpuHours: 9000}}
---
apiVersion: egs.io/v1alpha1
kind: Namespace
metadata: {{name: robots-train}}
spec: {{workspace: robots, cluster: aurora, mayAdopt: true}}
---
apiVersion: egs.io/v1alpha1
kind: Workspace
metadata: {{name: robots, labels: {{team: robotics}}}}
spec:
  project: autonomy
  clusters: [aurora, borealis]
  home: aurora
  endsAt: {at(90)}
---
apiVersion: egs.io/v1alpha1
kind: Policy
spec: {{durationApproval: 3d, maySkipChecks: true}}
---
apiVersion: egs.io/v1alpha1
kind: Policy
spec: {{project: autonomy, queuedMax: 7}}
---
apiVersion: egs.io/v1alpha1
kind: Policy
spec:
  workspace: robots
  nodesApproval: 4
  durationMax: 2d
  durationApproval: 12h
  shapes: [{SHAPE}]
  mayEvict: true
  namespacePatterns: [robots, robots-*]
---
apiVersion: egs.io/v1alpha1
kind: ProjectAdmin
metadata: {{name: ada}}
spec: {{project: autonomy}}
---
apiVersion: egs.io/v1alpha1
kind: Project
metadata: {{name: autonomy, labels: {{team: robotics}}}}
---
apiVersion: egs.io/v1alpha1
kind: Maintenance
spec: {{cluster: borealis, startsAt: {at(3)}, endsAt: {at(4)}, reason: "New switches: all racks"}}
---
apiVersion: egs.io/v1alpha1
kind: Maintenance
spec: {{node: aurora-0, startsAt: {at(5)}, endsAt: {at(6)}, reason: "Its fan"}}
---
apiVersion: egs.io/v1alpha1
kind: Supply
metadata: {{name: spot}}
spec: {{cluster: aurora, kind: NODE_POOL, shape: {SHAPE}, gpusPerNode: 8, gpuMemoryGiB: 80, nodeCount: 2, leadTime: 20m, gain: 10m}}
---
apiVersion: egs.io/v1alpha1
kind: CheckPolicy
spec: {{cluster: aurora, limits: {{nccl_bandwidth: 430.5}}, skippedSteps: [storage], runtimeClass: nvidia}}
---
apiVersion: egs.io/v1alpha1
kind: CheckPolicy
spec: {{cluster: aurora, shape: {SHAPE}, images: {{nccl: "registry.example.org/nccl:1"}}}}
---
apiVersion: egs.io/v1alpha1
kind: Cluster
metadata: {{name: aurora}}
spec: {{apiUrl: "https://aurora.example.org:6443", repairsDrift: false, drainGrace: 1m, drainForceAfter: 5m}}
---
apiVersion: egs.io/v1alpha1
kind: Cluster
metadata: {{name: borealis}}
spec: {{enabled: false}}
---
apiVersion: egs.io/v1alpha1
kind: User
metadata: {{name: ada}}
spec: {{email: ada@example.org, role: auditor}}
"""
SECRETS = {"robots-slack": "https://hooks.slack.com/services/T0/B0/secret"}


def apply(caller: Caller, text: str | dict[str, str], **terms: Any) -> Answer:
    return caller.post("manifests/apply/", _body(text, terms))


def diff(caller: Caller, text: str | dict[str, str], **terms: Any) -> Answer:
    return caller.post("manifests/diff/", _body(text, terms))


def _body(text: str | dict[str, str], terms: dict[str, Any]) -> dict[str, Any]:
    files = {"setup.yaml": text} if isinstance(text, str) else text
    return {"files": [{"name": name, "text": each} for name, each in files.items()], **terms}


def acts(answer: Answer) -> list[str]:
    assert answer.status_code == 200, answer.content
    return [row["act"] for row in answer.json()["results"]]


def mistakes(answer: Answer) -> list[tuple[int, str, str]]:
    """Returns line, field and code of each mistake."""
    body = answer.json()
    return [(fault["line"], fault["field"], fault["code"]) for fault in body["faults"]]


def document(kind: str, name: str = "", spec: str = "") -> str:
    metadata = f"metadata: {{name: {name}}}\n" if name else ""
    return f"apiVersion: egs.io/v1alpha1\nkind: {kind}\n{metadata}" + (f"spec: {{{spec}}}\n" if spec else "")
