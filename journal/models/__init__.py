from journal.models.channels import Channel, ChannelKind, Delivery, DeliveryState, Digest
from journal.models.events import Event, Severity
from journal.models.notices import Notice, NoticeSettings, Outbox
from journal.models.retention import EventRetention
