"""Natural text: read, cut into training and held-out parts, and predicted by what needs no training of a model."""
