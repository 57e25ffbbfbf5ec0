from django.apps import AppConfig


class SlicesConfig(AppConfig):
    name = "slices"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from accounts import policy
        from inventory import tenancy
        from slices.selectors import relations_to
        from slices.tenancy import SliceTenants

        tenancy.register(SliceTenants())
        policy.relations_from(relations_to)
