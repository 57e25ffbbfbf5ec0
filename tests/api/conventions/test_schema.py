"""The schema tells the truth: whatever it allows or forbids, the API takes it or refuses it in its own words, and answers as described."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import booleans, characters, text
from schemathesis import GenerationMode
from schemathesis.auths import AuthProvider
from schemathesis.checks import CHECKS
from schemathesis.core.failures import FailureGroup
from schemathesis.core.parameters import ParameterLocation
from schemathesis.openapi.checks import RejectedPositiveData
from schemathesis.specs.openapi.checks import positive_data_acceptance
from schemathesis.wfc.escalation import EscalatingAuthProvider

from accounts.models import User
from core.clock import db_now
from core.names import text_fault
from gpr.allocation.live import live_forget
from gpr.bookings.services import SeriesTerms, series_create
from gpr.models import BookingSeries, Job, PromiseMove, RepeatRule
from inventory.models import MaintenanceWindow, StepResult, Supply, SupplyOrder
from inventory.services.maintenance import window_announce, window_draft
from observability.alerts.models import Alert, AlertRule, AlertSilence
from protocol.agents.events import Outcome
from slices.models import Budget, Deputy, Period, Quota, Role
from slices.namespaces.services import namespace_bind
from slices.policies.services import policy_of
from slices.service_accounts.services import service_account_create
from tests import factories
from tests.api.conftest import World
from tests.builders import SHAPE
from tests.effort import DAY, IS_SOAK
from tests.observability.alerts.rows import alert_of
from tests.observability.workloads.saying import pods_of, tell

# Fields of valid form that the API may refuse all the same, as no schema can say why; with the operation where only that one may.
ALSO_REFUSED = {
    "a time that must lie ahead, or behind another one": ("starts_at", "ends_at", "since_at", "until_at"),
    "the start of a request, which must lie ahead": ("earliest_start_at", "first_start_at"),
    "a duration has limits, and its text a grammar": ("duration_s", "idle_timeout_s", "lead_time_s", "gain_s", "extra_s"),
    "one of several fields is wanted": ("project", "slice", "cluster", "node", "rule", "shape", "after", "non_field_errors"),
    "what it names must be there": ("provider", "slices", "clusters", "user", "kind", "zone", "muted_slices"),
    "a value that another one limits": (
        "level",
        "clear_level",
        "severe_level",
        "guaranteed_gpus",
        "most_gpus",
        "drain_force_after_s",
        "duration_approval_s",
    ),
    "what a template gives where one is named": ("nodes",),
    "a pair: both or none": ("quiet_from", "quiet_until"),
    "what only some kinds take": ("tells", "POST /api/v1/gprs/bulk/ why", "POST /api/v1/gprs/{id}/preview/ to"),
    "what only some acts need": ("POST /api/v1/gprs/{id}/preview/ priority",),
    "as many pods as the job has": ("rank",),
    "JSON that the database must be able to hold, or a file's text": ("model", "manifest", "files"),
    "a name that Kubernetes takes": ("namespace", "secrets", "pull_secret", "volumes", "env", "storage_class", "runtime_class"),
    "keys or numbers of a list that the answer names": ("limits", "skipped_steps", "ignored_xids", "quota", "people"),
    "a path, or text that a container takes": ("checkpoint", "command"),
    "a language of its own": (
        "networks",
        "target",
        "secret",
        "url",
        "matchers",
        "image",
        "images",
        "rdma_subnet",
        "ca_pem",
        "api_url",
        "email",
    ),
    "an ETag, whose pattern the coverage phase does not heed": ("If-Match",),
}
FREE = {field for fields in ALSO_REFUSED.values() for field in fields}


def form_acceptance(ctx: Any, response: Any, case: Any) -> None:
    """The API refuses valid data for its meaning, and not for its form. Schemathesis' own check does not know our error codes."""
    if not case.meta.generation.mode.is_positive or response.status_code != 400 or response.json()["code"] != "invalid_input":
        return
    label, errors = case.operation.label, response.json()["errors"]
    names = {name.split(".")[0] for name in errors}
    if wrong := {name: errors for name in names if name not in FREE and f"{label} {name}" not in FREE}:
        raise RejectedPositiveData(operation=label, message=str(wrong), status_code=400, allowed_statuses=["2xx", "403", "404", "409"])


ALL_CHECKS = [form_acceptance if each is positive_data_acceptance else each for each in CHECKS.get_all()]
schemathesis.openapi.format(
    "line", text(characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20).filter(lambda line: not text_fault(line))
)
QUIET = settings(
    max_examples=int(os.environ.get("EGS_TEST_EXAMPLES", "20" if IS_SOAK else "2")),
    deadline=None,
    derandomize=True,  # a fixed set: a red test stays red
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
# A quick run tries every third operation, others each day; a soak tries all of them.
SHARE = 3
COVERED_SHARE = 40
SCENARIOS = int(os.environ.get("EGS_TEST_SCENARIOS", "300" if IS_SOAK else "5"))
Places = Callable[[Any], dict[str, str]]
OF_ID: dict[str, Any] = {"quotas": Quota, "budgets": Budget, "supply-orders": SupplyOrder, "deputies": Deputy}
OF_ID |= {"alerts": Alert, "alert-rules": AlertRule, "alert-silences": AlertSilence}
REFS = {
    "projects": "canary-project",
    "slices": "vision",
    "clusters": "aurora",
    "remediation-policies": "aurora",
    "prometheus": "aurora",
    "nodes": "aurora-0",
    "gpus": "GPU-aurora-0-0",
    "tokens": "test",
    "users": "teammate",
    "workloads": "train",
}


@pytest.fixture
def _one_connection(db: None) -> Iterator[None]:
    """A server closes its connection between requests; here it holds the test's transaction. Django's own test client does the same."""
    request_started.disconnect(close_old_connections)
    request_finished.disconnect(close_old_connections)
    yield
    request_started.connect(close_old_connections)
    request_finished.connect(close_old_connections)


@pytest.fixture
def schema(_one_connection: None) -> Any:
    return schemathesis.openapi.from_wsgi("/api/schema/?format=json", get_wsgi_application())


@pytest.fixture
def gpr_id(world: World) -> str:
    """One of everything that can be listed; the GPR waits behind two."""
    people = world.people
    running = factories.active(world.slice, people.owner)
    namespace_bind(slice_=world.slice, cluster=world.cluster, name="train", actor=None, now=db_now())
    factories.active(world.foreign_slice, people.outsider)
    waiting = factories.gpr(world.slice, people.owner, nodes=2, model={"name": "llama", "layers": [1]})
    factories.gpr(world.slice, people.owner, priority=300)
    now, (row,) = db_now(), factories.held(running)
    PromiseMove.objects.create(gpr=waiting, at=now, old_start_at=now, new_start_at=now, cause="overrun", cause_id=str(running.pk))
    StepResult.objects.create(
        reservation=row, step="drain", attempt=1, outcome=Outcome.OK, started_at=now, ended_at=now, log="log", evidence={"gpus": 8}
    )
    Quota.objects.create(slice=world.slice, shape=SHAPE, guaranteed_gpus=8, most_gpus=12, created_at=now)
    Budget.objects.create(slice=world.slice, gpu_hours=100, period=Period.WEEK, created_at=now)
    times = {"starts_at": now, "ends_at": now + timedelta(days=1), "created_at": now}
    Deputy.objects.create(approver=people.admin, user=people.owner, **times)
    factories.supply_order(world.cluster, waiting)
    tell(world.cluster, *pods_of(running, "train"))
    alert_of(world.slice, people.owner)
    AlertSilence.objects.create(slice=world.slice, owner=people.owner, reason="r", **times)
    service_account_create(slice_=world.slice, name="ci", role=Role.EDITOR, actor=people.owner, now=now)
    _announce_and_book(world)
    return str(waiting.pk)


def _announce_and_book(world: World) -> None:
    now = db_now()
    soon, spec = now + timedelta(days=1), factories.spec(world.slice)
    window = window_draft(cluster=world.cluster, node=None, starts_at=soon, ends_at=soon + timedelta(hours=1), reason="Disks.", now=now)
    window_announce(window=window, actor=world.people.admin, now=now)
    ask = SeriesTerms(spec=spec, first_start_at=soon + timedelta(days=1), rule=RepeatRule.WEEKLY, zone="UTC", count=2)
    series_create(actor=world.people.owner, ask=ask, now=now)


NAMED = {"slice": "vision", "cluster": "aurora", "project": "canary-project", "user": "teammate", "shape": SHAPE, "namespace": "train"}
TAKES_NOTHING = {"GET /api/v1/sign-in/"}  # not even a token, so nothing can be wrong


@pytest.fixture
def places(world: World, gpr_id: str) -> Places:
    """Says which object's id or name stands in the path of an operation. Found once, since an operation may delete what others name."""
    shared = {"id": gpr_id, "gpr_pk": gpr_id, "slice": "vision", "user": "teammate", "account": "vision:ci", "namespace": "train"}
    shared |= {"project": "canary-project"}
    refs = {**REFS, "maintenance": str(MaintenanceWindow.objects.get().pk), "booking-series": str(BookingSeries.objects.get().pk)}
    refs["jobs"] = str(Job.objects.create(gpr_id=gpr_id, created_at=db_now(), image="train:1.0").pk)
    refs["notebooks"] = refs["jobs"]
    refs["templates"] = factories.template(world.slice, name="half-node", asked={"shape": SHAPE, "nodes": 1}).name
    refs["supplies"] = str(Supply.objects.get().pk)
    ids = {kind: str(model.objects.get().pk) for kind, model in OF_ID.items()} | {"policies": str(policy_of(world.slice).pk)}

    def of(operation: Any) -> dict[str, str]:
        kind = operation.path.split("/")[3]
        own = {"id": ids[kind], "policy_pk": ids[kind], "alert_pk": ids[kind]} if kind in ids else {}
        return {**shared, **own, "ref": refs.get(kind, "")}

    return of


@pytest.fixture
def headers(world: World) -> dict[str, str]:
    return {"Authorization": f"Bearer {factories.token(world.people.admin)}"}


def operations_of_today(schema: Any, share: int) -> Iterator[Any]:
    """A soak has them all."""
    every = 1 if IS_SOAK else share
    return (found.ok() for found in islice(schema.get_all_operations(), DAY.toordinal() % every, None, every))


def wrong_parts(case: Any) -> set[ParameterLocation]:
    return {place for place, part in case.meta.components.items() if part.mode is GenerationMode.NEGATIVE}


def lead_to(case: Any, places: Places) -> None:
    """Names objects that are there, unless the path is what is wrong."""
    if ParameterLocation.PATH not in wrong_parts(case):
        case.path_parameters.update({name: value for name, value in places(case.operation).items() if name in case.path_parameters})


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.name)
def test_what_the_schema_allows_and_what_it_forbids_is_answered_as_it_says(
    mode: GenerationMode, schema: Any, places: Places, headers: dict[str, str]
) -> None:
    for operation in operations_of_today(schema, SHARE):
        if mode is GenerationMode.POSITIVE or operation.label not in TAKES_NOTHING:
            exercise(operation, mode, headers, places)


def exercise(operation: Any, mode: GenerationMode, headers: dict[str, str], places: Places) -> None:
    @QUIET
    @given(case=operation.as_strategy(generation_mode=mode), is_there=booleans())
    def run(case: Any, is_there: bool) -> None:
        wrong = wrong_parts(case)
        if is_there:
            lead_to(case, places)
        if mode is GenerationMode.POSITIVE:
            case.query.pop("cursor", None)  # only a list knows its cursors
        is_anonymous = ParameterLocation.HEADER in wrong and ParameterLocation.BODY not in wrong
        case.call_and_validate(headers={} if is_anonymous else headers, checks=ALL_CHECKS)

    run()


@contextmanager
def undone() -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)
    live_forget()


@contextmanager
def collected(faults: list[str], case: Any) -> Iterator[None]:
    """So that a run tells all that it finds."""
    try:
        yield
    except FailureGroup as found:
        faults += [f"{case.as_curl_command()[:2000]}\n{case.meta.phase.data.description}\n{fault}" for fault in found.exceptions]


def test_every_bound_and_every_part_that_is_missing_or_not_there_is_answered_as_the_schema_says(
    schema: Any, places: Places, headers: dict[str, str]
) -> None:
    """Schemathesis' coverage phase: each value at its bounds and beyond, missing headers, methods that an address does not have."""
    faults: list[str] = []
    for operation in operations_of_today(schema, COVERED_SHARE):
        config = schema.config.generation_for(operation=operation, phase="coverage")
        for case in schema.iter_coverage_cases(operation, generation_modes=list(GenerationMode), generation_config=config):
            lead_to(case, places)
            case.query.pop("cursor", None)
            is_anonymous = str(case.meta.phase.data.parameter).lower() == "authorization"
            with undone(), collected(faults, case):
                case.call_and_validate(headers={} if is_anonymous else headers, checks=ALL_CHECKS)
    assert not faults, "\n\n".join(faults)


class Bearer:
    """How one account signs its requests."""

    def __init__(self, user: User) -> None:
        self.token = factories.token(user)

    def get(self, case: Any, context: Any) -> str:
        return self.token

    def set(self, case: Any, data: str, context: Any) -> None:
        case.headers["Authorization"] = f"Bearer {data}"


@pytest.mark.parametrize("who", ["admin", "owner"])
def test_what_is_made_is_there_what_is_deleted_is_gone_and_the_owner_of_another_workspace_reads_nothing_of_it(
    who: str, schema: Any, places: Places, world: World
) -> None:
    """Schemathesis' stateful phase: it follows ids from answers to other operations."""
    people = world.people
    accounts = {"admin": people.admin, "owner": people.owner, "outsider": people.outsider}
    peers = ("owner", "outsider") if who == "owner" else ()
    bearers: list[AuthProvider[Any]] = [Bearer(user) for user in accounts.values()]
    schema.auth.providers.append(EscalatingAuthProvider(bearers, list(accounts), peers=peers, pinned=who))

    faults: list[str] = []
    answers: Counter[int] = Counter()

    class Acts(schema.as_state_machine()):
        def setup(self) -> None:
            """Hypothesis wants each scenario to begin with the same objects."""
            self.undone = ExitStack()
            self.undone.enter_context(undone())

        def teardown(self) -> None:
            self.undone.close()

        def step(self, input: Any) -> Any:
            case = input.case
            case.query.pop("cursor", None)
            if input.transition is None:
                lead_to(case, places)
            if isinstance(case.body, dict):
                case.body |= {name: value for name, value in NAMED.items() if name in case.body}
            return super().step(input)

        def validate_response(self, response: Any, case: Any, additional_checks: Any = None, **kwargs: Any) -> None:
            answers[response.status_code] += 1
            with collected(faults, case):
                case.validate_response(response, checks=ALL_CHECKS, transport_kwargs=kwargs or None, recorder=self.recorder)

    Acts.run(settings=settings(QUIET, max_examples=SCENARIOS, stateful_step_count=6))
    assert not faults, "\n\n".join(faults)
    assert sum(count for status, count in answers.items() if status < 300) > sum(answers.values()) / 20, answers
