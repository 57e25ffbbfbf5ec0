"""What people want to hear: their settings of notices."""
