"""`egs notebook` works at a terminal and in a pipe, against a hub with simulated clusters."""

from __future__ import annotations

import re

import pytest

from tests.e2e.client.hub import Egs, Hub
from tests.e2e.client.test_answers import LATER
from tests.e2e.processes import ROOT

BOX = ("--gpus", "1", "--shape", "H100-80GB", "--hours", "1", "--image", "registry.example/lab:1.0")
ADDRESS = re.compile(r"http://127\.0\.0\.1:[0-9]+/lab\?token=([\w-]{40,})")


def test_a_notebook_is_waited_for_shown_left_opened_again_and_stopped(hub: Hub, egs: Egs) -> None:
    terminal = egs.at_terminal("notebook", *BOX, "--name", "lab", "--volume", "home")
    shown = terminal.wait_for(ADDRESS.pattern)
    terminal.wait_for("It is there until Ctrl-C")
    terminal.interrupt()
    assert terminal.end() == 130
    assert "Again: egs notebook open lab. Give its GPUs back: egs notebook stop lab" in terminal.shown.replace("\r\n", "\n")

    assert re.search(r"lab +RUNNING +in 5\d min", egs.run("notebook", "list"))
    assert "home at /home/jovyan" in egs.run("notebook", "show", "lab")
    again = egs.at_terminal("notebook", "open", "lab", "--port", "0")
    first, second = ADDRESS.search(shown), ADDRESS.search(again.wait_for(ADDRESS.pattern))
    assert first is not None
    assert second is not None
    assert first[1] == second[1]
    told = (("job", "show", "lab", "-o", "json"), ("events", "-o", "json"), ("notebook", "list", "-o", "yaml"))
    assert not any(first[1] in egs.run(*words) for words in told)
    egs.run("notebook", "stop", "lab", "--yes")
    again.wait_for("lab was stopped before it was done|lab is STOPPING")
    again.end()
    hub.end_all()


@pytest.mark.rotates(2)
@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ((*BOX, "--nodes", "2"), 6, "error: --nodes: A notebook runs on one node."),
        ((*BOX, "--volume", ":/x"), 2, "--volume: write CLAIM:/path."),
        (("open", "no-such"), 5, "error"),
        ((*BOX, "--image", "two words:1"), 6, "error: --image: Must be a reference of an image"),
    ],
)
def test_what_cannot_run_is_refused_in_clear_words(hub: Hub, egs: Egs, given: tuple[str, ...], code: int, words: str) -> None:
    assert words in egs.run("notebook", *given, code=code)


@pytest.mark.rotates(2)
def test_a_notebook_that_waits_can_be_filed_and_left(hub: Hub, egs: Egs) -> None:
    assert "later" in egs.run("notebook", *BOX, *LATER, "--name", "later", "--detach")
    assert "WAITING" in egs.run("notebook", "list")
    assert "later was stopped before it was done" not in egs.run("notebook", "stop", "later", "--dry-run")
    assert "later is STOPPED." in egs.run("notebook", "stop", "later", "--yes")
    hub.end_all()


@pytest.mark.rotates(2)
def test_the_four_shipped_templates_are_applied_and_a_job_and_a_notebook_start_from_them(hub: Hub, egs: Egs) -> None:
    assert "fine-tuning" in egs.run("apply", "-f", str(ROOT / "deploy/examples/templates.yaml"))

    egs.run("run", "--template", "fine-tuning", *LATER, "--name", "tuned", "--detach", "--", "true")
    egs.run("notebook", *LATER, "--name", "usual", "--detach")

    assert "nvcr.io/nvidia/pytorch" in egs.run("job", "show", "tuned")
    assert "quay.io/jupyter/pytorch-notebook" in egs.run("notebook", "show", "usual")
    hub.end_all()
