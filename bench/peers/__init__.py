"""Measures ours beside other schedulers that really run: Kueue, KAI and Slurm."""
