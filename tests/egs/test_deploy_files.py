"""deploy/compose.yaml and what it builds, held against the real commands, settings and files. No container runs here."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from celery.bin.celery import celery as celery_command
from django.conf import settings
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand
from django.urls import resolve

from worker_agent.__main__ import _parser as agent_parser

ROOT = Path(settings.BASE_DIR)
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
# The worker's and the agent's are read elsewhere; these are all that the hub reads.
READ = re.compile(r'env_(\w+)\(\s*"(EGS_\w+)"')
SECRET_READERS = {"secret", "peppers", "database"}


def settings_read() -> set[str]:
    found = READ.findall((ROOT / "egs" / "settings.py").read_text())
    return {name for _, name in found} | {f"{name}_FILE" for reader, name in found if reader in SECRET_READERS}


def variables_of(text: str) -> set[str]:
    return set(re.findall(r"\bEGS_[A-Z_]+\b", text))


def command_parses(command: list[str]) -> None:
    """Raises, or ends the process, when the program would not take these arguments."""
    match command:
        case ["python", "manage.py", name, *arguments]:
            made = get_commands()[name]
            parser = (made if isinstance(made, BaseCommand) else load_command_class(made, name)).create_parser("manage.py", name)
            parser.parse_args(arguments)
        case ["celery", "-A", app, name, *arguments]:
            assert app == ("egs.beat" if name == "beat" else "egs.celery")
            celery_command.get_command(None, name).make_context(name, list(arguments), resilient_parsing=True)
        case ["python", "-m", module]:
            assert find_spec(module)
        case _:
            raise AssertionError(f"what is {command}?")


@pytest.mark.parametrize("name", ["web1", "web2", "worker", "notices", "beat", "migrate", "compile"])
def test_each_command_of_the_hub_is_one_that_there_is_with_options_that_it_takes(name: str) -> None:
    command_parses(SERVICES[name]["command"])


def test_the_agent_takes_its_options_and_finds_its_fleet() -> None:
    options = agent_parser().parse_args(SERVICES["agent"]["command"])

    assert options.hub == "http://web:8000"
    assert "web" in SERVICES["web1"]["networks"]["default"]["aliases"]
    assert (ROOT / options.simulate).exists()
    assert options.join_token_file == Path("/run/secrets/join-token")


def test_each_variable_is_one_that_settings_read() -> None:
    given = {name for service in SERVICES.values() for name in service.get("environment", {}) if name.startswith("EGS_")}

    assert given - {"EGS_DOMAIN"} <= settings_read()
    assert variables_of((DEPLOY / "Dockerfile").read_text()) - {"EGS_REQUIREMENTS"} <= settings_read()
    assert variables_of((DEPLOY / "Caddyfile").read_text()) == {"EGS_DOMAIN"}


def test_every_variable_that_settings_read_is_told_of_in_the_documentation_and_no_other() -> None:
    told = variables_of((ROOT / "docs" / "how-to" / "running.md").read_text())
    own = {"EGS_ALLOW_SKIP", "EGS_DOMAIN", "EGS_PRODUCTION_DIR", "EGS_PRODUCTION_PORTS"}
    own |= {"EGS_KUBE_CACHE", "EGS_KUBE_VERSION", "EGS_TEST_KUBECONFIG", "EGS_TEST_DAY"}

    assert {name for name in settings_read() if not name.endswith("_FILE")} - told == set()
    assert told - settings_read() <= own


def test_each_secret_is_declared_made_by_the_script_and_read_where_it_is_given(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "make-secrets", tmp_path)
    subprocess.run([tmp_path / "make-secrets"], check=True)
    made = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    subprocess.run([tmp_path / "make-secrets"], check=True)

    assert set(COMPOSE["secrets"]) == set(made) | {"join-token"}
    assert {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()} == made, "a second run changes nothing"
    assert len(made["secret-key"]) >= 50
    assert made["postgres-password"] in made["database-url"]
    assert made["redis-password"] in made["redis-url"]
    for name, service in SERVICES.items():
        mounted = set(service.get("secrets", []))
        named = set(re.findall(r"/run/secrets/([\w-]+)", yaml.safe_dump(service)))
        assert named == mounted <= set(COMPOSE["secrets"]), name


def test_whoever_is_waited_for_exists_and_can_become_what_is_waited_for() -> None:
    for name, service in SERVICES.items():
        for other, condition in service.get("depends_on", {}).items():
            match condition["condition"]:
                case "service_healthy":
                    assert "healthcheck" in SERVICES[other], f"{name} waits for {other}"
                case "service_completed_successfully":
                    assert SERVICES[other]["restart"] == "no", f"{name} waits for {other}"


def test_what_uses_the_database_waits_for_the_migration_and_for_the_compiled_planner() -> None:
    for first in ("migrate", "compile"):
        waits = {name for name, service in SERVICES.items() if first in service.get("depends_on", {})}
        assert waits == {"web1", "web2", "worker", "notices", "beat"}


def test_the_planner_is_compiled_in_the_image_and_kept_in_a_volume() -> None:
    """The hub's containers cannot write elsewhere, and another kind of CPU compiles anew: once, not in each process and request."""
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    (folder,) = re.findall(r"NUMBA_CACHE_DIR=(\S+)", dockerfile)

    assert f"RUN {' '.join(SERVICES['compile']['command'])}\n" in dockerfile
    for name in ("compile", "web1", "web2", "worker", "notices", "beat"):
        assert SERVICES[name]["volumes"] == [f"kernels:{folder}"], name


def test_health_is_asked_of_addresses_that_there_are() -> None:
    for text in (yaml.safe_dump(SERVICES["web1"]["healthcheck"]), (DEPLOY / "Caddyfile").read_text()):
        paths = re.findall(r"(?:8000|health_uri )(/\w+)", text)
        assert paths
        assert all(resolve(path).func.__module__ == "egs.health" for path in paths)


def test_volumes_are_declared_and_bound_files_exist() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]


def test_the_image_copies_what_there_is_builds_the_targets_and_runs_as_nobody_in_particular() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    stages = {line.split()[-1] for line in lines if line.startswith("FROM ")}
    copied = [line.split()[1] for line in lines if line.startswith("COPY ") and "--from" not in line]

    assert {service["build"]["target"] for service in SERVICES.values() if "build" in service} <= stages
    assert all((ROOT / path).exists() for path in copied)
    for stage in ("agent", "hub"):
        start = next(index for index, line in enumerate(lines) if line.endswith(f" AS {stage}"))
        assert "USER egs" in lines[start:]


def test_no_secret_and_no_history_gets_into_an_image() -> None:
    left_out = set((DEPLOY / "Dockerfile.dockerignore").read_text().split())

    assert {".git", ".env", "var", "deploy/secrets"} <= left_out
