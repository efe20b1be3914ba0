"""icl_lab: which attention normalizer generalises, where, and by how much?

Letters mean axes, everywhere the same:

    b  prompts of a batch      t  tokens of a prompt (rows as well as keys)
    h  attention heads         d  width of a head, or of the model where no head is in sight
    w  width of a token        c  channels of an answer
    s  training seeds of a stack
    n  visible keys of a row   L  examples of a prompt (its length; an interleaved prompt has t = 2L tokens)

sigma is always a standard deviation.
"""

__version__ = "0.1.0"
