"""What goes wrong with sets of classes, and what the messages say."""

import pytest
import torch

import potluck as pl
from potluck.methods import Likelihood
from potluck.study.schema import parse_study
from potluck.study.simulation import simulate
from potluck.study.sitefile import load_site

SPACE = pl.LabelSpace(("ant", "bee", "cow"))


@pytest.mark.parametrize("make", [pl.subset, pl.private_subset])
def test_a_site_without_classes_is_refused(make):
    with pytest.raises(pl.PotluckError, match="class set of the site is empty; name the classes"):
        make(SPACE, [])


def test_a_sample_of_a_class_outside_the_declared_set_is_refused_without_naming_other_classes():
    view = pl.private_subset(SPACE, ["cow", "ant"])
    with pytest.raises(pl.PotluckError, match='site "farm": unknown label "bee"') as caught:
        pl.Site.of("farm", torch.zeros(2, 3), view, ["cow", "bee"])
    assert str(caught.value).endswith("Known: cow, ant.")


def test_a_site_file_with_an_undeclared_class_says_where_and_what_to_do(tmp_path):
    (tmp_path / "data.csv").write_text("x,label\n1,cow\n2,bee\n3,cow\n")
    (tmp_path / "farm.toml").write_text(
        'name = "farm"\n[data]\nkind = "table"\npath = "data.csv"\nlabel = "label"\n'
        '[view]\nkind = "subset"\nclasses = ["cow", "ant"]\nprivate = true\n'
    )
    message = r'farm.toml.*"farm".*unknown label "bee".*1 of 3.*Add the class to view.classes'
    with pytest.raises(pl.PotluckError, match=message):
        load_site(tmp_path / "farm.toml", SPACE)


def test_a_private_site_needs_no_other_classes_to_read_its_file(tmp_path):
    # At the site, its own classes are all the target classes there are.
    (tmp_path / "data.csv").write_text("x,label\n1,cow\n2,ant\n")
    (tmp_path / "farm.toml").write_text(
        'name = "farm"\n[data]\nkind = "table"\npath = "data.csv"\nlabel = "label"\n'
        '[view]\nkind = "subset"\nclasses = ["cow", "ant"]\nprivate = true\n'
    )
    alone, _ = load_site(tmp_path / "farm.toml", pl.LabelSpace(("cow", "ant")))
    known, _ = load_site(tmp_path / "farm.toml", SPACE)
    assert torch.equal(alone.symbols, known.symbols)
    assert alone.view.own().symbols == known.view.own().symbols
    assert torch.equal(alone.view.own().codebook, known.view.own().codebook)


def test_a_private_site_cannot_compare_with_classes_that_it_does_not_know(tmp_path):
    (tmp_path / "data.csv").write_text("x,label\n1,cow\n")
    (tmp_path / "farm.toml").write_text(
        'name = "farm"\n[data]\nkind = "table"\npath = "data.csv"\nlabel = "label"\n'
        '[view]\nkind = "subset"\nclasses = ["cow"]\nprivate = true\nsoftmax = "all"\n'
    )
    message = 'a private site knows its own classes only.*softmax = "all" is not possible'
    with pytest.raises(pl.PotluckError, match=message):
        load_site(tmp_path / "farm.toml", SPACE)
    with pytest.raises(pl.PotluckError, match='unknown softmax of a subset view "al"'):
        pl.subset(SPACE, ["cow"], softmax="al")


def test_a_class_that_no_site_holds_is_announced_before_training_and_keeps_its_row():
    # Not an error: in a round, or for good, a class may be missing (METHODS §2, row 25).
    sites = [
        pl.Site.of("a", torch.randn(4, 3), pl.private_subset(SPACE, ["ant", "cow"]), [0, 1] * 2),
        pl.Site.of("b", torch.randn(4, 3), pl.private_subset(SPACE, ["cow", "ant"]), [0, 1] * 2),
    ]
    federation = pl.Federation.of(sites)
    found = federation.identifiability()
    assert not found.complete
    assert found.unseen == ("bee",)
    assert "No site has: bee." in found.verdict()
    first = pl.train(federation, pl.Recipe(rounds=1, method=Likelihood()), "linear")
    last = pl.train(federation, pl.Recipe(rounds=5, method=Likelihood()), "linear")
    rows = [t.network.layout.unflatten(t.state.theta)["head.weight"] for t in (first, last)]
    assert torch.equal(rows[0][1], rows[1][1])
    assert not torch.equal(rows[0][0], rows[1][0])


def simulated(view, **changes):
    table = {
        "rounds": 1,
        "simulation": {
            "dataset": "digits",
            "partition": {"name": "label_subsets", "labels_per_site": 3, "samples_per_site": 60},
            "sites": [{"name": "site", "count": 4, "view": {"kind": "subset", **view}}],
            **changes,
        },
    }
    return parse_study(table, "study.toml").simulation


def test_a_simulated_private_site_has_its_classes_in_no_particular_order(tmp_path):
    orders = []
    for seed in range(5):
        for site in simulate(simulated({"private": True}), seed, tmp_path).sites:
            assert site.view.private
            assert len(site) == 60
            orders.append([int(name) for name in site.view.symbols])
            assert torch.equal(site.view.codebook.argmax(1)[site.symbols], site.truth)
    assert any(order != sorted(order) for order in orders)
    assert all(len(set(order)) == 3 for order in orders)


def test_a_study_says_whether_labels_are_compared_with_all_classes(tmp_path):
    own = simulate(simulated({}), 0, tmp_path).sites[0].view
    full = simulate(simulated({"softmax": "all"}), 0, tmp_path).sites[0].view
    assert int(own.held.sum()) == 3
    assert full.held.all()
    assert torch.equal(own.codebook, full.codebook)


def test_under_the_full_softmax_a_subset_trains_as_exact_labels_do():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(8, 3, generator=generator)
    recipe = pl.Recipe(rounds=3, local=pl.LocalTraining(batch_size=4))
    ends = []
    for view in (pl.subset(SPACE, ["cow", "ant"], softmax="all"), pl.exact(SPACE)):
        site = pl.Site.of("farm", inputs, view, ["cow", "ant"] * 4)
        ends.append(pl.train(pl.Federation.of([site]), recipe, "mlp").state.theta)
    assert torch.allclose(*ends, atol=1e-6)
