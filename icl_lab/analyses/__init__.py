"""Questions to trained models: one file, or folder, a question; ``frame.py`` says what each is, ``runner.py`` asks."""

from icl_lab.base.registry import Registry

registry = Registry("analysis", __name__)


def names() -> list[str]:
    """Return the names of all analyses."""
    return registry.names()
