"""Normalizers against a baseline, paired over training seeds: statistics, tables, one page."""
