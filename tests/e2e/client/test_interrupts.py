"""Ctrl-C at any moment: nobody has to guess what became of the request."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from datetime import UTC, datetime, timedelta
from io import StringIO

import httpx
import pytest

from egs_client import gpus
from egs_client.cli.commands.gpr_acts import Filing
from egs_client.errors import EgsError
from egs_client.gprs import OVER
from egs_client.sync.box import Box
from egs_client.sync.client import Client
from tests.e2e.client.hub import Egs, Hub
from tests.e2e.client.test_answers import BOX, LATER
from tests.e2e.processes import START_S

pytestmark = pytest.mark.rotates(2)

CREATE = ("gpr", "create", "train", *BOX, *LATER, "--wait")


@pytest.mark.parametrize(("answer", "state"), [("y", "CANCELED"), ("n", "QUEUED")])
def test_at_a_terminal_it_asks_what_to_do_with_the_request(hub: Hub, egs: Egs, answer: str, state: str) -> None:
    terminal = egs.at_terminal(*CREATE)
    terminal.wait_for("QUEUED")
    terminal.interrupt()
    terminal.wait_for("Cancel it")
    terminal.type(f"{answer}\n")

    assert terminal.end() == 130
    assert egs.run("gpr", "list", "--all", "-o", "jsonpath={.items[0].state}").strip() == state
    hub.end_all()


def test_without_a_terminal_it_says_what_goes_on(hub: Hub, egs: Egs) -> None:
    waiting = egs.start(*CREATE)
    assert waiting.stdout
    assert "QUEUED" in waiting.stdout.readline()
    waiting.send_signal(signal.SIGINT)

    text = waiting.communicate(timeout=START_S)[0]
    assert (waiting.returncode, "stays QUEUED. To end it: egs gpr cancel" in text) == (130, True), text
    hub.end_all()


def test_a_ctrl_c_while_the_server_files_it_waits_for_the_answer_first(hub: Hub, egs: Egs) -> None:
    with hub.stopped_until_asked() as wait_for_request:
        filing = egs.start(*CREATE[:-1])
        assert filing.stdout
        wait_for_request(filing)
        filing.send_signal(signal.SIGINT)
        first = filing.stdout.readline()

    text = first + filing.communicate(timeout=START_S)[0]
    assert (filing.returncode, "Waiting for the server's answer" in text, "train (" in text) == (130, True, True), text
    assert "stays QUEUED. To end it: egs gpr cancel" in text
    hub.end_all()


def test_a_box_is_given_back_when_its_block_fails(hub: Hub) -> None:
    with Client(hub.url, hub.tokens["user_token"], workspace="vision") as client:
        box = gpus("H100-80GB", hours=1, client=client)
        with pytest.raises(ZeroDivisionError):
            fail_in(box)
        seen = client.watch_events(since=box.gpr.created_at, gpr=box.gpr.id)
        kinds = [next(seen).kind for _ in range(3)]
        states = [gpr.state for gpr in client.watch_gpr(box.gpr.id)]

    assert kinds[:2] == ["gpr.created", "gpr.transition"]
    assert (states[0], states[-1]) == ("EXITING", "RELEASED")
    hub.end_all()


def test_a_box_is_given_back_though_a_ctrl_c_comes_before_the_answer_to_its_request(hub: Hub) -> None:
    def interrupt(answer: httpx.Response) -> None:
        if answer.status_code == 201:
            client._http.event_hooks = {}
            raise KeyboardInterrupt

    with Client(hub.url, hub.tokens["user_token"], workspace="vision") as client:
        client._http.event_hooks = {"response": [interrupt]}
        with pytest.raises(KeyboardInterrupt), gpus("H100-80GB", hours=1, name="cut", client=client):
            pytest.fail("nobody knows yet which it is")
        (found,) = client.gprs.list(name="cut").all()

    assert found.state in OVER
    hub.end_all()


def fail_in(box: Box) -> None:
    with box:
        assert (box.gpr.state, len(box.nodes), box.left_s > 3000) == ("ACTIVE", 1, True)
        assert box.offers is not None
        raise ZeroDivisionError


def test_a_box_that_does_not_start_in_time_is_canceled(hub: Hub) -> None:
    with Client(hub.url, hub.tokens["user_token"], workspace="vision") as client:
        later = datetime.now(UTC) + timedelta(days=200)
        box = gpus("H100-80GB", hours=1, client=client, wait_s=1, earliest_start_at=later)
        with pytest.raises(EgsError, match="not active"), box:
            pytest.fail("it has not started")

        assert [gpr.state for gpr in client.gprs.list(page_size=1).all(limit=1)] == ["CANCELED"]


@pytest.mark.parametrize("module", ["click.core", "typer.main", "egs_client.sync.api.gpr"])
def test_a_ctrl_c_before_anything_was_asked_for_ends_it_with_one_line(module: str, egs: Egs) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "egs_client", "gpr", "list"]
    starting = subprocess.Popen(command, env=egs.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert starting.stderr
    seen = next(line for line in starting.stderr if line.endswith(f" {module}\n"))
    assert seen
    starting.send_signal(signal.SIGINT)
    out, err = starting.communicate(timeout=START_S)

    told = [line for line in err.splitlines() if not line.startswith("import time:")]
    assert (starting.returncode, out, told) == (130, "", ["Interrupted before anything was asked for."])


def test_an_ended_request_of_the_same_name_is_not_taken_for_one_that_was_never_filed(hub: Hub, egs: Egs) -> None:
    """A second Ctrl-C gives up on an answer; by its own key the command knows whether the request is there."""
    egs.run("gpr", "create", "train", *BOX, *LATER)
    egs.run("gpr", "cancel", "train", "--yes")
    with Client(hub.url, hub.tokens["user_token"]) as client:
        never, filed = Filing("train"), Filing("train")
        assert told(lambda: never.tell(client, where="egs gpr list")) == "train was not filed.\n"
        never.send()
        assert "not known whether train was filed" in told(lambda: never.tell(client, where="egs gpr list"))
        box = {"slice": "vision", "shape": "H100-80GB", "nodes": 1, "duration_s": 3600}
        made = client.gprs.create(name="train", **box, idempotency_key=filed.send())  # type: ignore[arg-type]
        assert made.id in told(lambda: filed.tell(client, where="egs gpr list"))
        job = Filing("job")
        run = client.jobs.create(name="job", image="a:1", **box, idempotency_key=job.send())  # type: ignore[arg-type]
        assert run.gpr_id in told(lambda: job.tell(client, where="egs job list"))
    with Client(hub.url, hub.tokens["admin_token"]) as other:
        assert not other.gprs.list(idempotency_key=filed.key).all()
    hub.end_all()


def told(act: Callable[[], None]) -> str:
    """Returns what it says on standard error, where nobody can be asked."""
    with redirect_stderr(StringIO()) as errors:
        act()
    return errors.getvalue()
