"""Which classes only weak evidence separates, and where the evidence about a class comes from."""

import pytest
import torch

import potluck as pl
from potluck.data.makers.noise import symmetric
from potluck.labels import identifiability

SPACE = pl.LabelSpace(("cat", "lynx", "dog"))
ANIMALS = {"feline": ["cat", "lynx"], "canine": ["dog"]}


def test_classes_that_only_a_noisy_label_tells_apart_are_named_with_the_site():
    found = identifiability(
        {"clinic": pl.coarse(SPACE, ANIMALS), "clerk": pl.noisy(SPACE, symmetric(3, 0.6))}
    )
    assert found.complete
    (weak,) = found.weak
    assert weak.classes == ("cat", "lynx")
    assert weak.site == "clerk"
    assert 0 < weak.worth < 0.05
    (caution,) = found.cautions()
    assert 'separates "cat" from "lynx"' in caution
    assert 'site "clerk"' in caution


def test_an_exact_site_leaves_nothing_to_caution_about():
    found = identifiability({"lab": pl.exact(SPACE), "clerk": pl.noisy(SPACE, symmetric(3, 0.6))})
    assert found.weak == ()
    assert found.cautions() == []


def test_many_weak_pairs_are_counted():
    space = pl.LabelSpace.numbered(6)
    found = identifiability({"clerk": pl.noisy(space, symmetric(6, 0.8))})
    assert len(found.weak) == 15
    assert found.cautions()[-1] == "So it is with 12 more pairs of classes."
    assert [pair.worth for pair in found.weak] == sorted(pair.worth for pair in found.weak)


def test_evidence_about_a_class_is_listed_by_site_in_exact_labels():
    found = identifiability(
        {
            "lab": pl.exact(SPACE),
            "clinic": pl.coarse(SPACE, ANIMALS),
            "dogs": pl.private_subset(SPACE, ["dog", "lynx"]),
            "archive": pl.unlabeled(SPACE),
        }
    )
    for name in SPACE:
        assert found.evidence[name]["lab"] == pytest.approx(1)
        assert found.evidence[name]["archive"] == pytest.approx(0)
    assert found.evidence["dog"]["clinic"] == pytest.approx(1)  # its label says dog or not
    assert 0 < found.evidence["cat"]["clinic"] < 0.6
    assert found.evidence["cat"]["dogs"] == pytest.approx(0)


def test_a_pair_of_classes_that_nothing_tells_apart_is_not_called_weak():
    found = identifiability({"clinic": pl.coarse(SPACE, ANIMALS)})
    assert found.groups == (("cat", "lynx"),)
    assert all(set(pair.classes) != {"cat", "lynx"} for pair in found.weak)


def test_worth_of_a_contrast_by_hand():
    # Two classes, η = (p, 1 − p): a noisy label has information (1 − 2r)² / (P (1 − P)) about p.
    space = pl.LabelSpace(("a", "b"))
    rate = 0.45
    found = identifiability({"clerk": pl.noisy(space, symmetric(2, rate))})
    (weak,) = found.weak
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(2, generator=generator, dtype=torch.float64) + 0.5
    p = float(drawn[0] / drawn.sum())
    seen = p * (1 - rate) + (1 - p) * rate
    by_hand = (1 - 2 * rate) ** 2 / (seen * (1 - seen)) * p * (1 - p)
    assert weak.worth == pytest.approx(by_hand, rel=1e-5)
