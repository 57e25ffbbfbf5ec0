"""Reads exporters of GPU metrics, and sends readings to the hub."""
