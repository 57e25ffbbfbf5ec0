from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from egs.sdk.files import files_left_over, files_made


class Command(BaseCommand):
    help = "Write the files of the SDK that follow from OpenAPI and from its async half."

    def handle(self, *args: Any, **options: Any) -> None:
        package = settings.BASE_DIR / "egs_client"
        made = files_made(package)
        for path, text in made.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for path in files_left_over(package, made):
            path.unlink()
