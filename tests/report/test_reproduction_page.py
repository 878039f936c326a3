"""Verdicts by numbers worked out by hand, and the page that is made of them."""

from pathlib import Path

import pytest

from potluck.report.metrics import METRICS
from potluck.report.reproduction import Reproduction, duration, page, reproductions
from potluck.study.papers import Experiment, Paper, PaperFile, read_papers
from potluck.study.reproduction import Results, all_results, default_folders

REPOSITORY = Path(__file__).parents[2]


def judged(ours, paper=None, sd=None, goals=None, scale="full", beyond=(), **more) -> Reproduction:
    """A table of rows A and B in one setting or more; `ours` has a list of seeds for each cell."""
    columns = [f"s{i}" for i in range(len(next(iter(ours.values()))))]
    experiment = Experiment(
        name="table",
        title="Table",
        **{"metric": "accuracy", **more},
        columns=[{"name": name} for name in columns],
        rows=[
            {
                "name": row,
                "study": "study.toml",
                "paper": (paper or {}).get(row, []),
                "sd": (sd or {}).get(row, []),
                "goals": (goals or {}).get(row, {}),
                "beyond": row in beyond,
            }
            for row in ours
        ],
    )
    runs = [
        {
            "row": row,
            "column": column,
            "seed": seed,
            "study": f"{row}{column}{seed}",
            "session": 0,
            "rounds": 1,
            "seconds": 30.0,
            "values": {experiment.metric: value},
            "curve": {},
        }
        for row, cells in ours.items()
        for column, scores in zip(columns, cells, strict=True)
        for seed, value in enumerate(scores)
    ]
    session = {"command": "c", "commit": "d", "hardware": "a card", "python": "3", "versions": {}}
    results = Results(
        paper="p", experiment="table", scale=scale, overrides=[], sessions=[session], runs=runs
    )
    content = PaperFile(title="P", seeds=1, experiments=[experiment])
    return Reproduction(Paper(Path("p"), content), experiment, scale, results if runs else None)


A_OVER_B = [{"rows": ["A", "B"]}]


@pytest.mark.parametrize(
    ("ours", "sd", "goal", "verdict"),
    [
        (90.9, None, None, "reproduced"),  # within a point
        (91.1, None, None, "not reproduced"),
        (91.1, 1.5, None, "reproduced"),  # within the paper's deviation
        (88.0, 1.5, None, "not reproduced"),
        (90.4, None, 0.3, "not reproduced"),  # the goal is narrower than a point
        (87.5, None, 3.0, "reproduced"),  # or wider
    ],
)
def test_a_number_is_reproduced_within_its_goal_a_deviation_or_a_point(ours, sd, goal, verdict):
    found = judged(
        {"A": [[ours]]},
        paper={"A": [90.0]},
        sd={"A": [sd]} if sd else None,
        goals={"A": {"s0": goal}} if goal else None,
    )
    assert found.verdict == verdict
    assert found.verdict_of(found.cells["A", "s0"]) == verdict


def test_numbers_that_differ_but_keep_their_order():
    found = judged({"A": [[80]], "B": [[70]]}, paper={"A": [90], "B": [85]}, orderings=A_OVER_B)
    assert found.verdict == "ordering only"
    assert {found.verdict_of(cell) for cell in found.cells.values()} == {"ordering only"}
    assert found.cells["A", "s0"].gap == -10


def test_one_broken_claim_is_enough():
    found = judged(
        {"A": [[90], [70]], "B": [[80], [80]]},
        paper={"A": [90, 70], "B": [80, 80]},
        orderings=A_OVER_B,
    )
    assert found.verdict == "not reproduced"
    (claim,) = found.claims
    assert claim.line == "A better than B: holds in 1 of 2 (1 of 2 by seed); not for s1"


def test_means_decide_and_seeds_are_counted():
    found = judged({"A": [[90, 70, 95]], "B": [[80, 80, 80]]}, orderings=A_OVER_B)
    assert found.claims[0].line == "A better than B: holds in 1 of 1 (2 of 3 by seed)"
    assert found.verdict == "ordering only"


def test_a_claim_says_how_much_of_it_was_not_run():
    found = judged({"A": [[90], [90]], "B": [[80], []]}, orderings=A_OVER_B)
    assert found.claims[0].line == "A better than B: holds in 1 of 1 (1 of 1 by seed); 1 not run"


def test_less_is_better_for_errors():
    assert (
        judged({"A": [[1]], "B": [[2]]}, metric="error", orderings=A_OVER_B)
        .claims[0]
        .comparisons[0]
        .holds
    )
    assert not METRICS["correspondence-error"].rising


@pytest.mark.parametrize(("by", "holds"), [(0, False), (-0.5, True), (-0.1, False)])
def test_at_least_as_good_up_to_a_margin(by, holds):
    claims = [{"rows": ["A", "B"], "by": by}]
    found = judged({"A": [[79.7]], "B": [[80.0]]}, orderings=claims)
    assert found.claims[0].comparisons[0].holds is holds


def test_trends_and_near_rows():
    found = judged(
        {"A": [[50], [60], [55]], "B": [[51], [63], [55]]},
        trends=[{"row": "A", "columns": ["s1", "s2", "s0"]}, {"row": "A", "columns": ["s0", "s1"]}],
        near=[{"row": "A", "to": "B", "within": 2}],
    )
    held = [[one.holds for one in claim.comparisons] for claim in found.claims]
    assert held == [[True, True], [False], [True, False, True]]
    assert found.claims[2].line.endswith("; not for s1")


def test_numbers_of_other_data_are_shown_but_not_judged():
    found = judged(
        {"A": [[80]], "B": [[70]]},
        paper={"A": [90], "B": [20]},
        incomparable="other data",
        orderings=A_OVER_B,
    )
    assert found.verdict == "ordering only"
    assert "90.00" in found.table().markdown()
    assert "other data" in page([found])


def test_the_papers_numbers_do_not_count_at_another_scale():
    found = judged({"A": [[90]]}, paper={"A": [90]}, scale="small")
    assert found.cells["A", "s0"].paper is None


def test_claims_wait_for_both_sides_and_nothing_run_is_said():
    half = judged({"A": [[90]], "B": [[]]}, paper={"A": [90], "B": [80]}, orderings=A_OVER_B)
    assert half.claims[0].line == "A better than B: not run"
    assert half.verdict_of(half.cells["B", "s0"]) == "not run"
    assert half.verdict == "reproduced so far"
    assert "1 of 2 cells were run" in page([half])
    assert judged({"A": [[]]}, paper={"A": [90]}).verdict == "not run"


def test_rows_beyond_the_paper_are_shown_but_not_counted():
    found = judged({"A": [[90]], "B": [[10]], "C": [[]]}, {"A": [90]}, beyond=["B", "C"])
    assert found.verdict == "reproduced"
    assert found.verdict_of(found.cells["B", "s0"]) == "–"
    assert "| p table | reproduced | – | 1 of 1 |" in page([found])
    assert "| B | s0 | – | 10.00 | – | – |" in page([found])
    alone = judged({"A": [[]], "B": [[10]]}, {"A": [90]}, beyond=["B"])
    assert alone.verdict == "not run"


def test_a_table_shows_paper_ours_and_gap():
    found = judged({"A": [[89, 91]]}, paper={"A": [92.0]}, sd={"A": [0.5]}, orderings=[])
    row = "| A | s0 | 92.00 ± 0.50 | 90.00 ± 1.41 | -2.00 | not reproduced |"
    assert row in page([found])
    assert "mean ± sd over 2 seeds" in page([found])


def test_durations():
    assert [duration(s) for s in (5, 90, 7200)] == ["5 s", "1.5 min", "2.0 h"]


def test_the_page_in_the_documentation_is_up_to_date():
    papers, results = default_folders(None, None)
    expected = page(reproductions(read_papers(papers), all_results(results)))
    stored = (REPOSITORY / "docs" / "reproduction.md").read_text(encoding="utf-8")
    assert stored == expected, "run: potluck reproduce --page docs/reproduction.md"
