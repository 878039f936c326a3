"""The papers' tables as data: every cell is a study, and mistakes are named."""

from pathlib import Path

import pytest

from potluck.errors import PotluckError
from potluck.study.papers import (
    data_set,
    learned,
    paper_names,
    read_experiments,
    read_paper,
    read_papers,
)
from potluck.study.reproduction import plan, with_data

PAPERS = Path(__file__).parents[2] / "examples" / "papers"
NAMES = ["fedmt-2023", "fedmt-2024", "fedpll-laar", "fedul", "private-label-sets"]

TOML = """\
title = "A paper"
seeds = 2

[[experiments]]
name = "table-1"
title = "Table 1"
metric = "accuracy"
columns = [{ name = "a", values = { n = 1 } }, { name = "b", values = { n = 2 } }]
orderings = [{ rows = ["one", "other"] }]

[[experiments.rows]]
name = "one"
study = "study.toml"
overrides = ["rounds=$n"]
paper = [50.0, nan]

[[experiments.rows]]
name = "other"
study = "study.toml"
"""


def written(folder: Path, text: str) -> Path:
    (folder / "made-up").mkdir()
    (folder / "made-up" / "reproduce.toml").write_text(text)
    return folder


def test_all_five_papers_have_tables():
    assert paper_names(PAPERS) == NAMES


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", ["full", "small"])
def test_every_cell_is_a_study_at_both_scales(name, scale):
    paper = read_paper(PAPERS, name)
    for experiment in paper.content.experiments:
        planned = plan(paper, experiment, scale, [0])
        assert len(planned.runs) == len(experiment.rows) * len(experiment.columns)
        for run in planned.runs:
            data, path = data_set(run.study)
            assert run.study.seed == 0
            assert (path is None) == (data in ("digits", "semg-like"))
            assert data in ("digits", "semg-like") or scale == "full"


def test_the_numbers_of_a_cell_reach_its_study():
    paper = read_paper(PAPERS, "fedul")
    experiment = paper.experiment("table-1-mnist-iid")
    studies = {run.place: run.study for run in plan(paper, experiment, seeds=[0]).runs}
    fedpl = studies["FedPL", "20 sets"]
    assert fedpl.simulation.sites[0].view.bags == 20
    assert (fedpl.local.l1, fedpl.local.optimiser["weight_decay"]) == (0, 5e-6)
    assert studies["FedUL", "40 sets"].local.l1 == 2e-6


def test_a_row_that_does_not_depend_on_the_column_is_one_run_per_seed():
    paper = read_paper(PAPERS, "fedul")
    planned = plan(paper, paper.experiment("table-1-mnist-iid"))
    assert len(planned.runs) == 5 * 3 * 3
    assert len(planned.distinct()) == (4 * 3 + 1) * 3


def test_tables_share_runs_that_differ_in_name_only():
    paper = read_paper(PAPERS, "fedmt-2024")
    keys = {
        name: {run.place: run.key for run in plan(paper, paper.experiment(name), seeds=[0]).runs}
        for name in ("table-2", "table-8", "figure-3")
    }
    shared = keys["table-2"]["FedMT (E)", "n = 25"]
    assert keys["table-8"]["FedMT (E)", "1/16"] == shared
    assert keys["figure-3"]["FedMT (E)", "4000 samples"] == shared
    assert keys["table-8"]["FedMT (T)", "1/16"] != shared


def test_what_is_learned_does_not_depend_on_place_or_engine_but_on_overrides():
    paper = read_paper(PAPERS, "fedul")
    experiment = paper.experiment("table-e9")
    row, column = next(experiment.cells())

    def key(*overrides, data=None):
        return learned(paper.study(experiment, row, column, overrides=overrides, data=data))

    assert key() == key("run.device=cpu") == key(data=Path("elsewhere"))
    assert key() != key("rounds=5")


def test_the_data_folder_reaches_the_studies(tmp_path):
    paper = read_paper(PAPERS, "private-label-sets")
    experiment = paper.experiment("figure-3")
    row, column = next(experiment.cells())
    study = paper.study(experiment, row, column, data=tmp_path)
    assert data_set(study) == ("fashion-mnist", tmp_path / "fashion-mnist")
    small = paper.study(experiment, row, column, scale="small", data=tmp_path)
    assert data_set(small) == ("digits", None)


def test_missing_data_names_the_folder_and_the_files(tmp_path):
    paper = read_paper(PAPERS, "fedul")
    planned = plan(paper, paper.experiment("table-e9"), seeds=[0], data=tmp_path)
    with pytest.raises(PotluckError) as complaint:
        with_data([planned])
    for text in (str(tmp_path / "mnist"), "train-images-idx3-ubyte", "--path DIR", "--scale small"):
        assert text in str(complaint.value)
    (tmp_path / "mnist").mkdir()
    with_data([planned])


def test_unknown_papers_and_experiments():
    with pytest.raises(PotluckError, match='unknown paper "fedull"; did you mean "fedul"'):
        read_paper(PAPERS, "fedull")
    with pytest.raises(PotluckError, match='unknown experiment "table-2"; did you mean'):
        read_paper(PAPERS, "fedul").experiment("table-2")


def test_experiments_come_in_the_order_of_their_names():
    def named(*names):
        return [(paper.name, one.name) for paper, one in read_experiments(PAPERS, names)]

    table = ("fedmt-2023", "table-2")
    assert named("fedmt-2023", "table-2", "fedul", "table-e9", "table-1-mnist-iid") == [
        table,
        ("fedul", "table-e9"),
        ("fedul", "table-1-mnist-iid"),
    ]
    assert named("private-label-sets", *table) == [
        ("private-label-sets", "figure-2"),
        ("private-label-sets", "figure-3"),
        table,
    ]
    with pytest.raises(PotluckError, match='fedul: unknown experiment "table-2"'):
        named("fedul", "table-2")
    with pytest.raises(PotluckError, match='unknown paper "table-2"'):
        named("table-2", "fedul")


def test_with_no_name_all_papers_come_in_their_own_order():
    order = ["fedul", "fedmt-2024", "fedpll-laar", "private-label-sets", "fedmt-2023"]
    assert [paper.name for paper in read_papers(PAPERS)] == order
    everything = read_experiments(PAPERS, [])
    assert list(dict.fromkeys(paper.name for paper, _ in everything)) == order
    assert everything[0][1].name == "table-1-mnist-iid"


def test_some_rows_and_columns_of_a_table():
    experiment = read_paper(PAPERS, "fedul").experiment("table-e12-mnist")
    assert experiment.places(["FedPL"]) == {("FedPL", "IID"), ("FedPL", "non-IID")}
    assert experiment.places(["FedPL", "IID"]) == {("FedPL", "IID")}
    assert len(experiment.places(["IID"])) == 5
    assert len(experiment.places()) == 10


def test_our_own_method_is_beyond_the_papers():
    found = {
        (paper.name, experiment.name)
        for paper, experiment in read_experiments(PAPERS, [])
        for row in experiment.rows
        if row.beyond and "ours" in row.name
    }
    assert found >= {
        ("fedmt-2024", "table-2"),
        ("fedpll-laar", "table-1-cifar10"),
        ("fedul", "table-1-cifar10-iid"),
        ("private-label-sets", "figure-2"),
    }


def test_a_folder_without_papers(tmp_path):
    with pytest.raises(PotluckError, match=r"no paper here.*--papers DIR"):
        read_paper(tmp_path, "fedul")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"accuracy"', '"acuracy"', 'unknown choice "acuracy"; did you mean "accuracy"'),
        ("[50.0, nan]", "[50.0]", "paper has 1 numbers for 2 columns; write nan"),
        ('"one", "other"', '"one", "othr"', 'unknown row "othr"; did you mean "other"'),
        ('name = "other"', 'name = "one"', "two rows have the same name"),
        ("seeds = 2", "seed = 2", "unknown key"),
        ("[50.0, nan]", "[50.0, nan]\nbeyond = true", '"one" is beyond the paper.*leave them out'),
        (
            'name = "other"',
            'name = "other"\nbeyond = true',
            '"other" is beyond the paper.*orderings',
        ),
        ('orderings = [{ rows = ["one"', 'orderings = [{ rws = ["one"', "unknown key"),
    ],
)
def test_mistakes_in_a_description_are_named(tmp_path, old, new, message):
    assert old in TOML
    folder = written(tmp_path, TOML.replace(old, new))
    with pytest.raises(PotluckError, match=message) as complaint:
        read_paper(folder, "made-up")
    assert "reproduce.toml" in str(complaint.value)


def test_a_value_that_no_column_has(tmp_path):
    folder = written(tmp_path, TOML.replace("rounds=$n", "rounds=$m"))
    paper = read_paper(folder, "made-up")
    with pytest.raises(PotluckError, match=r'one, a: "rounds=\$m".*one of: n'):
        plan(paper, paper.experiment("table-1"), seeds=[0])
