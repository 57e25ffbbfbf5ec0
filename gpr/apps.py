from django.apps import AppConfig


class GprConfig(AppConfig):
    name = "gpr"
    default_auto_field = "django.db.models.BigAutoField"
