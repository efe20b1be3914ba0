"""Pretrained language models on disk, with another normalizer in their attention: losses, needles, fine-tuning."""
