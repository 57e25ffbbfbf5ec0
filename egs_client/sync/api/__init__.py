# `make client` writes this file. Do not edit it.

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from egs_client.sync.transport import Transport

if TYPE_CHECKING:
    from egs_client.sync.api import accounts as accounts_api
    from egs_client.sync.api import gpr as gpr_api
    from egs_client.sync.api import inventory as inventory_api
    from egs_client.sync.api import journal as journal_api
    from egs_client.sync.api import manifests as manifests_api
    from egs_client.sync.api import observability as observability_api
    from egs_client.sync.api import slices as slices_api


class Api(Transport):
    @cached_property
    def alert_rules(self) -> observability_api.AlertRules:
        from egs_client.sync.api.observability import AlertRules

        return AlertRules(self)

    @cached_property
    def alert_silences(self) -> observability_api.AlertSilences:
        from egs_client.sync.api.observability import AlertSilences

        return AlertSilences(self)

    @cached_property
    def alerts(self) -> observability_api.Alerts:
        from egs_client.sync.api.observability import Alerts

        return Alerts(self)

    @cached_property
    def approvals(self) -> gpr_api.Approvals:
        from egs_client.sync.api.gpr import Approvals

        return Approvals(self)

    @cached_property
    def audit(self) -> journal_api.Audit:
        from egs_client.sync.api.journal import Audit

        return Audit(self)

    @cached_property
    def booking_series(self) -> gpr_api.BookingSeries:
        from egs_client.sync.api.gpr import BookingSeries

        return BookingSeries(self)

    @cached_property
    def budgets(self) -> gpr_api.Budgets:
        from egs_client.sync.api.gpr import Budgets

        return Budgets(self)

    @cached_property
    def channels(self) -> journal_api.Channels:
        from egs_client.sync.api.journal import Channels

        return Channels(self)

    @cached_property
    def check_policies(self) -> inventory_api.CheckPolicies:
        from egs_client.sync.api.inventory import CheckPolicies

        return CheckPolicies(self)

    @cached_property
    def clusters(self) -> inventory_api.Clusters:
        from egs_client.sync.api.inventory import Clusters

        return Clusters(self)

    @cached_property
    def defragmentation(self) -> gpr_api.Defragmentation:
        from egs_client.sync.api.gpr import Defragmentation

        return Defragmentation(self)

    @cached_property
    def deputies(self) -> slices_api.Deputies:
        from egs_client.sync.api.slices import Deputies

        return Deputies(self)

    @cached_property
    def device_logins(self) -> accounts_api.DeviceLogins:
        from egs_client.sync.api.accounts import DeviceLogins

        return DeviceLogins(self)

    @cached_property
    def events(self) -> gpr_api.Events:
        from egs_client.sync.api.gpr import Events

        return Events(self)

    @cached_property
    def evictions(self) -> gpr_api.Evictions:
        from egs_client.sync.api.gpr import Evictions

        return Evictions(self)

    @cached_property
    def gprs(self) -> gpr_api.Gprs:
        from egs_client.sync.api.gpr import Gprs

        return Gprs(self)

    @cached_property
    def gpus(self) -> inventory_api.Gpus:
        from egs_client.sync.api.inventory import Gpus

        return Gpus(self)

    @cached_property
    def hotspots(self) -> observability_api.Hotspots:
        from egs_client.sync.api.observability import Hotspots

        return Hotspots(self)

    @cached_property
    def insights(self) -> gpr_api.Insights:
        from egs_client.sync.api.gpr import Insights

        return Insights(self)

    @cached_property
    def invitations(self) -> slices_api.Invitations:
        from egs_client.sync.api.slices import Invitations

        return Invitations(self)

    @cached_property
    def jobs(self) -> gpr_api.Jobs:
        from egs_client.sync.api.gpr import Jobs

        return Jobs(self)

    @cached_property
    def logins(self) -> accounts_api.Logins:
        from egs_client.sync.api.accounts import Logins

        return Logins(self)

    @cached_property
    def maintenance(self) -> gpr_api.Maintenance:
        from egs_client.sync.api.gpr import Maintenance

        return Maintenance(self)

    @cached_property
    def manifests(self) -> manifests_api.Manifests:
        from egs_client.sync.api.manifests import Manifests

        return Manifests(self)

    @cached_property
    def me(self) -> slices_api.Me:
        from egs_client.sync.api.slices import Me

        return Me(self)

    @cached_property
    def nodes(self) -> inventory_api.Nodes:
        from egs_client.sync.api.inventory import Nodes

        return Nodes(self)

    @cached_property
    def notebooks(self) -> gpr_api.Notebooks:
        from egs_client.sync.api.gpr import Notebooks

        return Notebooks(self)

    @cached_property
    def notices(self) -> journal_api.Notices:
        from egs_client.sync.api.journal import Notices

        return Notices(self)

    @cached_property
    def pods(self) -> observability_api.Pods:
        from egs_client.sync.api.observability import Pods

        return Pods(self)

    @cached_property
    def policies(self) -> gpr_api.Policies:
        from egs_client.sync.api.gpr import Policies

        return Policies(self)

    @cached_property
    def projects(self) -> slices_api.Projects:
        from egs_client.sync.api.slices import Projects

        return Projects(self)

    @cached_property
    def prometheus(self) -> observability_api.Prometheus:
        from egs_client.sync.api.observability import Prometheus

        return Prometheus(self)

    @cached_property
    def queue(self) -> gpr_api.Queue:
        from egs_client.sync.api.gpr import Queue

        return Queue(self)

    @cached_property
    def quotas(self) -> gpr_api.Quotas:
        from egs_client.sync.api.gpr import Quotas

        return Quotas(self)

    @cached_property
    def remediation(self) -> observability_api.Remediation:
        from egs_client.sync.api.observability import Remediation

        return Remediation(self)

    @cached_property
    def remediation_policies(self) -> observability_api.RemediationPolicies:
        from egs_client.sync.api.observability import RemediationPolicies

        return RemediationPolicies(self)

    @cached_property
    def roles(self) -> accounts_api.Roles:
        from egs_client.sync.api.accounts import Roles

        return Roles(self)

    @cached_property
    def schedule(self) -> inventory_api.Schedule:
        from egs_client.sync.api.inventory import Schedule

        return Schedule(self)

    @cached_property
    def shapes(self) -> inventory_api.Shapes:
        from egs_client.sync.api.inventory import Shapes

        return Shapes(self)

    @cached_property
    def sign_in(self) -> accounts_api.SignIn:
        from egs_client.sync.api.accounts import SignIn

        return SignIn(self)

    @cached_property
    def slices(self) -> slices_api.Slices:
        from egs_client.sync.api.slices import Slices

        return Slices(self)

    @cached_property
    def supplies(self) -> gpr_api.Supplies:
        from egs_client.sync.api.gpr import Supplies

        return Supplies(self)

    @cached_property
    def supply_orders(self) -> gpr_api.SupplyOrders:
        from egs_client.sync.api.gpr import SupplyOrders

        return SupplyOrders(self)

    @cached_property
    def templates(self) -> gpr_api.Templates:
        from egs_client.sync.api.gpr import Templates

        return Templates(self)

    @cached_property
    def tokens(self) -> accounts_api.Tokens:
        from egs_client.sync.api.accounts import Tokens

        return Tokens(self)

    @cached_property
    def usage(self) -> gpr_api.Usage:
        from egs_client.sync.api.gpr import Usage

        return Usage(self)

    @cached_property
    def users(self) -> accounts_api.Users:
        from egs_client.sync.api.accounts import Users

        return Users(self)

    @cached_property
    def workloads(self) -> observability_api.Workloads:
        from egs_client.sync.api.observability import Workloads

        return Workloads(self)

    @cached_property
    def workspace_requests(self) -> slices_api.WorkspaceRequests:
        from egs_client.sync.api.slices import WorkspaceRequests

        return WorkspaceRequests(self)
