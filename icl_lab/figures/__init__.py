"""Grids to pictures. Nothing here computes, so a stored CSV can be redrawn anywhere, without torch."""
