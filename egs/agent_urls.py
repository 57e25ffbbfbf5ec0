"""Lists all that agents may call."""

from inventory import agent_views
from observability.telemetry import agent_views as telemetry_views
from observability.workloads import agent_views as pod_views

urlpatterns = [*agent_views.urlpatterns, *telemetry_views.urlpatterns, *pod_views.urlpatterns]
