from django.apps import AppConfig


class PortalUserConfig(AppConfig):
    name = "portal_user"
    default_auto_field = "django.db.models.BigAutoField"
