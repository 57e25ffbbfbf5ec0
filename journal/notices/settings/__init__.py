"""Settings of notices: what people want to hear."""
