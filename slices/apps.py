from django.apps import AppConfig


class SlicesConfig(AppConfig):
    name = "slices"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from accounts import policy
        from accounts.people import services as people
        from inventory import tenancy
        from journal.notices import audience, periodic
        from journal.notices.kinds import To
        from slices.closing.services import slices_warn
        from slices.deputies.selectors import deputy_relations
        from slices.notices import SliceTenancy, applicants_of, approvers_of_events, invited_in, named_in, owners_of
        from slices.roles.groups import groups_watch, memberships_apply
        from slices.selectors import own_slice_ids, relations_to
        from slices.tenancy import SliceTenants

        tenancy.register(SliceTenants())
        policy.relations_from(relations_to, gives={*policy.ROLES, policy.Relation.PROJECT_ADMIN})
        policy.relations_from(deputy_relations, gives={policy.Relation.DEPUTY})
        audience.set_tenancy(SliceTenancy())
        audience.find_by(To.OWNERS, owners_of)
        audience.find_by(To.APPROVERS, approvers_of_events)
        audience.find_by(To.APPLICANT, applicants_of)
        audience.find_by(To.INVITED, invited_in)
        audience.find_by(To.MEMBER, named_in)
        policy.workspaces_from(own_slice_ids)
        people.when_groups_change(memberships_apply)
        periodic.watch_by(groups_watch)
        periodic.watch_by(slices_warn)
