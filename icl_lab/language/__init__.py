"""Pretrained language models on disk, with another rule in their attention: losses, needles, fine-tuning."""
