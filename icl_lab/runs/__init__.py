"""Runs: specification, folder on disk, measurement, environment."""
