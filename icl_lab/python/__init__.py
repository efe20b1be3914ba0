"""The laboratory from Python and notebooks: what ``import icl_lab as icl`` offers, and how it shows itself."""
