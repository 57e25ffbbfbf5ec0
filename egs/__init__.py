"""The project: settings, URLs, ASGI, the Celery app, the one-process runner; and the ground floor that every app stands on.

The ground floor (`errors`, `clock`, `locks`, `rest`) imports no app; everything else here is the roof and is imported by no app.
"""
