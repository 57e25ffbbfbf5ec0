from journal.models.events import Event, Severity
from journal.models.notices import Notice, Outbox

__all__ = ["Event", "Notice", "Outbox", "Severity"]
