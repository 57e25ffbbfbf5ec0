from django.apps import AppConfig


class GprConfig(AppConfig):
    name = "gpr"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from core.triggers import triggers_of
        from gpr.cluster_requests.services import GprRequestHandler
        from gpr.triggers import TRIGGERS
        from inventory import cluster_requests

        cluster_requests.set_handler(GprRequestHandler())
        triggers_of(self, TRIGGERS)
