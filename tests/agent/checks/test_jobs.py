"""A check's pod that did not start, or broke off, blames its node, which is set aside then, or its image."""

from __future__ import annotations

from typing import Any

import pytest

from worker_agent.kube.api.client import Forbidden
from worker_agent.kube.checks.jobs import CheckJob, CheckJobs, is_image_at_fault
from worker_agent.kube.checks.steps import NCCL_TOOLS

STARTING = "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
NCCL = CheckJob(
    owner="a",
    epoch=1,
    step="nccl",
    attempt=1,
    nodes=("node-1",),
    image="egs.test/nccl",
    command=("sh", "-c", "all_reduce_perf"),
    deadline_s=60,
    tools=NCCL_TOOLS,
)


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [
        (128, STARTING + 'runc create failed: exec: "sh": executable file not found in $PATH: unknown'),
        (127, "env: 'all_reduce_perf': No such file or directory"),
        (127, "env: \u2018all_reduce_perf\u2019: No such file or directory"),
        (127, "env: can't execute 'all_reduce_perf': No such file or directory"),
        (127, "nccl: 7: mktemp: not found"),
        (127, "nccl: line 7: env: command not found"),
    ],
)
def test_an_image_that_has_not_what_it_is_to_run_takes_no_node_out_of_service(exit_code: int, words: str) -> None:
    assert is_image_at_fault(NCCL, exit_code, words)


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [
        (128, STARTING + 'exec: "nvidia-container-runtime": executable file not found in $PATH: unknown'),
        (127, 'exec: "nvidia-container-runtime": executable file not found in $PATH: unknown'),
        (
            127,
            "all_reduce_perf: error while loading shared libraries: libcuda.so.1: cannot open shared object file",
        ),
        (127, ""),
        (1, "nccl: 7: all_reduce_perf: not found"),
    ],
)
def test_a_node_whose_runtime_or_driver_is_broken_is_blamed_and_not_the_image(exit_code: int, words: str) -> None:
    assert not is_image_at_fault(NCCL, exit_code, words)


class Refusing:
    """An API server that takes no Job."""

    def __init__(self, why: str) -> None:
        self.why = why

    def get(self, _path: str, type_: Any, **_: Any) -> Any:
        return type_(items=())

    def create(self, *_: Any) -> None:
        raise Forbidden(self.why)


def test_a_job_that_a_policy_refuses_is_no_check_that_runs_for_ever_and_no_node_is_blamed() -> None:
    why = "ValidatingAdmissionPolicy 'egs-agent-job' with binding 'egs-agent-job' denied request: the pod of a check has no annotations"

    ended = CheckJobs(Refusing(why)).poll(NCCL)  # type: ignore[arg-type]

    assert ended is not None
    assert (why in ended.why, ended.blames_node) == (True, False)


def test_a_right_that_an_api_server_does_not_know_yet_is_asked_for_again() -> None:
    with pytest.raises(Forbidden):
        CheckJobs(Refusing('jobs.batch is forbidden: User "egs-agent" cannot create resource "jobs"')).poll(NCCL)  # type: ignore[arg-type]
