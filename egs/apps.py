from django.apps import AppConfig


class EgsConfig(AppConfig):
    """The project as an app: it holds the commands that start things (`demo`, `egs_run`), and no model."""

    name = "egs"
