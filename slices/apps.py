from django.apps import AppConfig


class SlicesConfig(AppConfig):
    name = "slices"
    default_auto_field = "django.db.models.BigAutoField"
