"""The agent's command line: what it refuses before it begins."""

from __future__ import annotations

import pytest

from worker_agent.__main__ import main

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
    """Else every check of every node would fail of it."""
    if is_by_environment:
        monkeypatch.setenv("EGS_" + option.removeprefix("--").upper().replace("-", "_"), value)

    with pytest.raises(SystemExit, match="2"):
        main([*NEEDED, *([] if is_by_environment else [option, value])])

    assert f"{option}: {value} is {says}" in capsys.readouterr().err
