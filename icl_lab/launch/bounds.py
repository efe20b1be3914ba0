"""Bounds of options and arguments, known without torch."""

SEEDS = 10_000
JOBS = 1024  # runs or threads at once: more than any machine of today offers; ten times as many end the process
ENGINES = ("local", "ray")
