"""`manage.py simulate`: what goes in, what comes out, and what is refused."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from gpr.planner.replay import POLICIES
from tests.simulate.checker import check
from tests.simulate.lists import JOB_HEADER, NODE_HEADER, random_jobs, write, write_jobs, write_nodes

GOOD = "a,0,20,10,1,4,101,x"


def simulate(tmp: Path, *jobs: str, nodes: str | None = None, header: str = JOB_HEADER, **options: Any) -> dict[str, Any]:
    write(tmp / "nodes.csv", NODE_HEADER, [nodes]) if nodes else write_nodes(tmp / "nodes.csv")
    write(tmp / "jobs.csv", header, jobs)
    call_command("simulate", nodes=tmp / "nodes.csv", jobs=tmp / "jobs.csv", json=tmp / "out.json", **options)
    return dict(json.loads((tmp / "out.json").read_text()))


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("early", [False, True])
def test_it_writes_a_report_and_a_schedule_that_is_right(policy: str, early: bool, tmp_path: Path) -> None:
    result = simulate(tmp_path, *random_jobs(5, 80), policy=policy, early=early, schedule=tmp_path / "s.csv")

    assert result["jobs"] == 80
    assert check(tmp_path / "nodes.csv", tmp_path / "jobs.csv", tmp_path / "s.csv") == []
    assert (tmp_path / "s.csv").read_text().startswith("id,start_s,end_s,nodes,gpus_per_node\n")


def test_the_report_has_these_keys_and_no_others(tmp_path: Path) -> None:
    result = simulate(tmp_path, *random_jobs(5, 30))

    assert list(result) == [
        "jobs", "wait_s", "wait_s_by_priority", "utilization", "makespan_s", "estimate", "plan_s",
    ]  # fmt: skip
    assert list(result["wait_s"]) == ["mean", "p50", "p90", "p99", "max"]
    assert list(result["wait_s_by_priority"]) == ["50", "101", "201"]
    assert list(result["plan_s"]) == ["mean", "p99", "max"]
    assert list(result["estimate"]) == [
        "basis", "waited", "promise_kept", "repromised", "promised_wait_s", "margin_s", "p50_coverage", "p90_coverage", "p90_width_s",
        "within_1min", "within_10min", "median_abs_error_s",
    ]  # fmt: skip


def test_conservative_with_exact_boxes_every_promise_is_the_start(tmp_path: Path) -> None:
    estimate = simulate(tmp_path, *random_jobs(5, 80), policy="conservative")["estimate"]

    assert estimate["waited"] > 40
    assert (estimate["within_1min"], estimate["median_abs_error_s"], estimate["repromised"]) == (1.0, 0, 0)
    assert (estimate["promise_kept"], estimate["p90_coverage"], estimate["margin_s"]["p90"]) == (1.0, 1.0, 0)


@pytest.mark.parametrize("early", [False, True])
def test_ours_keeps_every_promise(early: bool, tmp_path: Path) -> None:
    estimate = simulate(tmp_path, *random_jobs(5, 80), early=early)["estimate"]

    assert estimate["waited"] > 40
    assert (estimate["promise_kept"], estimate["repromised"]) == (1.0, 0)


def test_ours_is_what_is_simulated_unless_another_is_named(tmp_path: Path) -> None:
    unnamed, named, other = (simulate(tmp_path, *random_jobs(5, 80), **o) for o in ({}, {"policy": "egs"}, {"policy": "fifo"}))

    assert {**unnamed, "plan_s": None} == {**named, "plan_s": None} != {**other, "plan_s": None}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("b,0,20,-10,1,4,101,x", "jobs.csv line 3: run_s is -10, but must be at least 1."),
        ("b,-1,20,10,1,4,101,x", "jobs.csv line 3: submit_s is -1, but must be at least 0."),
        ("b,0,20,10,0,4,101,x", "jobs.csv line 3: nodes is 0, but must be at least 1."),
        ("b,0,20,ten,1,4,101,x", "jobs.csv line 3: run_s is 'ten', not a whole number."),
        ("b,0,20,99999999999999999999,1,4,101,x", "jobs.csv line 3: run_s is 99999999999999999999, beyond 100000000000."),
        ("b,9000000000000000000,20,10,1,4,101,x", "jobs.csv line 3: submit_s is 9000000000000000000, beyond 100000000000."),
        ("b,0,20,1.5,1,4,101,x", "jobs.csv line 3: run_s is '1.5', not a whole number."),
        ("b,0,20,,1,4,101,x", "jobs.csv line 3: run_s is empty."),
        ("b,0,20,10,1,4,101", "jobs.csv line 3: project is missing."),
        ("b,0,20,10,1,4,101,x,y", "jobs.csv line 3: it has more fields than the header."),
        ("a,0,20,10,1,4,101,x", "jobs.csv line 3: id 'a' appears twice."),
        ("big,0,20,10,4,4,101,x", "jobs.csv line 3: job big can never start: it wants 4 nodes with 4 GPUs each, but 3"),
        ("fat,0,20,10,1,5,101,x", "jobs.csv line 3: job fat can never start: it wants 1 nodes with 5 GPUs each, but 0"),
        ('b,0,20,10,1,4,101,"x', "jobs.csv"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_written(line: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        simulate(tmp_path, GOOD, line)

    assert says in str(caught.value)
    assert not (tmp_path / "out.json").exists()


def test_a_job_that_outlives_its_box_is_refused_where_boxes_count(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"line 2: job a runs 30 s, longer than the 20 s it reserves"):
        simulate(tmp_path, "a,0,20,30,1,4,101,x", early=True)
    assert simulate(tmp_path, "a,0,20,30,1,4,101,x")["makespan_s"] == 30


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "jobs.csv: it is empty."),
        (JOB_HEADER + "\n", "jobs.csv: it has no lines below its header."),
        ("id,submit_s,run_s,nodes,gpus_per_node,project\na,0,1,1,1,x\n", "line 1: column reserve_s, priority is missing."),
    ],
)
def test_a_file_that_is_no_job_list_is_refused(text: str, says: str, tmp_path: Path) -> None:
    write_nodes(tmp_path / "nodes.csv")
    (tmp_path / "jobs.csv").write_text(text)

    with pytest.raises(CommandError, match=says):
        call_command("simulate", nodes=tmp_path / "nodes.csv", jobs=tmp_path / "jobs.csv", json=tmp_path / "out.json")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("n0,c,s,none", "nodes.csv line 2: gpus is 'none', not a whole number."),
        ("n0,c,s,0", "nodes.csv line 2: gpus is 0, but must be at least 1."),
        ("n0,c,,8", "nodes.csv line 2: shape is empty."),
        ("n0,c,s,8\nn0,c,s,8", "nodes.csv line 3: name 'n0' appears twice."),
    ],
)
def test_a_bad_node_is_named(line: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=says):
        simulate(tmp_path, GOOD, nodes=line)


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.csv", GOOD)
    with pytest.raises(CommandError, match=r"no\.csv: .*No such file"):
        call_command("simulate", nodes=tmp_path / "no.csv", jobs=tmp_path / "jobs.csv", json=tmp_path / "out.json")
    (tmp_path / "no.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CommandError, match=r"no\.csv: .*utf-8"):
        call_command("simulate", nodes=tmp_path / "no.csv", jobs=tmp_path / "jobs.csv", json=tmp_path / "out.json")


def test_a_shape_narrows_a_job_to_its_nodes_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    header, nodes = JOB_HEADER + ",shape", "n0,c,small,4\nn1,c,large,8"

    simulate(tmp_path, GOOD + ",large", header=header, nodes=nodes, schedule=tmp_path / "s.csv")
    assert (tmp_path / "s.csv").read_text().splitlines()[1] == "a,0,10,n1,4"
    with pytest.raises(CommandError, match=r"jobs.csv line 2: no node has the shape 'huge'\."):
        simulate(tmp_path, GOOD + ",huge", header=header, nodes=nodes)


def test_all_gpus_of_a_node_are_counted_in_the_schedule(tmp_path: Path) -> None:
    simulate(tmp_path, "a,0,20,10,2,0,101,x", schedule=tmp_path / "s.csv")

    assert (tmp_path / "s.csv").read_text().splitlines()[1:] == ["a,0,10,n0 n1,4"]


def test_jobs_may_be_listed_in_any_order(tmp_path: Path) -> None:
    simulate(tmp_path, "late,50,20,10,3,4,101,x", "soon,0,60,60,3,4,101,x", schedule=tmp_path / "s.csv")

    assert [line.split(",")[:2] for line in (tmp_path / "s.csv").read_text().splitlines()[1:]] == [["soon", "0"], ["late", "60"]]


def test_results_replace_old_ones_whole_and_leave_nothing_beside_them(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text("old")

    simulate(tmp_path, GOOD, schedule=tmp_path / "s.csv")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs.csv", "nodes.csv", "out.json", "s.csv"]
    assert stat.S_IMODE((tmp_path / "out.json").stat().st_mode) == stat.S_IMODE((tmp_path / "jobs.csv").stat().st_mode)


def test_one_file_cannot_be_both_results(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="the same file"):
        simulate(tmp_path, GOOD, schedule=tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()


def test_a_place_that_cannot_be_written_to_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"nowhere.s\.csv: there is no such folder"):
        simulate(tmp_path, GOOD, schedule=tmp_path / "nowhere" / "s.csv")
    (tmp_path / "out.json").mkdir()
    with pytest.raises(CommandError, match="could not be written"):
        simulate(tmp_path, GOOD)
