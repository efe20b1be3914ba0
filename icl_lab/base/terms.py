"""Terms of tables and reports, each explained in a few words where it first stands; docs/glossary.md has the others."""

import re

GLOSSARY = "docs/glossary.md"
# Predictors that need no training, by their name in a grid.
REFERENCES = {
    "zero": "answers 0",
    "chance": "guesses",
    "uniform": "all symbols alike",
    "neighbours": "pairs of neighbouring words in training, on both sides",
    "always-false": "always False",
    "always-true": "always True",
    "always-zero": "always 0",
    "always-mean": "the mean label of training",
    "mean-value": "the mean of the values so far",
    "majority": "the most frequent class of training",
    "most-recent": "repeats the last answer",
    "most-frequent": "the most frequent answer so far",
    "not-the-last": "all symbols alike but the last one",
    "copy-previous": "repeats the last answer",
    "unigram": "frequencies of single symbols",
    "bigram": "frequencies after the last symbol",
    "5-gram": "frequencies after the last four symbols",
    "averaging": "the mean of y x as weights",
    "1-nn": "the class of the nearest image of training",
    "3-nn": "mean of the three nearest examples",
    "nearest-key": "the value of the nearest key",
    "nearest-mean": "the class whose mean image is nearest",
    "least-squares": "least squares on the examples so far",
    "ridge": "ridge regression on the examples so far",
    "lasso": "lasso on the examples so far",
    "ridge-squares": "ridge regression on squares of inputs",
    "heavy-tailed": "the likeliest function under heavy-tailed noise",
    "greedy-tree": "a decision tree grown on the examples so far",
    "boosted-trees": "boosted trees of the examples so far",
    "discrete-mmse": "the best answer where the functions of training are known",
    "bayes": "the best answer to prompts of training",
    "clip": "exact answers, clipped to the training range",
    "greatest": "the greatest number",
    "first-binding": "the first value of the key",
    "sign-of-largest": "sign of the largest number",
    "sign-of-current": "sign of this number",
    "exact-rule": "the right answer",
    "gzip": "bits that gzip needs",
    "xz": "bits that xz needs",
}
# A pattern -> its meaning. Those in a text are explained, in this order.
TERMS = {
    r"\bsigma_[xf]\b": "sigma: a standard deviation (sigma_x of inputs, sigma_f of functions)",
    r"\bdepth\b": "depth: place of the needle, in percent of the prompt",
    r"\bclip B\b": "clip B: right answers cut at this B are nearest to the row, with this residual",
    r"\bdeviant\b|\bx10+\b": "deviant: the one number of a prompt that is multiplied by a factor (x10: by ten)",
    r"\bpatch": "patching: an activation is replaced by the one without the deviant",
    r"\bresidual stream\b": "residual stream: the sum that layers add to",
    r"\babove the floor\b": "floor: the error that the model's bound on answers forces",
}


def explained(text: str) -> str:
    """Return one line on the terms that a text holds; empty where it holds none.

    >>> explained("| `ssa` | sigma_f 2 | reference:zero |")
    'Words: sigma: a standard deviation (sigma_x of inputs, sigma_f of functions); reference: needs no training (zero: \
answers 0). More: docs/glossary.md.'
    """
    found = [words for pattern, words in TERMS.items() if re.search(pattern, text)]
    names = dict.fromkeys(re.findall(r"\breference:([a-z0-9-]+)", text))
    known = [f"{name}: {REFERENCES[name]}" for name in names if name in REFERENCES]
    if names:
        found.append("reference: needs no training" + (f" ({', '.join(known)})" if known else ""))
    return f"Words: {'; '.join(found)}. More: {GLOSSARY}." if found else ""
