"""A Kubernetes node carries its records, and a taint and labels that follow from them: one patch, which only one writer wins."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import cluster_names
from worker_agent.cluster.base import GpuPhase, GpuRecord
from worker_agent.kube.api.client import Op
from worker_agent.kube.api.objects import Meta, Node, NodeSpec, Taint
from worker_agent.kube.nodes.bind_guard import closed_value, slices_in, with_slices
from worker_agent.kube.nodes.marks import (
    UnreadableRecords,
    box_taint,
    describe_difference,
    marks_for_records,
    read_records,
    records_text,
    removal_ops,
    write_ops,
)

GPUS = tuple(f"GPU-{number}" for number in range(8))


def record(gpr: str = "gpr-a", *, slice_: str = "slice-a", phase: GpuPhase = GpuPhase.ISOLATED, epoch: int = 7, run: int = 1) -> GpuRecord:
    return GpuRecord(epoch=epoch, assignment_id=f"of-{gpr}", gpr_id=gpr, slice=slice_, phase=phase, run=run)


def node(*, taints: tuple[Taint, ...] = (), labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> Node:
    return Node(metadata=Meta(name="n1", uid="uid-1", labels=labels, annotations=annotations), spec=NodeSpec(taints=taints))


class TestFailed(Exception):
    """The API server answers it with 422."""

    __test__ = False


def patched(seen: Node, ops: list[Op]) -> Node:
    """The node as an API server leaves it (RFC 6902); all or nothing."""
    tree: dict[str, Any] = {
        "metadata": {"name": seen.metadata.name, "uid": seen.metadata.uid},
        "spec": {"taints": [msgspec.to_builtins(taint) for taint in seen.spec.taints]} if seen.spec.taints else {},
    }
    for key in ("labels", "annotations"):
        if (value := getattr(seen.metadata, key)) is not None:
            tree["metadata"][key] = deepcopy(value)
    for op in ops:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in op["path"].split("/")[1:]]
        place: Any = tree
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if isinstance(place, list):
            _patch_list(place, last, op)
        elif op["op"] == "test":
            if place.get(last) != op["value"]:
                raise TestFailed(op["path"])
        elif op["op"] == "remove":
            del place[last]
        else:
            place[last] = op["value"]
    return msgspec.convert(tree, Node)


def _patch_list(place: list[Any], last: str, op: Op) -> None:
    if last == "-":
        place.append(op["value"])
    elif op["op"] == "test":
        if place[int(last)] != op["value"]:
            raise TestFailed(op["path"])
    elif op["op"] == "remove":
        del place[int(last)]
    else:
        place[int(last)] = op["value"]


def written(seen: Node, records: dict[str, GpuRecord]) -> Node:
    before = seen.metadata.annotation(cluster_names.RECORDS)
    return patched(seen, write_ops(seen, before, records_text(records), marks_for_records("uid-1", records, GPUS)))


phases = st.sampled_from(GpuPhase)
boxes = st.builds(record, st.sampled_from(["gpr-a", "gpr-b", "gpr-c"]), slice_=st.just("s"), phase=phases, run=st.integers(1, 3))
all_records = st.dictionaries(st.sampled_from(GPUS), boxes)


@given(all_records)
def test_what_is_written_of_the_gpus_is_read_again(records: dict[str, GpuRecord]) -> None:
    assert read_records(records_text(records)) == records


@given(all_records, all_records, st.booleans(), st.booleans())
def test_whatever_was_there_a_write_leaves_records_one_taint_of_ours_and_all_that_is_not_ours(
    first: dict[str, GpuRecord], second: dict[str, GpuRecord], is_bare: bool, is_doubled: bool
) -> None:
    theirs = Taint(key="theirs", effect="NoExecute")
    start = node() if is_bare else node(taints=(theirs,), labels={"zone": "z"}, annotations={"theirs": "1"})
    marked = written(start, first)
    if is_doubled:  # by hand
        twice = (*marked.spec.taints, Taint(key=cluster_names.TAINT, value="free", effect="NoExecute"))
        marked = msgspec.structs.replace(marked, spec=NodeSpec(taints=twice))

    now = written(marked, second)

    marks = marks_for_records("uid-1", second, GPUS)
    assert read_records(now.metadata.annotation(cluster_names.RECORDS)) == second
    assert not describe_difference(now, marks)
    assert box_taint(now) == marks.taint
    if not is_bare:
        assert theirs in now.spec.taints
        assert now.metadata.label("zone") == "z"
        assert now.metadata.annotation("theirs") == "1"


def test_of_two_writers_that_saw_the_same_the_second_has_no_effect() -> None:
    seen = written(node(), {})
    claim = {gpu: record("gpr-a") for gpu in GPUS}
    won = written(seen, claim)
    late = write_ops(seen, seen.metadata.annotation(cluster_names.RECORDS), records_text({}), marks_for_records("uid-1", {}, GPUS))

    with pytest.raises(TestFailed):
        patched(won, late)


def test_a_node_made_anew_under_the_same_name_is_not_written() -> None:
    seen = written(node(), {})
    anew = msgspec.structs.replace(seen, metadata=msgspec.structs.replace(seen.metadata, uid="uid-2"))

    with pytest.raises(TestFailed):
        patched(anew, write_ops(seen, seen.metadata.annotation(cluster_names.RECORDS), "[]", marks_for_records("uid-1", {}, GPUS)))


def test_a_taint_that_somebody_added_meanwhile_is_not_written_over() -> None:
    tainted = node(taints=(Taint(key="theirs", effect="NoSchedule"),))

    with pytest.raises(TestFailed):
        patched(tainted, write_ops(node(), "", "[]", marks_for_records("uid-1", {}, GPUS)))


def test_a_box_with_all_gpus_has_the_node_to_itself_and_one_with_some_shares_it() -> None:
    whole = marks_for_records("uid-1", {gpu: record("gpr-a", run=2) for gpu in GPUS}, GPUS)
    part = marks_for_records("uid-1", {gpu: record("gpr-a") for gpu in GPUS[:4]}, GPUS)
    two = marks_for_records("uid-1", {gpu: record("gpr-a" if number < 4 else "gpr-b") for number, gpu in enumerate(GPUS)}, GPUS)

    assert (whole.taint, part.taint, two.taint) == ("gpr-a.2", "shared", "shared")
    assert whole.labels[cluster_names.NODE_SLICE] == "slice-a"
    assert cluster_names.NODE_SLICE not in two.labels
    assert {cluster_names.box_label("gpr-a"), cluster_names.box_label("gpr-b")} <= two.labels.keys()


def test_a_node_whose_gpus_cannot_be_named_is_nobodys_alone() -> None:
    assert marks_for_records("uid-1", {gpu: record() for gpu in GPUS[:4]}, ()).taint == "shared"


def test_a_closed_box_leaves_no_mark_but_that_its_pods_are_drained() -> None:
    marks = marks_for_records("uid-1", {gpu: record(phase=GpuPhase.CLOSED) for gpu in GPUS}, GPUS)

    assert marks.taint == "draining"
    assert marks_for_records("uid-1", {gpu: record(phase=GpuPhase.FREE) for gpu in GPUS}, GPUS).taint == "free"
    assert marks.labels == {cluster_names.NODE_UID: "uid-1"}


def test_a_node_that_is_let_go_keeps_nothing_of_ours() -> None:
    theirs = Taint(key="theirs", effect="NoSchedule")
    taken = written(node(taints=(theirs,), labels={"zone": "z"}), {})

    left = patched(taken, removal_ops(taken, taken.metadata.annotation(cluster_names.RECORDS)))

    assert left.spec.taints == (theirs,)
    assert left.metadata.labels == {"zone": "z"}
    assert left.metadata.annotations == {}


@pytest.mark.parametrize("text", ["nonsense", '{"a": 1}', '[{"record": {}, "gpus": []}]'])
def test_records_that_cannot_be_read_are_said_to_be_so(text: str) -> None:
    with pytest.raises(UnreadableRecords, match=r"egs\.io/records"):
        read_records(text)


def test_each_close_raises_the_fence_so_that_who_slept_meanwhile_tests_a_value_that_is_gone() -> None:
    before = with_slices("@3", {"a"})
    after = closed_value(before, {"a"})

    assert (before, after) == ("@3,a", "@4")
    assert closed_value(after, {"a"}) == "@5"
    assert slices_in("@5") == slices_in("") == frozenset()
    assert closed_value("@4,a,b", {"a"}) == "@5,b"
