"""Ground floor: errors, files, grids, registries of parts, tables, printed numbers of the papers."""
