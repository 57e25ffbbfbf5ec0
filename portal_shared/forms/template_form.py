"""Has the form of a template, and says what a template gives to the forms of requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml
from django import forms

from core.pages import words
from gpr.jobs.spec import FIELDS as JOB_FIELDS
from gpr.models import GprTemplate, Nearness
from gpr.templates.api import API_NAMES, TemplateJob, job_of
from gpr.templates.services import TemplateChange
from inventory.models import Cluster
from portal_shared.forms.fields import IdleField, PlainTextField, SpanField
from portal_shared.forms.service_form import ServiceForm
from protocol.manifests.text import documents_read
from slices.models import PRIORITY_MAX, PRIORITY_MIN, Slice

NUMBER_MAX = 2**31 - 1
OPTIONAL_FLAGS = ("rdma", "run_checks", "evictable", "may_evict", "requeue_on_failure")
OF_WORKSPACES = ("cluster", "is_default", "auto")  # no field of a template of the platform
FLAGS = ("is_booking", "rdma", "evictable", "may_evict", "requeue_on_failure", "run_checks")
SAME_FIELDS = (
    "name",
    "shape",
    "min_gpu_memory_gib",
    "nodes",
    "gpus_per_node",
    "priority",
    "earliest_start_at",
    "after_condition",
    "node_type",
    "within",
    *FLAGS,
)


def _optional_flag(label: str) -> forms.ChoiceField:
    return forms.ChoiceField(label=label, required=False, choices=[("", "Not set"), ("yes", "Yes"), ("no", "No")])


RUNS_HINT = "Write YAML with the fields of a job: kind (Job, Notebook, …), image, command, env, volumes, retries. Empty: requests alone."
RUNS_ATTRS = {"rows": 8, "spellcheck": "false", "autocapitalize": "off", "class": "mono"}


class TemplateForm(ServiceForm):
    """An empty field is not part of the template."""

    name = PlainTextField(label="Name", max_length=63)
    cluster = forms.ChoiceField(label="For", required=False)
    shape = forms.ChoiceField(label="GPU", required=False)
    min_gpu_memory_gib = forms.IntegerField(label="GPU memory in GiB at least", required=False, min_value=1, max_value=100_000)
    nodes = forms.IntegerField(label="Nodes", required=False, min_value=1, max_value=NUMBER_MAX)
    gpus_per_node = forms.IntegerField(label="GPUs per node", required=False, min_value=1, max_value=NUMBER_MAX)
    duration = SpanField(label="Duration", max_length=40, required=False)
    priority = forms.IntegerField(
        label=f"Priority, {PRIORITY_MIN} to {PRIORITY_MAX}", required=False, min_value=PRIORITY_MIN, max_value=PRIORITY_MAX
    )
    node_type = PlainTextField(label="Node type", max_length=63, required=False)
    within = forms.ChoiceField(label="All nodes in", required=False, choices=[("", "Not set"), *Nearness.choices[1:]])
    rdma = _optional_flag("Only nodes with RDMA")
    run_checks = _optional_flag("Run all entry checks")
    evictable = _optional_flag("May be evicted for a higher priority")
    may_evict = _optional_flag("May evict others of lower priority")
    requeue_on_failure = _optional_flag("Queue again when evicted or failed")
    idle_timeout = IdleField(label="Release when idle for", max_length=40, required=False, help_text="E.g. 45 min, or “never”.")
    runs = forms.CharField(label="What it runs", required=False, strip=False, help_text=RUNS_HINT, widget=forms.Textarea(attrs=RUNS_ATTRS))
    is_default = forms.BooleanField(label="Make default (replaces the current one)", required=False)
    auto = forms.BooleanField(label="As default, create requests for waiting GPU pods", required=False)

    def __init__(self, *args: Any, slice_: Slice | None, shapes: Sequence[str], own: Cluster | None = None, **kwargs: Any) -> None:
        """`slice_` None: of the platform. `own`: the template's cluster, a choice even if the workspace cannot use it any more."""
        super().__init__(*args, **kwargs)
        clusters = [*(slice_.clusters.all() if slice_ else ()), *([own] if own else [])]
        self._clusters = {cluster.name: cluster for cluster in sorted(clusters, key=lambda cluster: cluster.name)}
        self.fields["cluster"].choices = [("", "All clusters"), *((name, name) for name in self._clusters)]  # type: ignore[attr-defined]
        self.fields["shape"].choices = [("", "Not set"), *((shape, shape) for shape in shapes)]  # type: ignore[attr-defined]
        if slice_ is None:
            for name in OF_WORKSPACES:
                del self.fields[name]

    def clean_runs(self) -> dict[str, Any]:
        text = self.cleaned_data["runs"].replace("\r\n", "\n")
        documents, faults = documents_read("", text) if text.strip() else ([], [])
        if faults:
            raise forms.ValidationError([f"Line {fault.line}: {fault.detail}" for fault in faults])
        if len(documents) > 1:
            raise forms.ValidationError("Write one document.")
        said = TemplateJob(data=documents[0].data if documents else {})
        if not said.is_valid():
            raise forms.ValidationError([f"{name}: {' '.join(map(str, texts))}" for name, texts in said.errors.items()])
        return dict.fromkeys(JOB_FIELDS) | job_of(said.validated_data)

    def change(self) -> TemplateChange:
        data = self.cleaned_data
        plain = ("shape", "min_gpu_memory_gib", "nodes", "gpus_per_node", "priority", "node_type", "within")
        asked = {name: data[name] or None for name in plain} | {"duration_s": data["duration"]}
        asked["idle_timeout_s"] = data["idle_timeout"]
        asked |= {name: {"yes": True, "no": False}.get(data[name]) for name in OPTIONAL_FLAGS}
        return {
            "name": data["name"],
            "cluster": self._clusters.get(data.get("cluster", "")),
            "asked": asked,
            "job": data["runs"],
            "is_default": data.get("is_default", False),
            "auto": data.get("auto", False),
        }

    @staticmethod
    def typed(template: GprTemplate) -> dict[str, Any]:
        """Returns initial values for this template."""
        flags = {name: "yes" if template.asked[name] else "no" for name in OPTIONAL_FLAGS if name in template.asked}
        runs = {API_NAMES.get(name, name): value for name, value in template.job.items()}
        own = {"name": template.name, "cluster": template.cluster.name if template.cluster else ""}
        own["runs"] = yaml.safe_dump(runs, sort_keys=False) if runs else ""
        return {**template.asked, **initial_by(template), **flags, **own, "is_default": template.is_default, "auto": template.auto}


def initial_by(template: GprTemplate) -> dict[str, Any]:
    """Returns the form fields that the template sets."""
    asked = template.asked
    given = {name: asked[name] for name in SAME_FIELDS if name in asked}
    if {"shape", "min_gpu_memory_gib"} & given.keys():
        given = {"shape": "", "gpus_per_node": None, **given}  # replaces the form's default GPU
    duration = {"duration": words.duration_exact(asked["duration_s"])} if "duration_s" in asked else {}
    idle = {"idle_timeout": IdleField.typed(asked["idle_timeout_s"])} if "idle_timeout_s" in asked else {}
    return {**given, **duration, **idle, "clusters": [template.cluster.name] if template.cluster else [], "template": str(template.pk)}
