"""What tells a language model on disk from another."""

from pathlib import Path

from icl_lab.extras.language.disk import OnDisk
from icl_lab.extras.language.study import LanguageQuestion
from icl_lab.tasks.texts.corpus import Corpus


def test_names_and_places_of_folders_and_packed_files(tmp_path):
    folder, packed = OnDisk(tmp_path / "gpt"), OnDisk(tmp_path / "gpt.Q4.gguf")
    assert (folder.name, folder.folder, folder.more, folder.exists) == ("gpt", tmp_path / "gpt", {}, False)
    assert (packed.name, packed.folder, packed.more) == ("gpt.Q4", tmp_path, {"gguf_file": "gpt.Q4.gguf"})
    packed.place.write_bytes(b"weights")
    assert packed.exists
    (tmp_path / "gpt").mkdir()
    assert not folder.exists
    (tmp_path / "gpt/config.json").write_text("{}")
    assert folder.exists
    assert OnDisk(Path("/")).name == "model"


def test_other_weights_under_the_same_name_are_another_model(tmp_path):
    asked = LanguageQuestion(str(tmp_path), ("softmax",))
    corpus = Corpus.__new__(Corpus)
    object.__setattr__(corpus, "sha", "0" * 64)
    object.__setattr__(corpus, "name", "book")
    seen = set()
    for data in (b"one", b"two", b"twoo"):
        (tmp_path / "model.safetensors").write_bytes(data)
        seen.add(asked.options(corpus)["weights"])
    assert len(seen) == 3
