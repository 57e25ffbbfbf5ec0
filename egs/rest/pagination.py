from rest_framework.pagination import CursorPagination


class CreatedPagination(CursorPagination):
    """Newest first, by cursor: a row that comes or goes shifts nobody's page. `?page_size=` up to 500."""

    ordering = ("-created_at", "id")
    page_size_query_param = "page_size"
    max_page_size = 500


class NamePagination(CreatedPagination):
    ordering = ("name", "id")


class EventPagination(CreatedPagination):
    ordering = ("-id",)  # type: ignore[assignment]
