"""Settings from the environment: what does not parse stops the start with a sentence that names the variable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from egs.env import env_bool, env_choice, env_database, env_int, env_list, env_secret, env_str


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", True), ("true", True), ("YES", True), ("on", True), ("0", False), ("False", False), ("no", False), ("off", False), ("", False)],
)
def test_a_boolean_is_read(text: str, value: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EGS_X", text)

    assert env_bool("EGS_X", not value) is value


@pytest.mark.parametrize("text", ["maybe", "2", "tru", " "])
def test_a_boolean_that_is_none_names_its_variable(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EGS_X", text)

    with pytest.raises(ImproperlyConfigured, match="EGS_X"):
        env_bool("EGS_X", False)


@pytest.mark.parametrize("text", ["", "1.5", "ten", "1e3", "0x10"])
def test_a_number_that_is_none_names_its_variable(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EGS_X", text)

    with pytest.raises(ImproperlyConfigured, match="EGS_X"):
        env_int("EGS_X", 1)


@pytest.mark.parametrize("text", ["", "Guarded", "fifo"])
def test_a_choice_that_is_none_names_its_variable_and_what_there_is(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EGS_X", text)

    with pytest.raises(ImproperlyConfigured, match="EGS_X must be guarded or conservative, not "):
        env_choice("EGS_X", "guarded", ("guarded", "conservative"))


def test_what_is_not_set_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EGS_X", raising=False)

    assert (env_str("EGS_X", "a"), env_bool("EGS_X", True), env_int("EGS_X", 7), env_list("EGS_X", "a, b,")) == ("a", True, 7, ["a", "b"])


def test_a_secret_may_stand_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_text("hush\n")
    monkeypatch.setenv("EGS_X", "in the open")
    monkeypatch.setenv("EGS_X_FILE", str(file))

    assert env_secret("EGS_X") == "hush"


def test_a_secrets_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EGS_X_FILE", str(tmp_path / "nothing"))

    with pytest.raises(ImproperlyConfigured, match=r"EGS_X_FILE.*nothing"):
        env_secret("EGS_X")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite:///relative.db", {"NAME": "relative.db"}),
        ("sqlite:////var/egs.db", {"NAME": "/var/egs.db"}),
        (
            "postgres://egs:p%40ss%2Fword@db.example:5433/egs",
            {"NAME": "egs", "USER": "egs", "PASSWORD": "p@ss/word", "HOST": "db.example", "PORT": "5433"},
        ),
        ("postgresql://db/egs", {"NAME": "egs", "USER": "", "HOST": "db", "PORT": ""}),
        ("postgres:///egs?host=/run/postgresql", {"NAME": "egs", "HOST": "/run/postgresql"}),
    ],
)
def test_a_database_is_read(url: str, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EGS_X", url)

    assert expected.items() <= env_database("EGS_X", "").items()


def test_sqlite_takes_its_write_lock_at_the_beginning_of_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EGS_X", "sqlite:///x.db")

    options: Any = env_database("EGS_X", "")["OPTIONS"]

    assert options["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in options["init_command"]


@pytest.mark.parametrize("url", ["mysql://db/egs", "egs", ""])
def test_a_database_of_another_kind_names_its_variable(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EGS_X", url)

    with pytest.raises(ImproperlyConfigured, match="EGS_X"):
        env_database("EGS_X", "")
