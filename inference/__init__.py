"""Inference endpoints and the smart scaler: long-running models that ask for GPRs as load comes and goes.

Lives here: endpoints, their versions and backends, the forecast of load. Must not live here: how a GPR is planned or provisioned (gpr).
"""
