from django.apps import AppConfig


class GprConfig(AppConfig):
    name = "gpr"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from core.triggers import triggers_of
        from gpr.cluster_requests.services import GprClaimants
        from gpr.triggers import TRIGGERS
        from inventory import claims

        claims.answer_by(GprClaimants())
        triggers_of(self, TRIGGERS)
