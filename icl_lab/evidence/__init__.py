"""The repository's finished runs in a compact, read-only form: what commands read where the user has no run."""
