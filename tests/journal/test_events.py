"""I12: an Event is written with its change or not at all, and stays as it is."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from journal.models import Event
from journal.services import event_record
from slices.services import project_create
from tests.builders import NOW, make_user
from tests.promises.database.books import is_refused, raw

pytestmark = pytest.mark.both_databases


def an_event() -> Event:
    return event_record(kind="test", message="It happened.", at=NOW)


@pytest.mark.django_db
def test_an_event_cannot_be_changed_by_the_orm() -> None:
    event = an_event()
    event.message = "It never happened."

    assert is_refused(event.save)
    assert is_refused(lambda: Event.objects.filter(pk=event.pk).update(message="It never happened."))
    assert is_refused(lambda: Event.objects.bulk_update([event], ["message"]))
    assert Event.objects.get(pk=event.pk).message == "It happened."


@pytest.mark.django_db
def test_an_event_cannot_be_deleted_by_the_orm() -> None:
    event = an_event()

    assert is_refused(event.delete)
    assert is_refused(Event.objects.all().delete)
    assert Event.objects.filter(message="It happened.").count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize(
    "sql", ["UPDATE journal_event SET message = ''", "UPDATE journal_event SET id = id + 1000", "DELETE FROM journal_event"]
)
def test_an_event_cannot_be_changed_or_deleted_by_bare_sql(sql: str) -> None:
    an_event()

    assert is_refused(lambda: raw(sql))
    assert is_refused(lambda: raw(f"{sql} WHERE kind = 'test'"))


@pytest.mark.django_db
def test_a_user_whom_events_name_cannot_be_deleted() -> None:
    user = make_user()
    event_record(kind="test", message="It happened.", at=NOW, actor=user)

    with pytest.raises(Exception, match="protected"):
        user.delete()


@pytest.mark.django_db(transaction=True)
def test_an_event_outside_of_a_transaction_is_refused() -> None:
    assert not connection.in_atomic_block

    with pytest.raises(RuntimeError, match="transaction of its change"):
        an_event()

    assert not Event.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_an_event_is_undone_with_its_change() -> None:
    class PowerCutError(Exception):
        pass

    def work() -> None:
        with transaction.atomic():
            project_create(name="p", actor=None, now=NOW)
            raise PowerCutError

    with pytest.raises(PowerCutError):
        work()

    assert not Event.objects.exists()


@pytest.mark.django_db
def test_a_long_message_is_cut_not_refused() -> None:
    event = event_record(kind="test", message="x" * 501, at=NOW)

    assert Event.objects.get(pk=event.pk).message == "x" * 500
