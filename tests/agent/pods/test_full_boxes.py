"""A full box is counted again as soon as anything that decides what fits is another one."""

from __future__ import annotations

from worker_agent.kube.pods.full_boxes import FullBoxes


def test_a_box_is_full_until_something_of_it_is_another_object() -> None:
    index, node, pod = object(), object(), object()
    boxes = FullBoxes()
    assert not boxes.is_full("g", (index, node, pod))

    boxes.remember("g", (index, node, pod))

    assert boxes.is_full("g", (index, node, pod))
    assert not boxes.is_full("other", (index, node, pod))
    for seen in ((object(), node, pod), (index, object(), pod), (index, node), (index, node, pod, object())):
        assert not boxes.is_full("g", seen)


def test_one_that_is_not_served_any_more_is_forgotten() -> None:
    boxes = FullBoxes()
    boxes.remember("g", ("a",))

    boxes.keep({"other"})

    assert not boxes.is_full("g", ("a",))
