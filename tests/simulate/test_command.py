"""`manage.py simulate`: what goes in, what comes out, and what is refused."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from simulation.replay import POLICIES
from tests.simulate.checker import check
from tests.simulate.lists import JOB_HEADER, NODE_HEADER, random_jobs, write, write_jobs, write_nodes

GOOD = "a,0,20,10,1,4,101,x"


def simulate(
    tmp: Path, *jobs: str, nodes: str | None = None, header: str = JOB_HEADER, node_header: str = NODE_HEADER, **options: Any
) -> dict[str, Any]:
    write(tmp / "nodes.csv", node_header, [nodes]) if nodes else write_nodes(tmp / "nodes.csv")
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
        "jobs", "wait_s", "wait_s_by_priority", "wait_s_by_project", "utilization", "makespan_s", "estimate", "estimators", "failures",
        "evictions", "bookings", "idle_released_count", "plan_s",
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
        (
            "big,0,20,10,4,4,101,x",
            "jobs.csv line 3: job big can never start: it wants 4 nodes with 4 GPUs each, but at most 3",
        ),
        (
            "fat,0,20,10,1,5,101,x",
            "jobs.csv line 3: job fat can never start: it wants 1 nodes with 5 GPUs each, but at most 1",
        ),
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


TWO_CLUSTERS = "n0,here,s,4\nn1,there,s,4"


def rows(tmp: Path) -> list[str]:
    return (tmp / "s.csv").read_text().splitlines()[1:]


def starts(tmp: Path) -> dict[str, int]:
    return {fields[0]: int(fields[1]) for fields in (row.split(",") for row in rows(tmp))}


def test_a_job_runs_in_the_clusters_that_it_names_and_anywhere_if_it_names_none(tmp_path: Path) -> None:
    header, lines = (
        JOB_HEADER + ",clusters",
        ("a,0,9,9,1,4,101,x,there", "b,1,9,9,1,4,101,x,there", "c,2,9,9,1,4,101,x,", "d,3,9,9,1,4,101,x,here there"),
    )

    simulate(tmp_path, *lines, header=header, nodes=TWO_CLUSTERS, schedule=tmp_path / "s.csv")

    assert rows(tmp_path) == ["a,0,9,n1,4", "c,2,11,n0,4", "b,9,18,n1,4", "d,11,20,n0,4"]
    with pytest.raises(CommandError, match=r"jobs.csv line 2: no node is in the cluster 'moon'\."):
        simulate(tmp_path, "a,0,9,9,1,4,101,x,here moon", header=header, nodes=TWO_CLUSTERS)


def test_a_job_leaves_its_home_only_where_that_saves_more_than_was_said(tmp_path: Path) -> None:
    """The second one waits nine seconds at home."""
    header, lines = JOB_HEADER + ",home", ("a,0,9,9,1,4,101,x,here", "b,0,9,9,1,4,101,x,here")

    simulate(tmp_path, *lines, header=header, nodes=TWO_CLUSTERS, schedule=tmp_path / "s.csv", burst_gain_s=9)
    assert rows(tmp_path) == ["a,0,9,n0,4", "b,9,18,n0,4"]
    simulate(tmp_path, *lines, header=header, nodes=TWO_CLUSTERS, schedule=tmp_path / "s.csv", burst_gain_s=8)
    assert rows(tmp_path) == ["a,0,9,n0,4", "b,0,9,n1,4"]
    with pytest.raises(CommandError, match=r"jobs.csv line 2: no node is in the cluster 'moon'\."):
        simulate(tmp_path, "a,0,9,9,1,4,101,x,moon", header=header, nodes=TWO_CLUSTERS)


@pytest.mark.parametrize("policy", ["egs", "conservative"])
def test_a_booking_starts_at_its_time_or_is_refused_and_others_run_in_the_gap_before_it(policy: str, tmp_path: Path) -> None:
    header, lines = JOB_HEADER + ",booked_s", ("a,0,9,9,1,4,101,x,20", "b,1,9,9,1,4,101,x,25", "c,2,9,9,1,4,101,x,", "d,3,30,30,1,4,101,x,")

    result = simulate(tmp_path, *lines, header=header, nodes="n0,here,s,4", schedule=tmp_path / "s.csv", policy=policy)

    assert rows(tmp_path) == ["c,2,11,n0,4", "a,20,29,n0,4", "d,29,59,n0,4"]
    assert (result["jobs"], result["bookings"]["count"], result["bookings"]["refused"]) == (3, 2, 1)
    assert (result["bookings"]["late_s"]["max"], result["wait_s"]["max"]) == (0, 26)
    assert result["estimate"]["promise_kept"] == 1.0


def test_a_list_of_bookings_that_have_no_place_at_all_is_a_report_too(tmp_path: Path) -> None:
    lines = ("a,0,9,9,1,4,101,x,20", "b,1,9,9,1,4,101,x,20", "c,1,9,9,1,4,101,x,20")

    result = simulate(tmp_path, *lines, header=JOB_HEADER + ",booked_s", nodes="n0,here,s,4")

    assert (result["jobs"], result["bookings"]["refused"], result["wait_s"]["mean"]) == (1, 2, None)


def test_policies_that_know_no_bookings_and_times_in_the_past_are_refused(tmp_path: Path) -> None:
    header = JOB_HEADER + ",booked_s"
    with pytest.raises(CommandError, match="easy knows no bookings"):
        simulate(tmp_path, "a,0,9,9,1,4,101,x,20", header=header, policy="easy")
    with pytest.raises(CommandError, match="job a is booked for 20, before it is submitted at 30"):
        simulate(tmp_path, "a,30,9,9,1,4,101,x,20", header=header)


HOUR_S = 3600
EVICTING = f"{JOB_HEADER},may_evict,evictable"
VICTIM, EVICTOR = f"v,0,{9 * HOUR_S},{9 * HOUR_S},1,4,50,x,0", f"b,{HOUR_S},60,60,1,4,201,y,1,"


@pytest.mark.parametrize("policy", ["egs", "conservative"])
@pytest.mark.parametrize(
    ("values", "evictable", "start_s"),
    [
        ({}, "", HOUR_S + 600),
        ({"notice_s": 60}, "1", HOUR_S + 60),
        ({"least_run_s": 2 * HOUR_S}, "", 2 * HOUR_S),
        ({"eviction_gain_s": 9 * HOUR_S}, "", 9 * HOUR_S),
        ({}, "0", 9 * HOUR_S),
    ],
)
def test_evictions_are_by_the_values_of_the_policy_and_spare_who_is_not_evictable(
    values: dict[str, Any], evictable: str, start_s: int, policy: str, tmp_path: Path
) -> None:
    jobs = f"{VICTIM},{evictable}", EVICTOR

    simulate(tmp_path, *jobs, nodes="n,c,s,4", header=EVICTING, policy=policy, schedule=tmp_path / "s.csv", **values)

    assert starts(tmp_path)["b"] == start_s


@pytest.mark.parametrize("policy", ["egs", "conservative"])
@pytest.mark.parametrize(("break_from", "start_s", "repromised"), [(None, 3 * HOUR_S, 0), (202, 3 * HOUR_S, 0), (201, HOUR_S, 1)])
def test_from_the_priority_that_is_told_on_a_newcomer_moves_promises_of_lower_ones(
    break_from: int | None, start_s: int, repromised: int, policy: str, tmp_path: Path
) -> None:
    """A long one of low priority was promised the time when the first one ends."""
    jobs = (f"{id},{submit_s},{hours * HOUR_S},{hours * HOUR_S},1,4,{priority},x" for id, submit_s, hours, priority in (
        ("a", 0, 1, 50), ("b", 1, 2, 50), ("c", 60, 2, 201),
    ))  # fmt: skip

    result = simulate(tmp_path, *jobs, nodes="n,c,s,4", policy=policy, break_from=break_from, schedule=tmp_path / "s.csv")

    assert (starts(tmp_path)["c"], result["estimate"]["repromised"]) == (start_s, repromised)


@pytest.mark.parametrize(("patience", "start_s"), [(0.3, 900), (1.0, 1000)])
def test_a_gang_is_moved_up_when_its_patience_is_over(patience: float, start_s: int, tmp_path: Path) -> None:
    """Both nodes are given back early, one after the other; single ones are asked for all the time."""
    running = "a,0,1000,400,1,4,101,x", "b,0,1000,300,1,4,101,x"
    waiting = "g,0,500,500,2,4,101,x", "c,200,600,600,1,4,101,x", "d,350,600,600,1,4,101,x"

    simulate(tmp_path, *running, *waiting, nodes="n,c,s,4\nm,c,s,4", early=True, gang_patience=patience, schedule=tmp_path / "s.csv")

    assert starts(tmp_path)["g"] == start_s


def test_a_gang_stays_within_a_rack_or_an_nvlink_domain_if_it_says_so(tmp_path: Path) -> None:
    header, node_header = f"{JOB_HEADER},within", f"{NODE_HEADER},rack,nvlink_domain"
    nodes = "n0,c,s,4,r0,d0\nn1,c,s,4,r1,d0\nn2,c,s,4,r1,d1\nn3,other,s,4,r0,d1"

    def placed(within: str, count: int = 2) -> str:
        job = f"g,0,9,9,{count},4,101,x,{within}"
        simulate(tmp_path, job, header=header, nodes=nodes, node_header=node_header, schedule=tmp_path / "s.csv")
        return rows(tmp_path)[0].split(",")[3]

    assert (placed("rack"), placed("nvlink")) == ("n1 n2", "n0 n1")
    assert placed("", count=3) == "n0 n1 n2"
    for within in ("rack", "nvlink"):
        with pytest.raises(CommandError, match="job g can never start"):
            placed(within, count=3)


@pytest.mark.parametrize(("column", "value", "what"), [("may_evict", "1", "evictions"), ("home", "here", "homes")])
def test_columns_that_a_policy_would_not_heed_are_refused_unless_they_ask_for_nothing(
    tmp_path: Path, column: str, value: str, what: str
) -> None:
    header, nodes = f"{JOB_HEADER},{column}", "n0,here,s,4\nn1,there,s,4"
    with pytest.raises(CommandError, match=f"sjf knows no {what}"):
        simulate(tmp_path, f"a,0,9,9,1,4,101,x,{value}", header=header, nodes=nodes, policy="sjf")

    assert simulate(tmp_path, "a,0,9,9,1,4,101,x,", header=header, nodes=nodes, policy="sjf")["jobs"] == 1


def test_values_that_a_policy_does_not_know_and_a_nearness_that_there_is_not_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="fifo knows no values of the policy"):
        simulate(tmp_path, GOOD, policy="fifo", notice_s=60)
    with pytest.raises(CommandError, match="conservative moves no gang up"):
        simulate(tmp_path, GOOD, policy="conservative", gang_patience=0.5)
    with pytest.raises(CommandError, match="within is 'room', neither rack nor nvlink"):
        simulate(tmp_path, f"{GOOD},room", header=f"{JOB_HEADER},within")


def test_a_gang_is_never_spread_over_clusters(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="job a can never start: it wants 2 nodes"):
        simulate(tmp_path, "a,0,9,9,2,4,101,x", nodes=TWO_CLUSTERS)


def test_jobs_of_a_slice_run_one_after_the_other(tmp_path: Path) -> None:
    header, lines = JOB_HEADER + ",slice", ("a,0,9,9,1,1,101,x,s", "b,0,9,9,1,1,101,x,s", "c,0,9,9,1,1,101,x,")

    simulate(tmp_path, *lines, header=header, schedule=tmp_path / "s.csv")

    assert {line.split(",")[0]: line.split(",")[1] for line in rows(tmp_path)} == {"a": "0", "b": "9", "c": "0"}


def test_a_list_needs_no_projects(tmp_path: Path) -> None:
    result = simulate(tmp_path, "a,0,9,9,1,1,101", header=JOB_HEADER.removesuffix(",project"))

    assert result["jobs"] == 1


def test_a_box_that_is_idle_for_long_is_taken_back_if_that_is_asked_for(tmp_path: Path) -> None:
    header, lines = JOB_HEADER + ",idle_from_s", ("a,0,900,900,3,4,101,x,100", "b,0,900,900,3,4,101,x,", "c,1,900,900,3,4,101,x,880")

    kept = simulate(tmp_path, *lines, header=header, schedule=tmp_path / "kept.csv")
    result = simulate(tmp_path, *lines, header=header, schedule=tmp_path / "s.csv", idle_timeout_s=60)

    assert (kept["idle_released_count"], result["idle_released_count"]) == (0, 1)
    assert rows(tmp_path) == ["a,0,160,n0 n1 n2,4", "b,160,1060,n0 n1 n2,4", "c,1060,1960,n0 n1 n2,4"]
    with pytest.raises(CommandError, match="idle_from_s is -1"):
        simulate(tmp_path, "a,0,900,900,3,4,101,x,-1", header=header)


def test_nodes_fail_when_asked_to_and_the_same_ones_for_every_policy(tmp_path: Path) -> None:
    jobs = random_jobs(5, 80)
    often: dict[str, Any] = {"fail_every_days": 0.005, "repair_s": 50}

    steady, failing, again, other = (simulate(tmp_path, *jobs, **o) for o in ({}, often, often, {**often, "seed": 2}))

    assert steady["failures"] == {"count": 0, "repromised_count": 0, "killed_count": 0}
    assert failing["failures"]["killed_count"] > 0
    assert {**failing, "plan_s": 0} == {**again, "plan_s": 0}
    assert failing["failures"] != other["failures"]


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--fail-every-days", "0", "0 is not above 0"),
        ("--fail-every-days", "nan", "nan is not above 0"),
        ("--repair-s", "0", "0 is less than a second"),
        ("--idle-timeout-s", "-5", "-5 is less than a second"),
        ("--notice-s", "-1", "-1 is below 0"),
        ("--gang-patience", "1.5", "1.5 is not from 0 to 1"),
    ],
)
def test_an_option_without_sense_is_refused(option: str, value: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=says):
        call_command("simulate", f"{option}={value}", "--nodes=n", "--jobs=j", "--json=o")
