from django.apps import AppConfig


class SlicesConfig(AppConfig):
    name = "slices"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from inventory import tenancy
        from slices.tenancy import SliceTenants

        tenancy.answer_by(SliceTenants())
