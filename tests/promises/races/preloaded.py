"""The server of processes.py imports this before it forks: Django, set up, and all that the racers need. No connection is opened."""

import django

django.setup()

import tests.promises.races.racers  # noqa: E402, F401
