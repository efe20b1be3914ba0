"""Runs, comparisons and answers as notebooks show them."""
