"""Documentation, and the scripts that write its tables."""
