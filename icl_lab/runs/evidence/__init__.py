"""Evidence: the repository's finished runs in a compact form, read where the user has none."""
