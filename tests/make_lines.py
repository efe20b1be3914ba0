"""Lines of ``make`` as words of the program, for tests of pages (``test_makefile`` holds it to the Makefile)."""

import re

OPTIONS = ("TASK", "ATTN", "PRESET", "SEEDS", "SET", "RUN", "RESULTS", "DEVICE", "JOBS")


def program_words(words):
    """``make sweep TASK=linear`` -> ``sweep --task linear``, from the words of a line."""
    words = words[words.index("make") + 1 :]
    given = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    (target,) = (word for word in words if not re.match(r"[A-Z_]+=", word))
    unknown = set(given) - {*OPTIONS, "NAME", "ARGS"}
    assert not unknown, f"make takes no {unknown}"
    if target == "sweep":
        given = {"TASK": "linear", "ATTN": "softmax"} | given
    first = [given.pop("ATTN")] if target == "judge" and "ATTN" in given else []
    made = [word for name in OPTIONS if name in given for word in (f"--{name.lower()}", given[name])]
    if "NAME" in given:
        made = [given["NAME"], *made] if target == "experiment" else ["--name", given["NAME"], *made]
    return [target, *first, *made, *given.get("ARGS", "").split()]
