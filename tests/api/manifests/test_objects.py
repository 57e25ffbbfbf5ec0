"""EGS refuses objects of a job that Kubernetes would refuse before the job is filed, and names line and field.

These tests need no hub and no database.
"""

from __future__ import annotations

from textwrap import indent

import pytest

from protocol.manifests.documents import documents_check
from protocol.manifests.text import documents_read
from protocol.manifests.workloads import objects_read

POD = """metadata: {labels: {app: a}}
spec:
  restartPolicy: Never
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: main
      image: a:1
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
"""
FOR_EVER = POD.replace("  restartPolicy: Never\n", "")


def written(kind: str, spec: str, version: str = "batch/v1") -> str:
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\nspec:\n{indent(spec, '  ')}"


def template(pod: str = POD) -> str:
    return f"template:\n{indent(pod, '  ')}"


JOB = written("Job", template())
SET = written(
    "JobSet", f"replicatedJobs:\n  - name: node\n    template:\n      spec:\n{indent(template(), '        ')}", "jobset.x-k8s.io/v1alpha2"
)
TRAINING = written("PyTorchJob", f"pytorchReplicaSpecs:\n  Master:\n{indent(template(), '    ')}", "kubeflow.org/v1")
MPI = written("MPIJob", f"mpiReplicaSpecs:\n  Launcher:\n{indent(template(), '    ')}", "kubeflow.org/v2beta1")
SERVER = written("Deployment", f"selector: {{matchLabels: {{app: a}}}}\n{template(FOR_EVER)}", "apps/v1")
SERVICE = written("Service", "ports: [{port: 80}]", "v1")


@pytest.mark.parametrize("text", [JOB, SET, TRAINING, MPI, SERVER, f"{SERVICE}\n---\n{JOB}"])
def test_objects_that_kubernetes_takes_have_no_mistake(text: str) -> None:
    assert objects_read("job.yaml", text)[1] == []


@pytest.mark.parametrize(
    ("text", "line", "field", "words"),
    [
        (written("Job", "{}"), 4, "spec.template", "needs the template of its pods"),
        (JOB.replace("template:", "tempalte:"), 4, "spec.template", "Did you mean tempalte?"),
        (JOB.replace("    spec:", "    sepc:"), 5, "spec.template.spec", "needs a spec"),
        (JOB.replace("containers:", "container:"), 7, "spec.template.spec.containers", "Did you mean container?"),
        (JOB.replace("image:", "imgae:"), 11, "spec.template.spec.containers[0].image", "needs an image"),
        (JOB.replace("Never", "never"), 8, "spec.template.spec.restartPolicy", "Did you mean Never?"),
        (JOB.replace("Never", "Always"), 8, "spec.template.spec.restartPolicy", "Never or OnFailure"),
        (JOB.replace("      restartPolicy: Never\n", ""), 7, "spec.template.spec.restartPolicy", "Never or OnFailure"),
        (JOB.replace("a:1\n", "a:1\n          command: [train, 8]\n"), 13, "spec.template.spec.containers[0].command[1]", '"8"'),
        (JOB.replace("a:1\n", "a:1\n          command: train\n"), 13, "spec.template.spec.containers[0].command", "a list of texts"),
        (
            JOB.replace("a:1\n", "a:1\n          env: [{name: A, value: true}]\n"),
            13,
            "spec.template.spec.containers[0].env[0].value",
            '"true"',
        ),
        (JOB.replace("app: a", "app: 1"), 6, "spec.template.metadata.labels.app", '"1"'),
        (SET.replace("replicatedJobs", "jobs"), 4, "spec.replicatedJobs", "needs a list of replicatedJobs"),
        (SET.replace("Never", "Always"), 12, "spec.replicatedJobs[0].template.spec.template.spec.restartPolicy", "Never or OnFailure"),
        (TRAINING.replace("Master", "Mastr"), 6, "spec.pytorchReplicaSpecs.Mastr", "Did you mean Master?"),
        (MPI.replace("Launcher", "Worker"), 5, "spec.mpiReplicaSpecs.Launcher", "needs a Launcher"),
        (SERVER.replace("selector", "labels"), 4, "spec.selector", "A Deployment needs a selector"),
        (SERVER.replace("matchLabels: {app: a}", "matchLabels: {app: b}"), 5, "spec.selector.matchLabels", "must have all of these"),
        (SERVER.replace("  spec:", "  spec:\n      restartPolicy: Never", 1), 9, "spec.template.spec.restartPolicy", "Must be Always here"),
        (f"{JOB}\n---\n{SERVICE.replace('ports:', 'port:')}", 19, "spec.ports", "A Service needs ports"),
    ],
)
def test_what_kubernetes_refuses_is_told_with_its_line_and_field(text: str, line: int, field: str, words: str) -> None:
    (fault,) = objects_read("job.yaml", text)[1]

    assert (fault.line, fault.field) == (line, field)
    assert words in fault.detail


@pytest.mark.parametrize(("mark", "line"), [("|", 12), (">", 8)])
def test_lint_tells_the_line_of_a_mistake_inside_the_manifest_of_a_job(mark: str, line: int) -> None:
    """A text behind > has other lines than the file."""
    head = "apiVersion: egs.io/v1alpha1\nkind: GPUJob\nmetadata: {name: own}\nspec:\n"
    body = f"  workspace: vision\n  nodes: 1\n  kind: Manifest\n  manifest: {mark}\n"
    own = "{}" if mark == ">" else written("Job", "{}")

    documents, _ = documents_read("own.yaml", f"{head}{body}{indent(own, '    ')}")
    (fault,) = documents_check(documents)[1]

    assert (fault.file, fault.line, fault.kind, fault.name) == ("own.yaml", line, "GPUJob", "own")
    assert fault.field == ("spec.manifest.spec.template" if mark == "|" else "spec.manifest")
