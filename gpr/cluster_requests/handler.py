"""Does what inventory.cluster_requests asks for: the module is a ClusterRequestHandler."""

from typing import Final

from gpr.cluster_requests.life_marks import life_marks_of
from gpr.cluster_requests.services import cluster_requests_take
from gpr.cluster_requests.states import cluster_request_states
from gpr.evictions.failed_jobs import jobs_failed_take
from gpr.idle.selectors import idle_releases_of
from gpr.jobs.logs import log_take
from gpr.jobs.selectors import log_asks_of, workloads_of
from gpr.jobs.services import workloads_take
from gpr.templates.automatic import auto_templates_of

states: Final = cluster_request_states
life_marks: Final = life_marks_of
auto_templates: Final = auto_templates_of
take: Final = cluster_requests_take
take_failed_jobs: Final = jobs_failed_take
workloads: Final = workloads_of
take_workloads: Final = workloads_take
log_asks: Final = log_asks_of
idle_releases: Final = idle_releases_of
take_log: Final = log_take
