"""Says of API tokens how they are made, checked, rotated and revoked."""
