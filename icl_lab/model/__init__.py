"""A decoder-only transformer that reads numbers: blocks, position codes, activation."""
