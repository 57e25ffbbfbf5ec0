from django.apps import AppConfig


class InventoryConfig(AppConfig):
    name = "inventory"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from core.triggers import triggers_of
        from inventory.triggers import TRIGGERS

        triggers_of(self, TRIGGERS)
