from django.apps import AppConfig


class JournalConfig(AppConfig):
    name = "journal"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from accounts import audit
        from journal.services import record_account_change

        audit.listen(record_account_change)
