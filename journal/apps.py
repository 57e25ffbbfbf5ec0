from django.apps import AppConfig


class JournalConfig(AppConfig):
    name = "journal"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from accounts import audit
        from core.triggers import triggers_of
        from journal.services import record_account_change
        from journal.triggers import TRIGGERS

        audit.listen(record_account_change)
        triggers_of(self, TRIGGERS)
