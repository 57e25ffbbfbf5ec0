"""The programs in the pods of checks, run for real: what they print of good and bad machines is what the agent reads."""

from __future__ import annotations

import itertools
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.cluster_names import node_path
from protocol.nodes.checks import CheckPolicy, Verdict
from protocol.nodes.steps import EntryStep, ExitStep
from tests.agent.checks.local_jobs import LocalJobs
from tests.agent.checks.step_calls import step_call
from tests.kube.checks.healthy import RDMA_PORT, nccl_report
from worker_agent.boxes.records import new_records
from worker_agent.cluster.base import GpuPhase, StepCall, StepProgress, StepStatus
from worker_agent.kube.api.objects import Node
from worker_agent.kube.checks import gang_logs, readings
from worker_agent.kube.checks import steps as checks
from worker_agent.kube.checks.steps import PROBE, Checks
from worker_agent.kube.nodes import hardware

GPUS = ("GPU-5f1d5c30", "GPU-0b9a8c7d")
FAIL, WARN, SKIP = Verdict.FAIL, Verdict.WARN, Verdict.SKIP
Rows = list[dict[str, str]]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalJobs:
    """A good machine: its tools, its part of /sys, its kernel's log and a volume are in a folder."""
    monkeypatch.setattr(checks, "RDMA_FILES", [f"{tmp_path}{pattern}" for pattern in checks.RDMA_FILES])
    monkeypatch.setattr(checks, "KERNEL_LOG", str(tmp_path / "kernel.log"))
    monkeypatch.setattr(checks, "VOLUME", str(tmp_path / "volume"))
    (tmp_path / "volume").mkdir()
    made = LocalJobs(tmp_path)
    made.put_nvidia_smi(gpu=smi_rows(), remapped=remapped(), apps=[])
    log_kernel("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15")
    for number in range(2):
        put_port(made, number)
    return made


def smi_rows(**last: str) -> Rows:
    """`last` changes fields of the last GPU; an underscore stands for a dot."""
    rows = [
        dict.fromkeys(readings.GPU_FIELDS, "0")
        | {"uuid": gpu, "pci.bus_id": f"00000000:1{n}:00.0", "clocks_event_reasons.active": "0x0000000000000001"}
        for n, gpu in enumerate(GPUS)
    ]
    rows[-1] |= {name.replace("__", "."): value for name, value in last.items()}
    return rows


def remapped(**last: str) -> Rows:
    rows = [dict.fromkeys(readings.ROW_FIELDS, "0") | {"gpu_uuid": gpu} for gpu in GPUS]
    rows[-1] |= {f"remapped_rows.{name}": value for name, value in last.items()}
    return rows


def log_kernel(*lines: str, ago_s: float = 100.0) -> None:
    at_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ago_s
    Path(checks.KERNEL_LOG).write_text("".join(f"<4>[{at_s:12.6f}] {line}\n" for line in lines))


def put_port(node: LocalJobs, number: int, **files: str) -> None:
    port = node.folder / f"sys/class/infiniband/mlx5_{number}/ports/1"
    (port / "gids").mkdir(parents=True, exist_ok=True)
    for name, text in (RDMA_PORT | {"gids/1": readings.NO_GID} | files).items():
        (port / name).write_text(f"{text}\n")


def call(step: str, *, node: int = 0, gang: tuple[str, ...] = (), policy: CheckPolicy | None = None) -> StepCall:
    return step_call(step, GPUS, node=f"node-{node}", id=f"a{node}", gang=gang, policy=policy, rdma=True)


def ended(agent: Checks, of: StepCall) -> StepProgress:
    """The agent's polls until the Job was read."""
    for _ in range(9):
        result = agent.run(of)
        if result.status is not StepStatus.RUNNING:
            return result
    raise AssertionError("it runs for ever")


def checked(node: LocalJobs, step: str, **more: Any) -> StepProgress:
    return ended(agent_of(node), call(step, **more))


def agent_of(node: LocalJobs, **own: str) -> Checks:
    """Its clock makes each look a second later than the one before: no view is too young."""
    seconds = itertools.count()
    return Checks(node, image="egs.test/agent", mono=lambda: float(next(seconds)), **own)  # type: ignore[arg-type]


def bad(result: StepProgress) -> set[tuple[str, str, str]]:
    return {(each.check, each.gpu, each.verdict) for each in result.results if each.verdict is not Verdict.PASS}


@pytest.mark.parametrize("step", [EntryStep.GPU_COUNT, EntryStep.GPU_HEALTH, EntryStep.RDMA, ExitStep.GPU_IDLE])
def test_a_good_machine_passes_with_a_figure_of_everything(step: str, node: LocalJobs) -> None:
    result = checked(node, step)

    assert (result.status, bad(result)) == (StepStatus.OK, set()), result.log
    assert all(each.value is not None for each in result.results)


POLICY = CheckPolicy(runtime_class="nvidia-cdi", pull_secret="mirror", images={"nccl": "egs.test/nccl"})


@pytest.mark.parametrize(
    ("step", "policy", "runtime_class", "pull_secret"),
    [
        (EntryStep.GPU_COUNT, CheckPolicy(), "nvidia", "own"),
        (EntryStep.GPU_HEALTH, POLICY, "nvidia-cdi", "mirror"),
        (EntryStep.NCCL, POLICY, "nvidia-cdi", "mirror"),
        (EntryStep.RDMA, CheckPolicy(), None, "own"),
        (EntryStep.GANG_NETWORK, POLICY, None, "mirror"),
    ],
)
def test_pods_that_look_at_gpus_run_in_the_runtime_class_and_all_images_are_pulled_by_the_secret_that_are_set(
    step: str, policy: CheckPolicy, runtime_class: str | None, pull_secret: str, node: LocalJobs
) -> None:
    """The hub's policy sets them, else the agent's options do. The other pods need no GPU driver, and may run where there is none."""
    node.put_all_reduce(json.dumps(nccl_report()))
    agent = agent_of(node, runtime_class="nvidia", pull_secret="own")

    ended(agent, call(step, policy=policy, gang=("node-0", "node-1")))

    (pod,) = [job["spec"]["template"]["spec"] for job in node.jobs.values()]
    assert (pod.get("runtimeClassName"), pod["imagePullSecrets"]) == (runtime_class, [{"name": pull_secret}])


def test_where_none_are_set_a_pod_of_a_check_names_neither_runtime_class_nor_secret(node: LocalJobs) -> None:
    """The cluster's own defaults hold."""
    checked(node, EntryStep.GPU_COUNT)

    (pod,) = [job["spec"]["template"]["spec"] for job in node.jobs.values()]
    assert not {"runtimeClassName", "imagePullSecrets"} & pod.keys()


def test_what_nvidia_smi_calls_the_gpus_is_written_down_with_their_node(node: LocalJobs) -> None:
    """People who look at a node see which GPUs are in it, also after the agent was restarted."""
    path = node_path("node-0")
    node.nodes[path] = {"metadata": {"name": "node-0", "uid": "uid", "annotations": {}}}

    assert checked(node, EntryStep.GPU_COUNT).status is StepStatus.OK

    known = hardware.stored_uuids(node.get(path, Node))
    assert hardware.uuids_by_index(known, len(GPUS)) == list(GPUS)


def test_a_check_of_which_the_gpus_cannot_be_written_down_is_judged_all_the_same(node: LocalJobs) -> None:
    """The node is not there any more, as far as the API server tells."""
    assert checked(node, EntryStep.GPU_COUNT).status is StepStatus.OK


def test_a_sick_gpu_is_found_by_what_nvidia_smi_and_the_kernel_say_of_it(node: LocalJobs) -> None:
    sick = {
        "temperature__gpu": "91",
        "ecc__errors__corrected__aggregate__sram": "20000",
        "clocks_event_reasons__active": "0x0000000000000008",
    }
    node.put_nvidia_smi(gpu=smi_rows(**sick), remapped=remapped(pending="Yes", failure="No"), apps=[])
    log_kernel("NVRM: Xid (PCI:0000:11:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")

    result = checked(node, EntryStep.GPU_HEALTH)

    assert result.status is StepStatus.FAILED
    assert bad(result) == {
        ("gpu_temperature", GPUS[1], FAIL),
        ("ecc_sram_corrected", GPUS[1], FAIL),
        ("rows_pending", GPUS[1], FAIL),
        ("xid_errors", GPUS[1], FAIL),
        ("throttle_reasons", GPUS[1], WARN),
    }
    assert "Xid 79: reboot the node" in result.log


def test_a_storm_of_one_program_s_xids_hides_no_other(node: LocalJobs) -> None:
    storm = [f"NVRM: Xid (PCI:0000:10:00): 31, pid={n}, name=python, Ch 00000008, MMU Fault" for n in range(500)]
    log_kernel("NVRM: Xid (PCI:0000:10:00): 79, pid='<unknown>', GPU has fallen off the bus.", *storm)

    result = checked(node, EntryStep.GPU_HEALTH)

    assert bad(result) == {("xid_errors", GPUS[0], FAIL)}


def test_xids_from_before_the_last_two_hours_are_over(node: LocalJobs) -> None:
    log_kernel("NVRM: Xid (PCI:0000:10:00): 79, pid=1, GPU has fallen off the bus.", ago_s=readings.XID_WINDOW_S + 60)

    assert bad(checked(node, EntryStep.GPU_HEALTH)) == set()


def test_a_kernel_s_log_that_cannot_be_read_is_said_and_is_no_pass(node: LocalJobs) -> None:
    Path(checks.KERNEL_LOG).unlink()

    result = checked(node, EntryStep.GPU_HEALTH)

    assert bad(result) == {("xid_errors", gpu, SKIP) for gpu in GPUS}
    assert "the kernel's log cannot be read" in result.log


def test_the_kernel_itself_answers_or_says_why_not() -> None:
    """It holds with and without the right, whichever this machine gives."""
    said = run_probe({"xids": ""})["xids"]

    assert said.get("uptime_s", 0) > 0 or "the kernel's log cannot be read: " in said["error"]


def test_an_older_driver_is_asked_by_the_names_that_it_knows(node: LocalJobs) -> None:
    rows = [{readings.OLD_NAMES.get(name, name): value for name, value in row.items()} for row in smi_rows()]
    node.put_nvidia_smi(gpu=rows, remapped=remapped(), apps=[])

    assert checked(node, EntryStep.GPU_HEALTH).status is StepStatus.OK


def test_a_gpu_without_remapped_rows_is_told_so(node: LocalJobs) -> None:
    node.put_nvidia_smi(gpu=smi_rows(), remapped=[{"gpu_uuid": gpu} for gpu in GPUS], apps=[])
    found = call(EntryStep.GPU_HEALTH)
    view = msgspec.structs.replace(found.node.view, shape="V100-32GB")

    result = ended(agent_of(node), msgspec.structs.replace(found, node=msgspec.structs.replace(found.node, view=view)))

    assert result.status is StepStatus.OK
    assert {verdict for check, _, verdict in bad(result) if check.startswith("rows_")} == {SKIP}


@pytest.mark.parametrize("step", [EntryStep.GPU_COUNT, EntryStep.GPU_HEALTH, ExitStep.GPU_IDLE])
def test_a_driver_that_does_not_answer_fails_the_check_in_its_own_words(step: str, node: LocalJobs) -> None:
    node.put_nvidia_smi(gpu=[], remapped=[], apps=[], fails="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")

    result = checked(node, step)

    assert result.status is StepStatus.FAILED
    assert "nvidia-smi: exit code 9: NVIDIA-SMI has failed" in result.log


def test_a_machine_without_nvidia_smi_says_so(node: LocalJobs) -> None:
    (node.programs / "nvidia-smi").unlink()

    assert "nvidia-smi: [Errno 2]" in checked(node, EntryStep.GPU_COUNT).log


def test_a_gpu_that_is_gone_is_missed(node: LocalJobs) -> None:
    node.put_nvidia_smi(gpu=smi_rows()[:1], remapped=remapped(), apps=[])

    (result,) = checked(node, EntryStep.GPU_COUNT).results

    assert (result.verdict, result.value, result.threshold) == (FAIL, 1.0, 2.0)


def exit_call(step: str, *, healthy: int, since_closed_s: float = 1.0, node_gpus: bool = True, **more: Any) -> StepCall:
    """Returns the call of a box that has all GPUs of its node, which offers so many."""
    found = call(step, **more)
    gpus = tuple(msgspec.structs.replace(gpu, healthy=gpu.index < healthy) for gpu in found.node.view.gpus) if node_gpus else ()
    state = msgspec.structs.replace(found.node, view=msgspec.structs.replace(found.node.view, gpus=gpus))
    return msgspec.structs.replace(found, node=state, since_closed_s=since_closed_s)


def test_an_exit_asks_the_gpus_that_are_left_and_tells_of_the_one_that_dropped_out(node: LocalJobs) -> None:
    node.put_nvidia_smi(gpu=smi_rows()[:1], remapped=remapped(), apps=[])

    result = ended(agent_of(node), exit_call(ExitStep.GPU_IDLE, healthy=1))

    assert result.status is StepStatus.OK
    assert bad(result) == {("gpu_count", "", WARN)}
    (job,) = node.jobs.values()
    assert job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}


def test_on_a_shared_node_the_gpus_of_another_box_are_not_taken_for_those_that_are_left(node: LocalJobs) -> None:
    found = exit_call(ExitStep.GPU_IDLE, healthy=1)
    mine = msgspec.structs.replace(found.assignment, gpus=GPUS[:1])
    others = new_records(msgspec.structs.replace(mine, id="b", gpus=GPUS[1:]), GpuPhase.OPEN)
    state = msgspec.structs.replace(found.node, records=others)

    result = ended(agent_of(node), msgspec.structs.replace(found, assignment=mine, node=state))

    assert result.status is StepStatus.FAILED
    assert node.jobs == {}


def test_an_exit_ends_though_no_gpu_of_the_box_comes_back(node: LocalJobs) -> None:
    soon_after = ended(agent_of(node), exit_call(ExitStep.GPU_IDLE, healthy=0))
    much_later = ended(agent_of(node), exit_call(ExitStep.GPU_IDLE, healthy=0, since_closed_s=checks.GPUS_BACK_S))

    assert soon_after.status is StepStatus.FAILED
    assert "offers none of the 2 GPUs" in soon_after.log
    assert much_later.status is StepStatus.OK
    assert bad(much_later) == {("gpu_count", "", WARN), ("gpu_memory_used", "", SKIP)}
    assert node.jobs == {}


def test_at_an_exit_nccl_over_fewer_gpus_than_the_box_had_fails_for_its_node_at_once(node: LocalJobs) -> None:
    result = ended(agent_of(node), exit_call(ExitStep.EXIT_NCCL, healthy=1, policy=NCCL_POLICY))

    assert (result.status, result.blames_node) == (StepStatus.FAILED, True)
    assert "1 of 2 GPUs are left" in result.log


@pytest.mark.parametrize("step", [EntryStep.NCCL, ExitStep.EXIT_NCCL])
def test_nccl_on_a_node_that_shows_no_gpus_any_more_fails_and_says_so(step: str, node: LocalJobs) -> None:
    result = ended(agent_of(node), exit_call(step, healthy=2, node_gpus=False, policy=NCCL_POLICY))

    assert (result.status, result.blames_node) == (StepStatus.FAILED, False)
    assert "it shows no GPUs" in result.log


def test_a_process_that_is_left_on_a_gpu_is_found(node: LocalJobs) -> None:
    node.put_nvidia_smi(gpu=smi_rows(memory__used="70000"), remapped=remapped(), apps=[{"gpu_uuid": GPUS[1], "pid": "4711"}])

    result = checked(node, ExitStep.GPU_IDLE)

    assert bad(result) == {("gpu_processes", GPUS[1], FAIL), ("gpu_memory_used", GPUS[1], FAIL)}


def test_an_rdma_port_that_is_down_slow_or_in_another_subnet_is_found(node: LocalJobs) -> None:
    put_port(node, 1, state="1: DOWN", phys_state="3: Disabled")
    put_port(node, 2, rate="200 Gb/sec (4X HDR)")
    put_port(node, 3, **{"gids/0": "fe80:0000:0000:0001:a088:c203:0012:3456"})
    policy = CheckPolicy(rdma_subnet="fe80:0000:0000:0000", limits={"rdma_links": 4})

    result = checked(node, EntryStep.RDMA, policy=policy)

    assert {check for check, _, _ in bad(result)} == {"rdma_links", "rdma_rate", "rdma_subnet"}
    assert "down: mlx5_1/1" in result.log
    assert "to be fe80:0000:0000:0000: mlx5_3/1" in result.log


def test_a_volume_is_written_and_read_back(node: LocalJobs) -> None:
    result = checked(node, EntryStep.STORAGE, policy=CheckPolicy(limits={"volume_write": 0, "volume_read": 0}))

    assert result.status is StepStatus.OK, result.log
    assert not list((node.folder / "volume").iterdir())


def test_a_volume_that_cannot_be_written_fails(node: LocalJobs) -> None:
    (node.folder / "volume").rmdir()

    result = checked(node, EntryStep.STORAGE)

    assert result.status is StepStatus.FAILED
    assert "broke off with exit code 1" in result.log


def run_probe(plan: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", PROBE, json.dumps(plan)], capture_output=True, text=True, timeout=60, check=True)
    return dict(json.loads(done.stdout))


def test_addresses_are_reached_or_the_reason_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as closed:
        there, gone = (f"127.0.0.1:{each.getsockname()[1]}" for each in (server, closed))
        closed.close()
        said = run_probe({"names": ["localhost", "no-such-name.invalid"], "addresses": [there, gone]})

    assert said["names"]["localhost"]["ms"] >= 0
    assert "no-such-name.invalid: " in said["names"]["no-such-name.invalid"]["error"]
    assert said["addresses"][there]["ms"] >= 0
    assert "Connection refused" in said["addresses"][gone]["error"]


NCCL_POLICY = CheckPolicy(images={"nccl": "egs.test/nccl"})


def test_nccl_s_report_is_the_last_line_and_its_program_sees_little_of_the_pod(node: LocalJobs) -> None:
    called = node.put_all_reduce(json.dumps(nccl_report(), indent=1))

    result = checked(node, EntryStep.NCCL, policy=NCCL_POLICY)

    assert (result.status, {each.check: each.value for each in result.results}) == (
        StepStatus.OK,
        {"nccl_bandwidth": 472.0, "nccl_latency": 21.0, "nccl_wrong": 0.0},
    )
    assert f"called as -g 2 -b 16 -e {16 << 30} -f {1 << 30} -w 5 -n 20 -c 1 -J " in called.read_text()
    assert "SECRET" not in called.read_text()


@pytest.mark.parametrize(
    ("report", "code", "said"),
    [
        (json.dumps(nccl_report(300.0)), 0, "NCCL all-reduce, bus bandwidth: 300 GB/s (at least 460)"),
        (json.dumps(nccl_report()), 1, "broke off with exit code 1"),
        ("", 0, "cannot be read"),
        (json.dumps(nccl_report())[:200], 0, "cannot be read"),
    ],
)
def test_nccl_that_is_slow_or_breaks_off_fails(report: str, code: int, said: str, node: LocalJobs) -> None:
    node.put_all_reduce(report, code=code)

    result = checked(node, EntryStep.NCCL, policy=NCCL_POLICY)

    assert result.status is StepStatus.FAILED
    assert said in result.log


def test_an_image_without_the_tools_of_nccl_fails_the_check_and_blames_no_node(node: LocalJobs) -> None:
    """Otherwise one image would set aside one node after the other."""
    result = checked(node, EntryStep.NCCL, policy=NCCL_POLICY)

    assert (result.status, result.blames_node) == (StepStatus.FAILED, False)
    assert "the image egs.test/nccl lacks a program" in result.log
    assert "all_reduce_perf" in result.log


def test_what_eight_rdma_ports_of_many_subnets_say_fits_into_the_last_words_of_a_pod(node: LocalJobs) -> None:
    for number in range(8):
        ours = f"{0xA088:04x}:c203:0012:{number:04x}"
        gids = [f"fe80:0000:0000:{number:04x}:{ours}", f"2001:0db8:0000:{number:04x}:{ours}", "0000:0000:0000:0000:0000:ffff:0a00:0105"]
        put_port(node, number, **{f"gids/{place}": gid for place, gid in enumerate([*gids, gids[-1]])})

    said = run_probe({"files": checks.RDMA_FILES})
    files = {path.removeprefix(str(node.folder)): text for path, text in said["files"].items()}

    error = "egs-check-0123456789abcdef-0.egs-checks: [Errno -2] Name or service not known"
    gang = {"index": 7, "peers": {peer: {"error": error, "is_found": False} for peer in (0, 1)}}
    assert len(json.dumps({"gang": gang, "files": files})) <= LAST_WORDS_BYTES
    assert [port.subnets for port in readings.ports(files)] == [
        (f"fe80:0000:0000:{number:04x}", f"2001:0db8:0000:{number:04x}", readings.IPV4) for number in range(8)
    ]


def test_a_gid_that_is_not_set_or_not_to_be_read_is_of_no_subnet(node: LocalJobs) -> None:
    put_port(node, 0, **{"gids/0": readings.NO_GID, "gids/1": "0000:0000:0000:0000:0000:fffe:0a00:0105", "gids/2": "no GID"})

    files = run_probe({"files": checks.RDMA_FILES})["files"]

    assert readings.ports(files)[0].subnets == ("0000:0000:0000:0000",)


# -- between the nodes of a box ----------------------------------------------------------------------------------------


LAST_WORDS_BYTES = 4096  # as Kubernetes has it
ANY_LATENCY = CheckPolicy(limits={"gang_latency": 60_000})  # however slow this machine is


def gang_of(node: LocalJobs, count: int) -> list[StepProgress]:
    """Returns each node's own part of one Job, which ran once."""
    names = tuple(f"node-{number}" for number in range(count))
    agent = agent_of(node)
    found = [ended(agent, call(EntryStep.GANG_NETWORK, node=number, gang=names, policy=ANY_LATENCY)) for number in range(count)]
    assert len(node.jobs) == 1
    return found


def test_the_pods_of_a_box_reach_each_other_and_measure_how_long_it_takes(node: LocalJobs) -> None:
    results = gang_of(node, 3)

    assert {result.status for result in results} == {StepStatus.OK}, results[0].log
    (latency,) = [each for each in results[1].results if each.check == "gang_latency"]
    assert latency.value is not None
    assert latency.value > 0
    pairs = ("node-0 to node-1", "node-2 to node-1", "node-1 to node-2", "node-1 to node-0")
    assert all(results[1].log.count(pair) == 1 for pair in pairs)


def test_the_node_that_no_other_reaches_fails_and_not_those_that_ask_it(node: LocalJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "GANG_TRY_S", 10)
    node.without = {2}

    results = gang_of(node, 4)

    assert [result.status for result in results] == [StepStatus.OK, StepStatus.OK, StepStatus.FAILED, StepStatus.OK]
    (warned,) = [each for each in results[1].results if each.verdict is WARN]
    assert warned.text.startswith("node-1 to node-2: ")


def spare_call(number: int) -> StepCall:
    """Returns the call of a spare that is measured against two nodes at work."""
    names = ("node-0", "node-1", f"node-{number}")
    of = call(EntryStep.GANG_NETWORK, node=number, gang=names, policy=ANY_LATENCY)
    return msgspec.structs.replace(of, at_work=names[:2])


def test_a_spare_is_measured_against_those_at_work_with_no_room_of_theirs(node: LocalJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "GANG_TRY_S", 10)
    node.without = {0}

    result = ended(agent_of(node), spare_call(2))

    assert result.status is StepStatus.OK, result.log
    told = {each.check: each for each in result.results}
    assert {name for name, each in told.items() if each.verdict is Verdict.PASS} == {"gang_latency", "gang_rdma_links", "gang_rdma_subnet"}
    assert told["gang_peers"].text == "node-1; their GPUs are at work and were left out; not node-0: its pod said nothing"
    (job,) = node.jobs.values()
    (container,) = job["spec"]["template"]["spec"]["containers"]
    # What is limited and asks for nothing by itself would ask for as much.
    assert container["resources"] == {"requests": {"cpu": "0", "memory": "0"}, "limits": {"cpu": "250m", "memory": "128Mi"}}


def test_two_spares_of_one_box_are_measured_at_once_and_neither_ends_the_other_s_job(node: LocalJobs) -> None:
    agent = agent_of(node)
    for number in (2, 3):
        assert agent.run(spare_call(number)).status is StepStatus.RUNNING

    assert len(node.jobs) == 2


def test_a_log_that_cannot_be_read_at_once_is_read_again_before_anybody_is_blamed(node: LocalJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, of = agent_of(node), call(EntryStep.GANG_NETWORK, gang=("node-0", "node-1"), policy=ANY_LATENCY)
    assert agent.run(of).status is StepStatus.RUNNING
    node.are_logs_away = True
    assert agent.run(of).status is StepStatus.RUNNING

    node.are_logs_away = False
    assert ended(agent, of).status is StepStatus.OK

    monkeypatch.setattr(gang_logs, "TRY_S", 0.0)
    node.are_logs_away = True
    agent = agent_of(node)
    assert "no pod of the box said anything" in ended(agent, of).log
