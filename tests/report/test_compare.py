"""Runs side by side: how they are grouped, judged and written."""

import csv
import io
from itertools import product

import pytest
from synthetic_runs import synthetic_run

from potluck.errors import PotluckError
from potluck.report.compare import compare, flattened, short, telling_keys
from potluck.report.comparing import write_comparison
from potluck.report.statistics import paired_p
from potluck.report.tables import Cell, Table

ACCURACY = {("likelihood", 0.1): 0.8, ("likelihood", 0.5): 0.7, ("fedul", 0.1): 0.6}
SEEDS = {0: 0.0, 1: 0.01, 2: 0.05}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Two methods × two learning rates × three seeds, but for one cell."""
    place = tmp_path_factory.mktemp("sweep")
    for (method, lr), seed in product(ACCURACY, SEEDS):
        synthetic_run(
            place / f"{method}-{lr}-{seed}",
            sites=1,
            classes=2,
            seed=seed,
            accuracy=ACCURACY[method, lr] + SEEDS[seed] * (2 if method == "fedul" else 1),
            changes={"method": {"name": method}, "local": {"lr": lr, "clip": None}},
        )
    return place


def test_runs_are_grouped_by_what_differs_but_the_seed(sweep):
    found = compare([sweep])
    assert found.keys == ("method.name", "local.lr")
    assert found.x == "local.lr"
    values = {setting.values: sorted(setting.runs) for setting in found.settings}
    assert values == {key: [0, 1, 2] for key in ACCURACY}


def test_each_column_has_its_own_best_and_its_own_tests(sweep):
    rows = {row.setting.values: row for row in compare([sweep]).rows}
    assert [key for key, row in rows.items() if row.best] == [
        ("likelihood", 0.1),
        ("likelihood", 0.5),
    ]
    assert rows["likelihood", 0.1].mean == pytest.approx(82)
    assert rows["likelihood", 0.1].deviation == pytest.approx(7**0.5)
    expected = paired_p([60, 62, 70], [80, 81, 85])
    assert rows["fedul", 0.1].p == pytest.approx(expected)
    assert rows["likelihood", 0.1].p is None


def test_the_table_crosses_settings_with_the_swept_variable(sweep):
    table = compare([sweep]).table()
    assert table.columns == ["method", "lr = 0.1", "lr = 0.5"]
    assert table.rows == [
        ["fedul", Cell("64.0 ± 5.3"), Cell("–")],
        ["likelihood", Cell("82.0 ± 2.6", best=True), Cell("72.0 ± 2.6", best=True)],
    ]
    assert "mean ± sd over 3 seeds" in table.caption
    assert "paired t-test over common seeds" in table.caption


def test_another_key_may_be_the_columns(sweep):
    table = compare([sweep], x="method.name").table()
    assert table.columns == ["lr", "method = fedul", "method = likelihood"]


def test_where_only_one_thing_differs_there_is_a_row_for_each_value(sweep):
    runs = [path for path in sweep.iterdir() if path.name.startswith("likelihood")]
    table = compare(runs).table()
    assert table.columns == ["lr", "seeds", "test accuracy in %", "p"]
    assert {row[0] for row in table.rows} == {"lr 0.1", "lr 0.5"}
    assert sum(cell.best for row in table.cells() for cell in row) == 1


def test_smaller_is_better_for_losses_and_errors(sweep):
    best = {row.setting.values for row in compare([sweep], metric="error").rows if row.best}
    assert best == {("likelihood", 0.1), ("likelihood", 0.5)}


def test_runs_that_go_on_are_left_out(sweep, tmp_path):
    synthetic_run(tmp_path / "on", sites=1, classes=2, seed=7, finished=False)
    assert len(compare([sweep, tmp_path / "on"]).settings) == 3
    with pytest.raises(PotluckError, match="none of the 1 runs is finished"):
        compare([tmp_path / "on"])


def test_the_same_study_and_seed_twice_is_refused(sweep, tmp_path):
    changes = {"method": {"name": "fedul"}, "local": {"lr": 0.1, "clip": None}}
    synthetic_run(tmp_path / "twin", sites=1, classes=2, changes=changes)
    with pytest.raises(PotluckError, match=r"same study with the same seed \(0\)"):
        compare([sweep, tmp_path / "twin"])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"metric": "acuracy"}, 'unknown metric "acuracy"; did you mean "accuracy"'),
        ({"x": "local.l"}, 'unknown key that differs between these runs "local.l"'),
        ({"test": "z"}, 'unknown test "z"'),
        ({"metric": "validated"}, r"its history has no .*validation samples"),
    ],
)
def test_mistakes_are_explained(sweep, options, told):
    with pytest.raises(PotluckError, match=told):
        compare([sweep], **options)


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(PotluckError, match="neither a run folder nor a folder of runs"):
        compare([tmp_path])
    with pytest.raises(PotluckError, match="no such folder"):
        compare([tmp_path / "nowhere"])


def test_what_does_not_change_what_is_learned_does_not_count():
    study = {"seed": 1, "folder": "/x", "run": {"device": "cpu"}, "sites": [{"n": 1}, {"n": 2}]}
    flat = flattened(study | {"model": {"hidden": [64]}})
    assert flat == {"sites.0.n": 1, "sites.1.n": 2, "model.hidden": "[64]"}


def test_as_few_keys_as_possible_tell_studies_apart():
    studies = [
        {"method.name": "a", "method.tau": 1, "lr": 1, "size": 10},
        {"method.name": "b", "lr": 1, "size": 10},
        {"method.name": "b", "lr": 2, "size": 20},
    ]
    assert telling_keys(studies) == (("method.name", "lr"), ("size",))
    assert telling_keys(studies[:1]) == ((), ())


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("local.lr", "lr"),
        ("method.name", "method"),
        ("simulation.sites.0.view.rho", "rho"),
        ("name", "name"),
    ],
)
def test_keys_are_shortened_to_what_they_say(key, expected):
    assert short(key) == expected


def test_everything_is_written(sweep, tmp_path):
    paths = write_comparison(compare([sweep]), tmp_path / "out")
    names = {path.name for path in paths}
    assert {"comparison.html", "comparison.md", "comparison.tex", "comparison.csv"} <= names
    assert {"against-x.pdf", "settings.png", "learning-curves.svg"} <= names
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "comparison.csv").read_text())))
    assert [(row["method.name"], row["local.lr"], row["seeds"]) for row in rows] == [
        ("fedul", "0.1", "3"),
        ("likelihood", "0.1", "3"),
        ("likelihood", "0.5", "3"),
    ]
    assert float(rows[1]["mean test accuracy in %"]) == pytest.approx(82)
    assert "http" not in (tmp_path / "out" / "comparison.html").read_text().replace(
        "http://www.w3.org/", ""
    )


def test_tables_escape_what_each_language_would_misread():
    table = Table(["a|b", "x_y"], [["<p>", Cell("1 ± 2 %", best=True)]], 'say "&"')
    assert "&lt;p&gt;" in table.html()
    assert 'aria-label="say &quot;&amp;&quot;"' in table.html()
    assert '<td class="best">1 ± 2 %</td>' in table.html()
    assert table.markdown().splitlines()[0] == r"| a\|b | x_y |"
    assert table.markdown().splitlines()[2] == "| <p> | **1 ± 2 %** |"
    assert r"$<$p$>$ & \textbf{1 $\pm$ 2 \%} \\" in table.latex()
    assert r"x\_y" in table.latex()
    assert table.csv() == "a|b,x_y\n<p>,1 ± 2 %\n"
