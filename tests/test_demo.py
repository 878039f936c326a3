"""The demonstration, shortened: what it compares, and what it claims."""

import pytest
import torch

from potluck import console
from potluck.demo import Outcome, Row, demo_study, run_demo, settings
from potluck.federation import Federation
from potluck.study.build import load_federation

KINDS = ["exact", "coarse", "noisy", "bags", "candidates", "subset", "unlabeled"]


@pytest.fixture(scope="module")
def federation() -> Federation:
    return load_federation(demo_study())[0]


@pytest.fixture(scope="module")
def outcome() -> tuple[Outcome, int, int]:
    """One seed with a fifth of the rounds; how many trainings it reported; threads after it."""
    done: list[None] = []
    found = run_demo(lambda: done.append(None), seeds=(0,), rounds=10)
    return found, len(done), torch.get_num_threads()


def test_seven_sites_have_the_seven_kinds_of_labels(federation: Federation) -> None:
    assert [site.view.kind for site in federation.sites] == KINDS
    assert federation.identifiability().complete


def test_each_site_alone_the_federation_and_full_supervision_are_compared(
    federation: Federation,
) -> None:
    compared = list(settings(federation))
    assert [labels for _, labels, _ in compared[:7]] == KINDS
    for (name, _, part), site in zip(compared, federation.sites, strict=False):
        assert name == site.name
        assert part.sites == (site,)
    assert compared[7][2] is federation


def test_full_supervision_has_exact_labels_for_the_same_images(federation: Federation) -> None:
    *_, (_, _, supervised) = settings(federation)
    for site, true in zip(federation.sites, supervised.sites, strict=True):
        assert true.inputs is site.inputs
        assert true.view.kind == "exact"
        assert true.symbols is site.truth


def test_seeds_draw_different_labels_and_the_same_seed_the_same() -> None:
    first, again, other = (load_federation(demo_study(seed))[0] for seed in (0, 0, 1))
    assert torch.equal(first.sites[2].symbols, again.sites[2].symbols)
    assert not torch.equal(first.sites[2].symbols, other.sites[2].symbols)


def test_the_federation_beats_every_site_alone(outcome: tuple[Outcome, int, int]) -> None:
    found, trainings, threads = outcome
    assert trainings == 9
    assert threads == torch.get_num_threads()
    assert [row.labels for row in found.alone] == KINDS
    assert found.together.mean > found.best_alone.mean + 0.05
    assert found.supervised.mean >= found.together.mean
    assert found.alone[-1].mean < 0.3  # who has no labels learns nothing


def test_rows_have_mean_and_deviation_over_seeds() -> None:
    assert Row("a", "exact", (0.5, 0.7, 0.9)).mean == pytest.approx(0.7)
    assert Row("a", "exact", (0.5, 0.7, 0.9)).deviation == pytest.approx(0.2)
    assert Row("a", "exact", (0.5,)).deviation == 0


def test_the_printed_gain_is_the_difference_of_the_means(
    capsys: pytest.CaptureFixture[str],
) -> None:
    alone = (Row("[site]", "exact", (0.80,)), Row("poor", "noisy", (0.60,)))
    console.show_demo(Outcome(alone, Row("all", "mixed", (0.90,)), Row("full", "exact", (0.95,))))
    told = capsys.readouterr().out
    assert "Together, the sites reach 90.0%: 10.0 points above the best site alone" in told
    assert "([site], 80.0%), and 5.0 below" in told
