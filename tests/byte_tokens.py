"""A tokenizer of bytes and a few pairs of them, for language models with random weights: nothing is fetched."""

from pathlib import Path


def write_tokenizer(folder: Path, text: str) -> None:
    """Write a tokenizer into the folder of a model; its pairs are those of a text, and it can read every text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator([text], trainer)
    made.save(str(folder / "tokenizer.json"))
