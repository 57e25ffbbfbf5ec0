"""The settings of the production profile, as a process reads them from its environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.processes import ROOT

# Each day: tests/e2e/test_production.py, which starts with these settings
pytestmark = pytest.mark.rotates

ENVIRONMENT = {
    "EGS_PROFILE": "production",
    "EGS_SECRET_KEY": "k3Jx9-Qm2vT7_bW5zR8nL4pY6dC1fH0gS-aEuOiXtNqMrVwZ-longer",
    "EGS_DATABASE_URL": "postgres://egs:canary@127.0.0.1:1/egs",
    "EGS_REDIS_URL": "redis://127.0.0.1:1/0",
    "EGS_ALLOWED_HOSTS": "egs.example.com",
}


def run(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Runs a process with the environment of production and nothing of this one's."""
    own = {name: text for name, text in os.environ.items() if not name.startswith("EGS_")}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env={**own, **ENVIRONMENT, **changes}, capture_output=True, text=True, check=False
    )


@pytest.mark.daily
def test_check_deploy_finds_nothing_and_only_the_domains_owners_checks_are_silenced() -> None:
    done = run("manage.py", "check", "--deploy", "--fail-level", "WARNING")

    assert done.returncode == 0, done.stderr
    assert "no issues (2 silenced)" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("EGS_METRICS_ALLOW", "10.0.0.0/8,anybody"),
        ("EGS_BEHIND_TLS_PROXY", "perhaps"),
        ("EGS_REDIS_URL", ""),
        ("EGS_POLICY", "fifo"),
    ],
)
def test_a_setting_that_does_not_parse_or_is_missing_stops_the_start_with_its_name(name: str, value: str) -> None:
    done = run("manage.py", "check", **{name: value})

    assert done.returncode != 0
    assert name in done.stderr


# Django sets its log up like this before it imports the apps, which would take two seconds.
LOG = """
import logging
from django.conf import settings
from django.utils.log import configure_logging
configure_logging(settings.LOGGING_CONFIG, settings.LOGGING)
import structlog
structlog.get_logger("egs.test").warning("ours", gpr_id="g1")
logging.getLogger("uvicorn.error").warning("of a %s", "library")
password = "canary-of-a-variable"
try:
    raise ValueError("broken")
except ValueError:
    structlog.get_logger("egs.test").exception("failed")
"""


@pytest.mark.daily
def test_each_line_of_the_log_is_json_in_production_and_holds_no_variables_of_a_stack() -> None:
    done = run("-c", LOG, DJANGO_SETTINGS_MODULE="egs.settings")

    ours, library, broken = (json.loads(line) for line in done.stderr.splitlines())
    assert (ours["event"], ours["gpr_id"], ours["level"], ours["logger"]) == ("ours", "g1", "warning", "egs.test")
    assert library["event"] == "of a library"
    assert broken["exception"][0]["exc_type"] == "ValueError"
    assert "canary" not in done.stderr


def test_the_log_is_readable_on_a_terminal(tmp_path: Path) -> None:
    embedded = {"EGS_PROFILE": "embedded", "EGS_DATABASE_URL": "sqlite:////:memory:", "EGS_REDIS_URL": "", "EGS_VAR_DIR": str(tmp_path)}
    done = run("-c", LOG, DJANGO_SETTINGS_MODULE="egs.settings", **embedded)

    assert "ours" in done.stderr.splitlines()[0]
    assert "gpr_id=g1" in done.stderr.splitlines()[0]
    assert "Traceback" in done.stderr
    assert "canary" not in done.stderr


# What both processes of Celery do at their start.
CELERY = """
import sys
from egs.celery import app
app.loader.import_default_modules()
print("gpr.tick" in app.tasks, "numba" in sys.modules)
"""


def test_celery_knows_its_task_without_the_planners_compiler_which_is_most_of_a_process() -> None:
    done = run("-c", CELERY)

    assert done.stdout.split() == ["True", "False"], done.stderr
