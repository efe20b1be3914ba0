"""From specifications to finished runs: announced, done here or by workers, drawn. For commands and for Python."""
