"""The command answers and ends well, whatever the server or the person does."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from egs_client.cli.acts.commands import group_of
from egs_client.cli.commands.admin import GROUPS
from egs_client.cli.exits import MEANINGS
from tests.e2e.client.hub import EGS, Egs, Hub
from tests.e2e.processes import START_S, free_port, program, wait_for

pytestmark = pytest.mark.rotates(1)

BOX = ("--shape", "H100-80GB", "--hours", "1")
LATER = ("--not-before", f"{datetime.now(UTC) + timedelta(days=200):%Y-%m-%d}")


@pytest.fixture
def waiting(hub: Hub, egs: Egs) -> Iterator[str]:
    """A request that waits for years."""
    egs.run("gpr", "create", "later", *BOX, *LATER)
    yield "later"
    hub.end_all()


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("gpr show nobody", 5, "There is no GPR nobody"),
        ("gpr create --shape H100-80GB", 2, "--hours 3"),
        ("gpr create --shape H100-80GB --nodes 0 --hours 1", 6, "--nodes: Must be"),
        ("gpr create --memory 0 --at 2020-01-01 --hours 1", 6, "--memory: Must be"),
        ("gpr create --shape X-1GB --hours 1", 6, "shape"),
        ("gpr create --shape H100-80GB --nodes 500 --hours 1", 6, "most that could start is 6 nodes"),
        ("gpr create --shape H100-80GB --hours nan", 2, "no time"),
        ("gpr create --shape H100-80GB --hours 1e30", 2, "too long"),
        ("gpr create --shape H100-80GB --hours 1 --at 0001-01-01", 2, "no time"),
        ("gpr list -o xml", 2, "one of table"),
        ('gpr list -o jsonpath={"\\q}', 2, "no text of JSONPath"),
        ("get policies -o name", 0, "policy/vision"),
        ("get workspaces -o jsonpath={.items[*].metadata.name}", 0, "vision"),
        ("events --since 99999999999d", 2, "too long"),
        ("gpr list -n foreign", 0, "There is no such GPR"),
        ("kubeconfig", 2, "--cluster aurora"),
        ("alerts", 0, "Nothing is wrong"),
        ("usage --month soon", 2, "is no month"),
        ("admin node cordon aurora-h100-01 --why fan --yes", 4, ""),
        ("gpr watch nobody --timeout soon", 2, "30s, 45m"),
        ("frob", 2, "No such command"),
    ],
)
def test_each_kind_of_failure_has_its_exit_code_and_says_what_to_do(egs: Egs, line: str, code: int, words: str) -> None:
    assert words in egs.run(*line.split(), code=code)


def test_without_a_server_it_says_which_one_does_not_answer(egs: Egs) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    egs.env = {"EGS_URL": url, "EGS_TOKEN": "egsu_x"}

    assert f"The server at {url} does not answer" in egs.run("login", url, "--with-token", given="egsu_x", code=9)


def test_a_token_is_never_sent_without_tls(egs: Egs) -> None:
    assert "use https" in egs.run("login", "http://egs.example", "--with-token", given="egsu_x", code=2).lower()


def test_the_profile_is_for_its_owner_alone_and_its_token_goes_to_no_other_server(hub: Hub, egs: Egs) -> None:
    egs.env = {}
    assert "You are not signed in" in egs.run("whoami", code=3)

    egs.run("login", hub.url, "--with-token", given=hub.tokens["user_token"])

    file = egs.home / "config" / "egs" / "profiles.json"
    assert file.stat().st_mode & 0o777 == 0o600
    egs.run("workspace", "use", "vision")
    assert "Default:    vision" in egs.run("whoami")
    assert "There is no profile other" in egs.run("--profile", "other", "whoami", code=3)
    egs.env = {"EGS_URL": "http://127.0.0.1:9"}
    assert "EGS_TOKEN" in egs.run("gpr", "list", code=3)
    egs.env = {}
    egs.run("logout")
    assert hub.tokens["user_token"] not in file.read_text()


def test_a_token_that_ends_while_somebody_waits_is_told_and_the_request_stays(hub: Hub, egs: Egs, waiting: str) -> None:
    made = hub.ada.post("/tokens/", {"name": "short", "scopes": ["read", "write"]})
    other = Egs(egs.home, {"EGS_URL": hub.url, "EGS_TOKEN": made["token"]})
    watching = other.start("gpr", "watch", waiting)
    assert watching.stdout
    assert "QUEUED" in watching.stdout.readline()

    hub.ada.raw("DELETE", "/tokens/short/")

    text = watching.communicate(timeout=START_S)[0]
    assert (watching.returncode, "Sign in again: egs login" in text) == (3, True)
    assert "QUEUED" in egs.run("gpr", "show", waiting)


def test_a_wait_that_takes_too_long_leaves_the_request_and_says_so(egs: Egs, hub: Hub) -> None:
    text = egs.run("gpr", "create", "patient", *BOX, *LATER, "--wait", "--timeout", "1s", code=8)

    assert "patient is still QUEUED. It stays" in text
    hub.end_all()


def test_every_form_of_output_has_the_same_requests(egs: Egs, waiting: str) -> None:
    table = egs.run("gpr", "list").splitlines()
    objects = json.loads(egs.run("gpr", "list", "-o", "json"))
    assert (table[0].split()[:2], table[1].split()[:2]) == (["NAME", "STATE"], ["later", "QUEUED"])
    assert yaml.safe_load(egs.run("gpr", "list", "-o", "yaml")) == objects
    assert egs.run("gpr", "list", "-o", "name") == f"gpr/{objects['items'][0]['id']}\n"
    assert egs.run("gpr", "list", "-o", 'jsonpath={range .items[*]}{.name}={.state}{"\\n"}{end}') == "later=QUEUED\n\n"
    assert "vision" in egs.run("gpr", "list", "-o", "wide")


def test_what_a_person_sees_fits_into_80_columns_and_a_pipe_gets_no_colors(egs: Egs, waiting: str) -> None:
    for line in ("gpr list", "queue", "shapes", "nodes", "schedule", "events --limit 5", "gpr create --help", "--help"):
        terminal = egs.at_terminal(*line.split())
        assert terminal.end() == 0, terminal.shown
        shown = [text.replace("\x1b[1m", "").replace("\x1b[32m", "").replace("\x1b[0m", "") for text in terminal.shown.splitlines()]
        assert max(map(len, shown)) <= 80, line

    assert "\x1b" not in egs.run("gpr", "list")


def test_top_shows_what_gpus_do_the_hottest_first(egs: Egs, admin: Egs) -> None:
    def read() -> list[Any]:
        found: list[Any] = json.loads(admin.run("top", "-o", "json"))["items"]
        return found if found[0]["reading"] else []

    rows = wait_for("a reading", read, within_s=START_S)
    title, first, *_ = admin.run("top", "--node", rows[0]["node"]).splitlines()

    heat = [row["reading"]["temperature_c"] for row in rows if row["reading"] and not row["is_stale"]]
    assert heat == sorted(heat, reverse=True)
    assert title.split()[:4] == ["NODE", "GPU", "TEMP", "USE"]
    assert first.startswith(rows[0]["node"])
    assert "No box of yours holds a GPU now" in egs.run("top")


def test_usage_counts_hours_by_what_is_asked_for(egs: Egs, admin: Egs) -> None:
    assert egs.run("usage", "--month", "2020-01") == "Nothing was held.\n"
    assert json.loads(admin.run("usage", "--by", "gpr", "--step", "day", "--month", "2020-01", "-o", "json"))["items"] == []
    assert egs.run("usage", "--league", "--month", "2020-01") == "Nobody is in the league yet.\n"


def test_workloads_and_pods_of_a_box_are_listed(egs: Egs, admin: Egs, hub: Hub) -> None:
    egs.run("gpr", "create", "trains", *BOX, "--wait", "--timeout", "60s")

    def read() -> list[Any]:
        found: list[Any] = json.loads(egs.run("workloads", "--gpr", "trains", "-o", "json"))["items"]
        return found if found and found[0]["state"] == "RUNNING" else []

    (row,) = wait_for("a workload", read, within_s=START_S)
    shown = egs.run("workloads", row["id"])
    pods = egs.run("pods", "--gpr", "trains").splitlines()

    assert f"{row['kind']} {row['namespace']}/{row['name']}" in shown
    assert pods[0].split()[:4] == ["NAMESPACE", "NAME", "STATUS", "GPUS"]
    assert "Running" in pods[1]
    assert "There is no such pod" in egs.run("po", "--search", "nothing-like-it")
    hub.end_all()


def test_a_closed_pipe_ends_it_quietly(egs: Egs) -> None:
    line = f"{' '.join(EGS)} events --limit 500 -o json | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], env=egs.environment(), capture_output=True, text=True, check=True)

    assert (done.stdout, done.stderr) == ("141\n", "")


BASH = """
source <(egs completion bash)
COMP_CWORD=3 COMP_WORDS=(egs gpr show "")
_egs_completion egs
echo "egs gpr show ${COMPREPLY[@]}"
COMP_WORDS=(egs get workspaces v)
_egs_completion egs
echo "egs get workspaces ${COMPREPLY[@]}"
"""
FISH = """
egs completion fish | source
echo "egs gpr show" (complete -C "egs gpr show ")
echo "egs get workspaces" (complete -C "egs get workspaces v")
"""
# zsh completes at a terminal alone, with a person at the tabulator.
ZSH = """
zmodload zsh/zpty
zpty terminal zsh -f -i
zpty -w terminal 'autoload -U compinit; compinit -u; source <(egs completion zsh); print rea''dy'
zpty -r terminal shown '*ready*'
zpty -w -n terminal $'egs gpr show \t'
zpty -r terminal shown '*later*'
print -r -- "$shown"
zpty -w -n terminal $'\\x15egs get workspaces v\\t'
zpty -r terminal shown '*vision*'
print -r -- "$shown"
"""


@pytest.mark.parametrize(("shell", "script"), [(["bash"], BASH), (["zsh", "-f"], ZSH), (["fish", "--no-config"], FISH)])
def test_completion_in_each_shell_knows_the_names_that_the_server_has(egs: Egs, waiting: str, shell: list[str], script: str) -> None:
    program(shell[0])
    folder = egs.home / "bin"
    folder.mkdir()
    (folder / "egs").write_text(f'#!/bin/sh\nexec {" ".join(EGS)} "$@"\n')
    (folder / "egs").chmod(0o755)
    env = egs.environment()
    env |= {"PATH": f"{folder}:{env['PATH']}", "TERM": "xterm"}
    done = subprocess.run([*shell, "-c", script], env=env, capture_output=True, text=True, check=True, timeout=START_S)

    assert "egs gpr show later" in done.stdout, done.stderr
    assert "egs get workspaces vision" in done.stdout


def test_an_administrator_sees_what_an_act_would_do_before_it_is_done(hub: Hub, egs: Egs, admin: Egs) -> None:
    begin = datetime.now(UTC) + timedelta(days=200)
    times = ("--starts-at", begin.isoformat(), "--ends-at", (begin + timedelta(days=1)).isoformat())
    window = ("--cluster", "aurora", *times, "--reason", "new fans")
    assert "moved" in admin.run("admin", "maintenance", "add", *window, "--dry-run")
    assert not hub.admin.get("/maintenance/")["results"]

    assert "add --yes" in admin.run("admin", "node", "cordon", "aurora-h100-06", "--why", "fan", code=2)
    told = "Running requests continue to their end; planned ones start elsewhere."
    assert told in admin.run("admin", "node", "cordon", "aurora-h100-06", "--why", "fan", "--yes")
    assert "true" in admin.run("admin", "node", "show", "aurora-h100-06", "-o", "jsonpath={.is_cordoned}")
    assert "Requests may start on the node again." in admin.run("admin", "node", "uncordon", "aurora-h100-06", "--yes")

    egs.run("gpr", "create", "wide", *BOX, *LATER, "--nodes", "2")
    assert "It is planned as number 1." in admin.run("admin", "gpr", "priority", "wide", "--priority", "250", "--dry-run")
    edited = egs.run("gpr", "edit", "wide", "--gpus", "4", "--dry-run")
    assert "--gpus: - -> 4\n" in edited
    assert "With that:\nCLUSTER" in edited
    assert json.loads(egs.run("gpr", "show", "wide", "-o", "json"))["gpus_per_node"] is None
    broken = admin.run("admin", "policy", "change", "vision", "--nodes-approval", "1", "--dry-run")
    assert "breaches: name wide, slice vision, owner ada, state QUEUED" in broken
    assert "VERSION" in admin.run("admin", "policy", "list")
    assert "waiting: count 1, names wide" in admin.run("admin", "workspace", "archive", "vision", "--dry-run")
    hub.end_all()


def test_help_lists_every_exit_code(egs: Egs) -> None:
    text = egs.run("--help")
    assert [line for code, meaning in MEANINGS.items() if (line := f"{code}  {meaning}") not in text] == []


def test_each_group_of_an_administrator_can_be_shown(admin: Egs) -> None:
    for path, only, _ in GROUPS.values():
        assert group_of(path, only=only).registered_commands


def test_what_is_watched_goes_on_where_it_was_when_the_server_has_been_away(hub: Hub, egs: Egs, waiting: str) -> None:
    (gpr,) = hub.ada.get(f"/gprs/?name={waiting}&ended=false")["results"]
    of_it = ("--gpr", gpr["id"], "--since", "1h")
    watching, events = egs.start("gpr", "watch", waiting), egs.start("events", "--watch", *of_it, "-o", "name")
    assert watching.stdout
    assert events.stdout
    assert "QUEUED" in watching.stdout.readline()
    seen = [events.stdout.readline()]
    hub.process.kill()
    assert "does not answer" in egs.run("gpr", "list", code=9)

    hub.start()
    egs.run("gpr", "cancel", waiting)

    text = watching.communicate(timeout=START_S)[0]
    assert (watching.returncode, "later  CANCELED" in text) == (0, True), text
    stored = [f"event/{event['id']}\n" for event in json.loads(egs.run("events", *of_it, "-o", "json"))["items"]]
    while stored[-1] not in seen:
        seen.append(events.stdout.readline())
    events.send_signal(signal.SIGINT)
    events.communicate(timeout=START_S)
    told = [line for line in seen if line.startswith("event/")]
    assert told == stored
    wait_for("the fleet", lambda: hub.admin.get("/nodes/")["results"], within_s=START_S)
