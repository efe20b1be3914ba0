"""500 runs: no page grows beyond what a browser opens at once."""

import pytest

from tests.site import made

MOST = 3 * 2**20  # bytes of a page or of the data of a run


@pytest.mark.slow
@pytest.mark.exhaustive
def test_no_file_of_500_runs_is_larger_than_three_megabytes(tmp_path):
    store = made.store(tmp_path)
    for seed in range(125):
        for rule in ("softmax", "ssa", "ssmax", "lssa"):
            made.finished(store, rule, seed)
    site = made.site(store)
    assert sum(name.startswith("runs/") for name in site) == 500
    sizes = {name: len(data) for name, data in site.items() if isinstance(data, bytes)}
    assert {name: size for name, size in sizes.items() if size > MOST} == {}
