"""Observes clusters: telemetry, workloads, alerts, remediation, usage, idle boxes.

Lives here: readings of GPUs and pods, joined with the live reservation of a GPU. Must not live here: a decision about a GPR.
"""
