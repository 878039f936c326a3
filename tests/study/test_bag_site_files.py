"""Site files with unlabelled sets: real tables, and errors that name the site and the set."""

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch

import potluck as pl
from potluck.study.sitefile import load_site

SPACE = pl.LabelSpace(("healthy", "bleed", "stroke"))
PRIORS = {
    "bag": ["ward-1", "ward-2", "ward-3"],
    "stroke": [0.1, 0.2, 0.6],
    "healthy": [0.7, 0.2, 0.3],
    "bleed": [0.2, 0.6, 0.1],
}
WARDS = ["ward-1"] * 4 + ["ward-2"] * 2 + ["ward-3"] * 2


def site_file(
    folder: Path, priors=PRIORS, wards=WARDS, view="", suffix="csv", name="Hospital North"
):
    """A site whose samples are in a CSV with a column `ward`, and whose priors are a table."""
    samples = {"age": [float(i) for i in range(len(wards))], "ward": wards}
    pyarrow.csv.write_csv(pa.table(samples), folder / "samples.csv")
    table = pa.table(priors)
    if suffix == "csv":
        pyarrow.csv.write_csv(table, folder / "priors.csv")
    else:
        pyarrow.parquet.write_table(table, folder / "priors.parquet")
    path = folder / "north.toml"
    path.write_text(
        f"""
        name = "{name}"
        [data]
        kind = "table"
        path = "samples.csv"
        label = "ward"
        [view]
        kind = "bags"
        priors = "priors.{suffix}"
        {view}
        """
    )
    return path


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_sets_come_from_a_column_and_priors_from_a_table(tmp_path, suffix):
    site, _ = load_site(site_file(tmp_path, suffix=suffix), SPACE)
    assert site.view.kind == "bags"
    assert site.view.symbols.names == ("ward-1", "ward-2", "ward-3")
    declared = [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.3, 0.1, 0.6]]  # in the order of the classes
    assert torch.allclose(site.view.proportions, torch.tensor(declared).double(), atol=1e-6)
    # the shares of the sets are counted: 4, 2 and 2 of 8
    shares = (site.view.codebook * site.view.prior).sum(1)
    assert shares.tolist() == pytest.approx([0.5, 0.25, 0.25])
    assert site.symbols.tolist() == [0, 0, 0, 0, 1, 1, 2, 2]


def test_a_site_file_may_say_the_target_prior(tmp_path):
    site, _ = load_site(site_file(tmp_path, view="target_prior = [0.8, 0.15, 0.05]"), SPACE)
    assert site.view.prior.tolist() == pytest.approx([0.8, 0.15, 0.05])


def changed(column, row, value):
    return {**PRIORS, column: [value if i == row else old for i, old in enumerate(PRIORS[column])]}


ALIKE = {**PRIORS, "bag": ["ward-1", "ward-2", "ward-3"]} | {
    "healthy": [0.7, 0.2, 0.7],
    "bleed": [0.2, 0.6, 0.2],
    "stroke": [0.1, 0.2, 0.1],
}


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"priors": changed("stroke", 1, 0.5)}, ["ward-2", "sums to 1.3, not 1"]),
        ({"priors": changed("bleed", 2, -0.1)}, ["-0.1", "row 3"]),
        ({"priors": ALIKE}, ["rank 2", "3 classes", 'add nothing to those before them: "ward-3"']),
        ({"wards": WARDS[:6]}, ["ward-3", "no sample is in it"]),
        ({"wards": [*WARDS, "ward-9"]}, ["ward-9", "not in view.priors", "ward-1"]),
        (
            {"view": "target_prior = [0.9, 0.1, 0]"},
            ['is 0 for class "stroke"', "makes up 0.1 of", 'bag "ward-1"'],
        ),
        ({"view": "target_prior = [0.9, 0.3, 0.1]"}, ["target prior", "sums to 1.3"]),
        ({"priors": changed("bag", 2, "ward-1")}, ["view.priors", '"ward-1" more than once']),
    ],
    ids=["sum", "negative", "rank", "empty set", "missing set", "zero", "target sum", "twice"],
)
def test_what_is_wrong_is_said_with_the_site_and_the_set(tmp_path, change, parts):
    with pytest.raises(pl.PotluckError) as error:
        load_site(site_file(tmp_path, **change), SPACE)
    for part in ["north.toml", 'site "Hospital North"', *parts]:
        assert part in str(error.value)


def test_fewer_sets_than_classes_are_accepted_where_other_sites_supply_the_rest(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    few = {column: values[:2] for column, values in PRIORS.items()}
    short = site_file(tmp_path / "a", few, WARDS[:6], "minimum_rank = 2", name="short")
    full = site_file(tmp_path / "b", name="full")
    sites = [load_site(path, SPACE)[0] for path in (short, full)]
    federation = pl.Federation.of(sites)
    pl.Recipe(rounds=1, method=pl.methods.FedUL()).check(federation)
    assert federation.identifiability().shortfalls() == [
        'Site "short" (bags) settles 1 of 2 class contrasts alone; more come from "full".'
    ]
