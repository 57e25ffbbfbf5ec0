"""Reads the database's clock, so that all processes agree. The outermost layer alone calls it; services take `now`."""

from datetime import UTC, datetime

from django.db import connection


def db_now() -> datetime:
    if connection.vendor != "postgresql":
        return datetime.now(UTC)
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row: tuple[datetime] = cursor.fetchone()
    return row[0].astimezone(UTC)
