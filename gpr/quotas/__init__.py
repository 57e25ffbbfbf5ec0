"""Quotas: what is held and wanted under each, who borrows beyond the guarantee, and fair shares over time."""
