"""`egs lint` knows the types of values from the SDK, without a server."""

from __future__ import annotations

import pytest
import yaml

from egs_client.cli.manifests.types import type_faults
from egs_client.manifests.documents import documents_check
from egs_client.manifests.text import documents_read
from tests.api.manifests.setups import SETUP, document
from tests.e2e.processes import ROOT


@pytest.mark.parametrize(
    ("kind", "name", "spec", "field", "detail"),
    [
        ("GPRTemplate", "a", "workspace: vision, nodes: two", "nodes", "Must be a whole number."),
        ("GPRTemplate", "a", "workspace: vision, rdma: 1", "rdma", "Must be true or false."),
        ("GPRTemplate", "a", "workspace: vision, shape: 100", "shape", 'Must be text. Write it in quotes: "100".'),
        ("GPRTemplate", "a", "workspace: vision, duration: [8h]", "duration", "Must be a duration as 8h30m, 2d or 90s."),
        ("Member", "a", "workspace: vision, role: ownr", "role", "There is no ownr here. Did you mean owner?"),
        ("Member", "a", "workspace: vision, role: 7", "role", 'Must be text. Write it in quotes: "7".'),
        ("Workspace", "a", "project: p, clusters: aurora", "clusters", "Must be a list."),
        ("Quota", "", "project: p, shape: H100-80GB, mostGpus: many", "mostGpus", "Must be a whole number."),
        ("GPUJob", "a", "workspace: vision, env: [A]", "env", "Must be a mapping."),
        ("GPRTemplate", "a", "workspace: vision, nodes: 0", "nodes", "Must be 1 at least."),
        ("GPUProvisioningRequest", "a", "workspace: vision, priority: 301", "priority", "Must be 300 at most."),
        ("Policy", "", "workspace: vision, aheadMax: 30s", "aheadMax", "Must be 60 s at least."),
        ("AlertRule", "a", "workspace: vision, severity: error, runbook: " + "x" * 1001, "runbook", "Must have 1000 characters at most."),
        ("Maintenance", "", "cluster: c, startsAt: tomorrow", "startsAt", "Must be a time as 2026-11-27T10:00:00Z."),
        ("Quota", "", 'project: p, shape: "", mostGpus: 1', "shape", "Must not be empty."),
    ],
)
def test_a_value_that_can_never_be_one_of_the_field_is_told_with_its_line(kind: str, name: str, spec: str, field: str, detail: str) -> None:
    (fault,) = type_faults(documents_check(documents_read("a", document(kind, name, spec))[0])[0])

    assert (fault.line, fault.field, fault.detail) == (4 if name else 3, f"spec.{field}", detail)


@pytest.mark.parametrize(
    ("kind", "name", "spec", "rule"),
    [
        ("Project", "a b", "", "63 at most."),
        ("Workspace", "-a", "project: p", "63 at most."),
        ("Namespace", "A", "workspace: w, cluster: c", "a Kubernetes namespace."),
        ("User", "x" * 64, "", "63 at most."),
    ],
)
def test_a_name_of_another_form_is_told_with_the_rule(kind: str, name: str, spec: str, rule: str) -> None:
    (fault,) = type_faults(documents_check(documents_read("a", document(kind, name, spec))[0])[0])

    assert (fault.field, fault.line) == ("metadata.name", 3)
    assert fault.detail.endswith(rule)


@pytest.mark.parametrize("text", [SETUP, (ROOT / "deploy/examples/templates.yaml").read_text()], ids=["every kind", "templates"])
def test_what_can_be_applied_has_no_mistake(text: str) -> None:
    wanted, _ = documents_check(documents_read("a", text)[0])

    assert len(wanted) == len(list(yaml.safe_load_all(text)))
    assert not list(type_faults(wanted))
