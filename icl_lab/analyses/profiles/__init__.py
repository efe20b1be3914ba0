"""Normalizers without training: weights of given scores, and costs."""
