"""Describes readings of GPUs, and the faults that their driver reports."""
