"""Faults done on purpose to a small study, to see that none of them loses a run, changes a bit or goes unnoticed."""
