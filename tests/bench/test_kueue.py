"""Kueue beside ours: both sides get one scenario, the peer's results are read as they are, and its absence is said."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from bench.figures import NotRun
from bench.peers import kueue, kueue_runner
from bench.peers.kueue import PlayResult, WorkloadPlayer, planner_for
from bench.peers.kueue_runner import Ran, read
from bench.peers.kueue_scenarios import BASELINE, LARGE_SCALE, Arrival, Kind, Scenario, arrivals

SUMMARY = """\
clusterQueueClasses:
  cq:
    cpuUsed: 34800000
    cpuAverageUsage: 348000
    nominalQuota: 600000
    firstEventTime: "2026-11-21T12:00:00Z"
    lastEventTime: "2026-11-21T12:06:00Z"
workloadClasses:
  large: {count: 1500, totalEvictions: 3, averageTimeToAdmissionMs: 29300, averageTimeToFinishMs: 30400}
  small: {count: 10500, totalEvictions: 88, averageTimeToAdmissionMs: 217100, averageTimeToFinishMs: 217500}
droppedWorkloadEvents: 0
"""
STATS = "wallMs: 384700\nuserMs: 70000\nsysMs: 8000\nmaxrss: 677888\n"
WRITES_RESULTS = f"printf '%s' '{SUMMARY}' >$2/summary.yaml; printf '%s' '{STATS}' >$2/minimalkueue.stats.yaml"
RAN = Ran(384.7, 78.0, 662.0, 0.58, {"large": 29.3, "small": 217.1}, 91, 0)


def results(folder: Path, *, summary: str = SUMMARY, stats: str = STATS) -> Path:
    (folder / "summary.yaml").write_text(summary)
    (folder / "minimalkueue.stats.yaml").write_text(stats)
    return folder


# The scenario.


def test_both_scenarios_are_those_that_kueue_publishes_figures_of() -> None:
    assert (BASELINE.workload_count, LARGE_SCALE.workload_count) == (15_000, 50_000)
    assert BASELINE.ideal_wall_s == 66
    assert LARGE_SCALE.ideal_wall_s == pytest.approx(4.025)


def test_kueue_is_told_the_scenario_that_our_side_plays() -> None:
    told = BASELINE.generator()

    (cohort,) = told["cohorts"]
    (queues,) = cohort["queuesSets"]
    assert (cohort["count"], queues["count"], queues["nominalQuota"], queues["reclaimWithinCohort"]) == (5, 6, "20", "Any")
    made = [
        (each["count"], each["creationIntervalMs"], *(each["workloads"][0][key] for key in ("runtimeMs", "priority", "request")))
        for each in queues["workloadsSets"]
    ]
    assert made == [(kind.count, kind.every_ms, kind.length_ms, kind.priority, str(kind.cpus)) for kind in BASELINE.kinds]


def test_arrivals_come_in_order_and_none_is_missing() -> None:
    made = list(arrivals(BASELINE))

    assert [arrival.at_ms for arrival in made] == sorted(arrival.at_ms for arrival in made)
    assert (len(made), made[0].at_ms, made[-1].at_ms) == (15_000, 100, 60_000)


# Kueue itself.


def test_what_the_runner_measured_is_read_as_it_is(tmp_path: Path) -> None:
    assert read(results(tmp_path)) == RAN


@pytest.mark.parametrize("given", [{"summary": "{}"}, {"summary": "a: ["}, {"stats": "wallMs: 1\n"}, {"stats": ""}])
def test_results_of_another_form_are_no_figures(given: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(NotRun, match="could not be read"):
        read(results(tmp_path, **given))


def test_the_runner_gets_the_scenario_and_its_results_are_taken(peer: Callable[[str], Path]) -> None:
    seen = peer(f'cp "$6" {{seen}}; {WRITES_RESULTS}')

    assert kueue_runner.run(BASELINE) == RAN
    assert json.loads(seen.read_text()) == BASELINE.generator()


def test_a_runner_that_fails_is_told_with_its_last_words(peer: Callable[[str], Path]) -> None:
    peer("echo no port is free >&2; exit 3")

    with pytest.raises(NotRun, match="no port is free"):
        kueue_runner.run(BASELINE)


@pytest.mark.parametrize("name", ["KUEUE_SRC", "KUEUE_BIN", "KUBEBUILDER_ASSETS"])
def test_what_is_missing_for_kueue_is_named(
    name: str, peer: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    peer("true")
    monkeypatch.setenv(name, str(tmp_path / "empty"))
    with pytest.raises(NotRun, match=f"{name}: there is no"):
        kueue_runner.run(BASELINE)


def test_without_kueues_source_it_is_not_run(peer: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    peer("true")
    monkeypatch.delenv("KUEUE_SRC")

    with pytest.raises(NotRun, match="KUEUE_SRC names no folder"):
        kueue_runner.run(BASELINE)


def test_programs_that_are_not_given_are_built(peer: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kueue's own by Go from its source, those of the control plane by deploy/kube."""
    seen = peer(
        f"echo $KUBEBUILDER_ASSETS >{{seen}}; printf '%s' '{SUMMARY}' >$2/summary.yaml; printf '%s' '{STATS}' >$2/minimalkueue.stats.yaml"
    )
    built = tmp_path / "bin"
    program(tmp_path / "path/go", f'[ "$1 $2 $3" = "-C {tmp_path} build" ] && cp {built}/"${{6##*/}}" "$5"')
    program(tmp_path / "deploy/kube", f"echo building >&2; echo {built}")
    monkeypatch.setenv("PATH", f"{tmp_path}/path:{os.environ['PATH']}")
    monkeypatch.setattr(kueue_runner, "ROOT", tmp_path)
    for name in ("KUEUE_BIN", "KUBEBUILDER_ASSETS"):
        monkeypatch.delenv(name)

    assert kueue_runner.run(BASELINE) == RAN
    assert seen.read_text().strip() == str(built)


def test_a_build_that_fails_is_told_with_its_last_words(
    peer: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    peer("true")
    program(tmp_path / "path/go", "echo no such package >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}/path:{os.environ['PATH']}")
    monkeypatch.delenv("KUEUE_BIN")

    with pytest.raises(NotRun, match="the build of Kueue failed: no such package"):
        kueue_runner.run(BASELINE)


def test_without_kueue_that_is_said_and_its_published_figures_stand_beside_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUEUE_SRC", raising=False)
    monkeypatch.setattr(kueue, "play", played)

    figures = kueue.run_large_scale(None)

    assert "Kueue itself is not run" in capsys.readouterr().out
    peers = {figure.peer for figure in figures}
    assert peers == {kueue.PUBLISHED, "nobody can be faster", ""}


def test_with_kueue_its_figures_of_the_same_run_stand_beside_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kueue_runner, "run", lambda scenario: RAN)
    monkeypatch.setattr(kueue, "play", played)

    figures = {figure.case: figure for figure in kueue.run_large_scale(None) if figure.peer == kueue.MEASURED}

    case = "large-scale, 50,000 workloads, planner alone, reclaim"
    assert figures[f"{case}: all done after"].peer_value == 384.7
    assert figures[f"{case}: mean wait of small ones"].peer_value == 217.1
    assert figures[f"{case}: evictions"].peer_value == 91
    assert f"{case}: mean wait of medium ones" not in figures  # it told none


# Our side.


def test_all_are_done_in_the_end_each_once() -> None:
    small = replace(BASELINE, cohort_count=2, kinds=tuple(replace(kind, count=4) for kind in BASELINE.kinds))

    done = WorkloadPlayer(planner_for(small), list(arrivals(small)), may_evict=False, clock=clock()).run()

    assert {name: len(waits_s) for name, waits_s in done.waits_s.items()} == {"small": 48, "medium": 48, "large": 48}


def test_who_borrows_gives_back_at_once_and_begins_again() -> None:
    """Two queues of 20: the first borrows all of the second, which then comes with as much."""
    long, short = Kind("long", 1, 1, 1000, 50, 20, 0.0), Kind("short", 1, 1, 100, 50, 20, 0.0)
    pair = Scenario("pair", 1, 2, 20, (long, short), 0.0)
    coming = [Arrival(1, 0, 0, long), Arrival(1, 0, 0, long), Arrival(200, 0, 1, short)]

    done = WorkloadPlayer(planner_for(pair), coming, may_evict=False, clock=clock()).run()

    assert done.evictions == 1
    assert done.waits_s["short"][0] < 0.01
    assert sorted(round(wait_s, 1) for wait_s in done.waits_s["long"]) == [0.0, 0.3]  # again once the short one is done
    assert done.wall_s > 1.3  # its whole length anew


def program(path: Path, script: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Programs that do as a script says; answers where what the runner was told is kept (`{seen}`)."""

    def make(script: str) -> Path:
        seen = tmp_path / "seen.json"
        (tmp_path / "empty").mkdir()
        (tmp_path / kueue_runner.CRDS).mkdir(parents=True)
        for name in ("runner", "minimalkueue", "etcd", "kube-apiserver"):
            program(tmp_path / "bin" / name, script.replace("{seen}", str(seen)))
        monkeypatch.setenv("KUEUE_SRC", str(tmp_path))
        monkeypatch.setenv("KUEUE_BIN", str(tmp_path / "bin"))
        monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "bin"))
        return seen

    return make


def played(scenario: Scenario, *, may_evict: bool) -> PlayResult:
    return PlayResult(wall_s=70.0, cpu_s=20.0, evictions=5, waits_s={kind.name: [1.0, 3.0] for kind in scenario.kinds})


def clock() -> Callable[[], float]:
    """A millisecond passes between two looks."""
    ticks = count()
    return lambda: next(ticks) / 1000
