"""All that agents may call."""

from inventory import agent_views
from observability.telemetry import agent_views as telemetry_views

urlpatterns = [*agent_views.urlpatterns, *telemetry_views.urlpatterns]
