"""The one clock of the hub: the database's, so that all processes agree. Called by the outermost layer only; services are given `now`."""

from datetime import UTC, datetime

from django.db import connection


def db_now() -> datetime:
    """PostgreSQL's clock now (not the start of the transaction); on SQLite, one machine, the machine's own."""
    if connection.vendor != "postgresql":
        return datetime.now(UTC)
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row: tuple[datetime] = cursor.fetchone()
    return row[0].astimezone(UTC)
