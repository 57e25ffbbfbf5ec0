"""Promises: slack, failure reserve, repair of stored slots, verification and forecasts."""
