"""The simulation runs the real hub services and the real agent core in one thread and makes up everything around them.

Clocks, network, crashes and the cluster come from one seed, so one number replays one run:
`python -m tests.simulation --seed N --trace`.
"""
