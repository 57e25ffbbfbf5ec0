"""`egs run` works from the first line to the exit code, against a hub with simulated clusters."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from egs_client.cli.commands.gpr_acts import Filing
from egs_client.cli.commands.jobs import asking
from egs_client.sync.client import Client
from tests.e2e.client.hub import Egs, Hub
from tests.e2e.client.test_answers import LATER
from tests.e2e.processes import START_S, wait_for

UNREACHABLE = 9  # exit code
BOX = ("--nodes", "2", "--shape", "H100-80GB", "--hours", "1", "--image", "registry.example/team/train:1.0")


def test_a_job_is_filed_waits_runs_and_ends_as_its_command_does(hub: Hub, egs: Egs) -> None:
    text = egs.run("run", *BOX, "--name", "fine", "--", "torchrun", "train.py")

    assert "node 0 of 2: step 1 of 20\n" in text
    assert text.count("node 0 of 2: step 20 of 20\n") == 1
    assert "fine is SUCCEEDED." in text
    assert egs.run("job", "list", "--all", "-o", "jsonpath={.items[0].gpr_state}").strip() in {"EXITING", "RELEASED"}
    assert "step 20 of 20" in egs.run("job", "logs", "fine")
    hub.end_all()


@pytest.mark.rotates(2)
def test_a_job_runs_in_a_box_that_is_there_and_leaves_it_open(hub: Hub, egs: Egs) -> None:
    egs.run("gpr", "create", "box", *BOX[:-2], "--wait")

    text = egs.run("run", "--in", "box", *BOX[-2:], "--", "torchrun", "train.py")

    assert "box is SUCCEEDED." in text
    assert egs.run("gpr", "show", "box", "-o", "jsonpath={.state}").strip() == "ACTIVE"
    hub.end_all()


def test_a_ctrl_c_before_a_job_is_filed_asks_about_no_other_job_even_of_its_name(
    hub: Hub, egs: Egs, capsys: pytest.CaptureFixture[str]
) -> None:
    egs.run("run", *BOX, *LATER, "--name", "train", "--detach", "--", "true")

    with Client(hub.url, hub.tokens["user_token"]) as client, pytest.raises(KeyboardInterrupt), asking(client, Filing("train")):
        raise KeyboardInterrupt

    assert capsys.readouterr().err == "train was not filed.\n"
    hub.end_all()


@pytest.mark.rotates(2)
def test_a_job_that_fails_has_an_exit_code_of_its_own(hub: Hub, egs: Egs) -> None:
    assert "bad is FAILED. Its command ended with exit code 1." in egs.run("run", *BOX, "--name", "bad", "--", "false", code=14)
    hub.end_all()


@pytest.mark.rotates(2)
def test_a_job_that_somebody_stops_has_another(hub: Hub, egs: Egs) -> None:
    egs.run("run", *BOX, *LATER, "--name", "late", "--detach", "--", "true")
    following = egs.start("job", "watch", "late")
    assert following.stdout
    assert "QUEUED" in following.stdout.readline()

    egs.run("job", "cancel", "late", "--yes")

    text = following.communicate(timeout=60)[0]
    assert (following.returncode, "late was stopped before it was done: its request is CANCELED." in text) == (15, True), text
    hub.end_all()


@pytest.mark.rotates(2)
@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        (("--image", "two words:1"), 6, "error: --image: Must be a reference of an image, without spaces"),
        (("--hours", "0"), 2, "error: --hours 0 is no time."),
        (("--env", "no-value"), 2, "--env: write NAME=VALUE."),
        (("--retries", "1000"), 6, "error: --retries: Must be from 0 to 100."),
    ],
)
def test_what_cannot_run_is_refused_in_clear_words(hub: Hub, egs: Egs, changes: tuple[str, ...], code: int, words: str) -> None:
    assert words in egs.run("run", *BOX, *changes, "--", "true", code=code)
    assert egs.run("gpr", "list", "-o", "name") == ""


@pytest.mark.rotates(2)
def test_objects_of_one_s_own_come_from_a_file_and_their_mistakes_are_told(hub: Hub, egs: Egs, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n")

    said = egs.run("run", "--hours", "1", "--file", str(file), code=6)

    assert f"{file}:2: kind: kind Pod of v1 is none of Job" in said


@pytest.mark.rotates(2)
@pytest.mark.parametrize(("answer", "state"), [("y", "CANCELED"), ("n", "QUEUED")])
def test_a_ctrl_c_asks_what_to_do_with_the_request(hub: Hub, egs: Egs, answer: str, state: str) -> None:
    terminal = egs.at_terminal("run", *BOX, *LATER, "--", "true")
    terminal.wait_for("QUEUED")
    terminal.interrupt()
    terminal.wait_for("Cancel it")
    terminal.type(f"{answer}\n")

    assert terminal.end() == 130
    assert egs.run("gpr", "list", "--all", "-o", "jsonpath={.items[0].state}").strip() == state
    hub.end_all()


@pytest.mark.soak
def test_a_command_and_a_hub_that_are_killed_lose_and_double_no_job(hub: Hub, egs: Egs) -> None:
    """The command dies while it reads, asks, has its answer, or follows the output; then it is given again."""
    run, earlier = ("run", *BOX, "--name"), {job["id"] for job in jobs_of(hub)}
    for number, wait_s in enumerate((0.1, 0.3, 0.6, 1.0, 2.0)):
        filing = egs.start(*run, f"killed-{number}", "--", "torchrun", "train.py")
        time.sleep(wait_s)
        filing.kill()
        filing.communicate()
    with hub.stopped_until_asked() as wait_for_request:
        filing = egs.start(*run, "unanswered", "--", "torchrun", "train.py")
        wait_for_request(filing)
        filing.kill()
        filing.communicate()

    left = egs.start(*run, "left", "--", "torchrun", "train.py")
    assert left.stdout
    left.stdout.readline()
    left.kill()
    left.communicate()

    following = egs.start(*run, "followed", "--", "torchrun", "train.py")
    out = following.stdout
    assert out
    wait_for("its output", lambda: "step 2 of 20" in out.readline(), within_s=START_S)
    hub.process.kill()
    hub.start()
    text = following.communicate(timeout=START_S)[0]

    if following.returncode == UNREACHABLE:  # a hub that is away for long is told, with what to do
        assert "egs job watch followed" in text
        text = egs.run("job", "watch", "followed")
    else:
        assert (following.returncode, text.count("step 20 of 20\n")) == (0, 1), text
    assert "followed is SUCCEEDED." in text
    names = [job["name"] for job in jobs_of(hub) if job["id"] not in earlier]
    assert len(names) == len(set(names)), "each at most once"
    assert {"left", "followed"} <= set(names)
    for name in names:
        wait_for(f"the end of {name}", lambda name=name: state_of(hub, name) == "SUCCEEDED", within_s=START_S)
    hub.end_all()


def jobs_of(hub: Hub) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = hub.ada.get("/jobs/?page_size=100")["results"]
    return found


def state_of(hub: Hub, name: str) -> str:
    (job,) = (each for each in jobs_of(hub) if each["name"] == name)
    return str(job["state"])
