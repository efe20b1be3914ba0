"""Questions to trained models: one file, or folder, a question."""
