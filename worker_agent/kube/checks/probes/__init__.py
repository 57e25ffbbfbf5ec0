"""Has the programs that run in the pods of checks. Each file is the whole command of its pod, and imports nothing of EGS."""
