"""The laboratory from Python."""
