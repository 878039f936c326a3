"""The lists of choices are read off the code, so they cannot go stale."""

import pytest

from potluck.errors import PotluckError
from potluck.methods import METHODS
from potluck.models import MODELS
from potluck.study.catalogue import catalogue


def test_every_method_and_model_is_listed_with_a_sentence() -> None:
    tables = catalogue()
    assert [name for name, _, _ in tables["methods"]] == list(METHODS)
    assert [name for name, _, _ in tables["models"]] == list(MODELS)
    for rows in tables.values():
        assert rows
        for name, what, _ in rows:
            assert what.endswith("."), name


def test_options_show_their_defaults_and_what_is_required() -> None:
    (table,) = catalogue("partitions").values()
    options = {name: shown for name, _, shown in table}
    assert options["dirichlet"] == {"alpha": "required", "min_size": "1"}
    assert options["iid"] == {}


@pytest.mark.parametrize("table", ["views", "simulated views"])
def test_all_seven_kinds_of_view_are_listed(table: str) -> None:
    kinds = {name for name, _, _ in catalogue(table)[table]}
    assert {"exact", "coarse", "noisy", "bags", "candidates", "subset", "unlabeled"} <= kinds


def test_an_unknown_list_is_explained() -> None:
    with pytest.raises(PotluckError, match='unknown list "modles"; did you mean "models"'):
        catalogue("modles")
