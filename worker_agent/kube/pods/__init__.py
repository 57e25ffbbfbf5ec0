"""Pods: waiting, lifted into boxes, drained, and notified."""
