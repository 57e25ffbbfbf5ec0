from django.apps import AppConfig


class PortalAdminConfig(AppConfig):
    name = "portal_admin"
    default_auto_field = "django.db.models.BigAutoField"
