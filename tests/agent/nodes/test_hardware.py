"""The agent keeps the hardware ids that checks read with the node, reports them once all are known, and never makes them up."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from protocol.cluster_names import GPU, GPU_HARDWARE
from protocol.nodes.inventory import NodeView
from tests.agent.nodes.test_view import UID, node
from worker_agent.kube.api.client import Api
from worker_agent.kube.api.objects import Node
from worker_agent.kube.checks.readings import GPU_FIELDS, gpus
from worker_agent.kube.nodes.hardware import Hardware, merge_readings, store_uuids, uuids_by_index
from worker_agent.kube.nodes.view import node_view

A, B, C = ("00000000:10:00.0", "GPU-a"), ("00000000:11:00.0", "GPU-b"), ("00000000:12:00.0", "GPU-c")


def read(known: Hardware, *found: tuple[str, str], gpu_count: int = 2) -> Hardware:
    text = "".join(f"{uuid}, {bus_id}{', 0' * (len(GPU_FIELDS) - 2)}\n" for bus_id, uuid in found)
    return merge_readings(known, gpus(text), gpu_count)


def told(known: str, *, gpu_count: int = 2) -> list[tuple[str, str]]:
    there = node(labels={"nvidia.com/gpu.count": str(gpu_count)}, capacity={GPU: str(gpu_count)})
    meta = msgspec.structs.replace(there.metadata, annotations={GPU_HARDWARE: known})
    view = node_view(msgspec.structs.replace(there, metadata=meta))
    assert isinstance(view, NodeView)
    return [(gpu.uuid, gpu.hardware_uuid) for gpu in view.gpus]


def test_a_node_of_which_all_was_read_tells_each_gpu_in_the_order_of_the_bus() -> None:
    """The name by which boxes hold it stays as it was."""
    assert told("00000000:11:00.0=GPU-b,00000000:10:00.0=GPU-a") == [(f"{UID}-0", "GPU-a"), (f"{UID}-1", "GPU-b")]


@pytest.mark.parametrize("known", ["", "00000000:10:00.0=GPU-a", "=,,=GPU-a", "nonsense", "a=1,b=2,c=3"])
def test_as_long_as_one_of_them_was_not_read_none_is_told(known: str) -> None:
    assert told(known) == [(f"{UID}-0", ""), (f"{UID}-1", "")]


def test_an_absurd_text_is_cut_and_does_no_harm() -> None:
    ((_, uuid),) = told(f"{'b' * 999}={'u' * 999}", gpu_count=1)

    assert len(uuid) == 63


def test_boxes_that_have_parts_of_a_node_are_put_together() -> None:
    first = read({}, B)

    assert (first, uuids_by_index(first, 2)) == (dict([B]), [])
    assert uuids_by_index(read(first, A), 2) == ["GPU-a", "GPU-b"]


def test_a_gpu_that_was_replaced_takes_the_place_of_the_other() -> None:
    new = (B[0], "GPU-new")

    assert uuids_by_index(read(dict([A, B]), new), 2) == ["GPU-a", "GPU-new"]


def test_a_gpu_that_moved_on_the_bus_is_not_counted_twice() -> None:
    moved = (C[0], "GPU-b")

    assert uuids_by_index(read(dict([A, B]), moved), 2) == ["GPU-a", "GPU-b"]


def test_a_box_that_reads_one_gpu_at_a_new_place_throws_the_others_of_its_node_away_for_nobody() -> None:
    """A check that has read all knows which of them is gone: until then nothing is told of any."""
    read_one = read(dict([A, B]), C)

    assert (read_one, uuids_by_index(read_one, 2)) == (dict([A, B, C]), [])
    assert uuids_by_index(read(read_one, B, C), 2) == ["GPU-b", "GPU-c"]


@pytest.mark.parametrize("uuid", ["[N/A]", "[Unknown Error]", "", "GPU-"])
def test_what_a_lost_gpu_says_is_taken_for_no_uuid(uuid: str) -> None:
    assert read(dict([A]), (B[0], uuid)) == dict([A])


def test_what_another_check_wrote_meanwhile_is_not_written_over() -> None:
    """The checks of two boxes on a node may end at once."""
    before = node(labels={}, capacity={})
    seen = msgspec.structs.replace(before, metadata=msgspec.structs.replace(before.metadata, annotations={GPU_HARDWARE: "x=GPU-x"}))
    sent: list[dict[str, str]] = []

    class Other:
        def get(self, path: str, type_: object) -> Node:
            return seen

        def patch(self, path: str, ops: list[dict[str, str]], type_: object) -> None:
            sent.extend(ops)

    store_uuids(cast("Api", Other()), "n1", gpus(f"GPU-a, 1{', 0' * (len(GPU_FIELDS) - 2)}"), 2)

    assert {"op": "test", "path": "/metadata/annotations/egs.io~1gpu-hardware", "value": "x=GPU-x"} in sent[:-1]
