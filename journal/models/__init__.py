from journal.models.channels import Channel, ChannelKind, Delivery, DeliveryState, Digest
from journal.models.events import Event, Severity
from journal.models.notices import Notice, NoticeSettings, Outbox

__all__ = ["Channel", "ChannelKind", "Delivery", "DeliveryState", "Digest", "Event", "Notice", "NoticeSettings", "Outbox", "Severity"]
