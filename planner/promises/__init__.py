"""Makes promises and keeps them: slack, failure reserve, repair of stored slots, verification and forecasts."""
