from django.apps import AppConfig


class GprConfig(AppConfig):
    name = "gpr"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from gpr.claims import GprClaimants
        from inventory import claims

        claims.answer_by(GprClaimants())
