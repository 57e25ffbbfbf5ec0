"""Defines the tables of the app, one module for each subject. Import models from here."""

from slices.models.kubeconfigs import LIVE_STATES, Kubeconfig, KubeconfigState
from slices.models.limits import OWNER_ID, AtLimit, Budget, Period, Quota, TenantOwned
from slices.models.namespaces import DETAIL_MAX_CHARS, NAMESPACE_STATES, PENDING, Namespace, Unbinding
from slices.models.people import ROLES_OF_SERVICES, Deputy, Invitation, Membership, ProjectAdmin, Role, ServiceAccount, SliceGroup
from slices.models.policies import PLATFORM_POLICY, Policy, PolicyVersion
from slices.models.tenants import KUBECONFIG_MIN_S, PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN, Life, Project, Slice
from slices.models.workspace_requests import RequestState, WorkspaceRequest
