from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "accounts"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from accounts.idempotency import post_once
        from core.rest.views import ApiViewSet

        ApiViewSet.post_once = post_once
