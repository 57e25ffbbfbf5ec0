"""`gprs/`, `queue/`, `quotas/`, `events/`: the REST face of this room. Every rule is a service's, every look a selector's."""
