"""The agent's command line: what it refuses before it begins."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from protocol.agents.registration import REGISTER_PATH
from protocol.agents.transport import PROTO_MAX, PROTO_MIN, Code, Problem
from protocol.references import is_image
from tests.agent.process.test_process import TinyHub
from tests.e2e.processes import ROOT
from worker_agent.__main__ import _token_reader, main

NEEDED = ["--hub", "https://egs.example.org", "--join-token-file", "token", "--in-cluster"]


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--check-image", "http://a b", "no reference of an image"),
        ("--check-runtime-class", "NVIDIA", "no name of an object"),
        ("--check-pull-secret", "egs-system/mine", "no name of an object"),
    ],
)
@pytest.mark.parametrize("is_by_environment", [False, True])
def test_what_cannot_be_for_the_pods_of_checks_is_refused_at_the_start(
    is_by_environment: bool, option: str, value: str, says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise every check of every node would fail of it."""
    if is_by_environment:
        monkeypatch.setenv("EGS_" + option.removeprefix("--").upper().replace("-", "_"), value)

    with pytest.raises(SystemExit, match="2"):
        main([*NEEDED, *([] if is_by_environment else [option, value])])

    assert f"{option}: {value} is {says}" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--pull-secret", "--check-runtime-class"])
@pytest.mark.parametrize("value", ["egs-system/mine", "NVIDIA", 'x"}', "a..b", "-a", "a" * 254])
def test_the_script_that_installs_refuses_them_too_before_it_changes_anything(option: str, value: str) -> None:
    command = [str(ROOT / "deploy/agent/install"), "--hub", "https://egs.example.org", "--image", "a", option, value]

    done = subprocess.run(command, env={"PATH": "/usr/bin:/bin", "KUBECONFIG": "/nowhere"}, capture_output=True, text=True, check=False)

    assert (done.returncode, f"{option} {value}: this is no name of an object" in done.stderr) == (2, True), done.stderr


def test_the_script_that_installs_refuses_an_agent_that_does_not_speak_the_hubs_protocol_before_it_changes_anything() -> None:
    hub = TinyHub()
    hub.problem = Problem(status=400, code=Code.UNSUPPORTED_PROTO)
    command = [str(ROOT / "deploy/agent/install"), "--hub", f"{hub.url}/", "--image", "a"]

    done = subprocess.run(command, env={"PATH": "/usr/bin:/bin", "KUBECONFIG": "/nowhere"}, capture_output=True, text=True, check=False)

    hub.server.shutdown()
    hub.server.server_close()
    assert hub.paths == [REGISTER_PATH]
    assert (done.returncode, f"speaks EGS Sync {PROTO_MIN} to {PROTO_MAX}, and the hub" in done.stderr) == (3, True), done.stderr


@pytest.mark.parametrize(
    "image",
    [
        "python",
        "my_image:1",
        "team_a/egs-agent:1",
        "a__b/c---d",
        "registry.example/team/egs-agent:1.0",
        "localhost:5000/egs-agent",
        "[2001:db8::1]:5000/egs-agent:_v1",
        "Registry.Example/egs-agent",
        "a@sha256:" + "0" * 64,
        "registry.example:5000/a/b.c:1.0-rc_1@sha512:" + "f" * 128,
        "a@sha384:" + "0" * 96,
        "a/" * 126 + "a:" + "t" * 128 + "@sha512:" + "0" * 128,
    ],
)
def test_an_image_that_kubernetes_takes_is_one_for_the_agent_too(image: str) -> None:
    """The agent's own image is that of its checks where nothing else is said: without this the agent would end at its start."""
    assert is_image(image)


@pytest.mark.parametrize(
    "image",
    [
        "",
        "A",
        "a/B",
        "a:",
        "a b",
        "http://a/b",
        "a//b",
        "/a",
        "a/",
        "a___b",
        "a_",
        "a..b",
        "a@sha256:0",
        "a@sha512:" + "0" * 64,
        "a" * 256,
        "a\n",
    ],
)
def test_what_it_does_not_take_is_refused(image: str) -> None:
    assert not is_image(image)


def test_a_file_of_the_join_token_that_cannot_be_read_is_none_to_an_agent_at_work_and_told_once(tmp_path: Path) -> None:
    """It may hold nodes; the administrator is at work on the file."""
    file, notes = tmp_path / "token", list[str]()
    read = _token_reader(file, lambda event, fields: notes.append(f"{event}: {fields['why']}"))
    assert (read(), notes) == ("", [])

    file.write_bytes(b"\xff\xfe")
    assert [read() for _ in range(3)] == ["", "", ""]
    assert len(notes) == 1
    assert "join_token_unreadable" in notes[0]

    file.write_text("join-2\n")
    assert read() == "join-2"
