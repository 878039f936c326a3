"""The audit lists what is sent, and notices broken promises."""

from dataclasses import dataclass

import pytest
import torch

import potluck as pl
from potluck.audit import audit
from potluck.engines import rounds
from potluck.methods import METHODS, FixedHead, Likelihood, RidgeHead, Tuning
from potluck.training import make_network

SPACE = pl.LabelSpace(("ant", "bee", "cow", "dog"))


def federation():
    generator = torch.Generator().manual_seed(0)

    def inputs(count):
        return torch.randn(count, 5, generator=generator)

    groups = {"insect": ["ant", "bee"], "mammal": ["cow", "dog"]}
    sites = [
        pl.Site.of("farm", inputs(30), pl.private_subset(SPACE, ["dog", "ant"]), [0, 1] * 15),
        pl.Site.of("zoo", inputs(20), pl.subset(SPACE, ["bee", "cow"]), [0, 1] * 10),
        pl.Site.of("park", inputs(9), pl.coarse(SPACE, groups), ["insect", "mammal", "insect"] * 3),
        pl.Site.of("lab", inputs(8), pl.exact(SPACE), [0, 1, 2, 3] * 2),
    ]
    return pl.Federation.of(sites, pl.Site.of("server", inputs(12), pl.unlabeled(SPACE)))


def audited(method=None, sites=None, **changes):
    recipe = pl.Recipe(rounds=5, method=method or Likelihood(), **changes)
    sites = sites or federation()
    return audit(sites, recipe, make_network(sites, recipe, "mlp"))


def shapes(items):
    return {item.name: item.shape for item in items}


def test_it_lists_what_each_site_receives_and_sends():
    found = audited(federated=pl.Scaffold())
    found.check()
    farm, zoo, park, lab = found.sites
    encoder = 5 * 128 + 128
    own, full = (encoder + 2 * 129,), (encoder + 4 * 129,)
    assert shapes(farm.receives) == {
        "round": (),
        "lr": (),
        "theta": own,
        "buffers.encoder.normalise.mean": (5,),
        "buffers.encoder.normalise.std": (5,),
        "aligned.control": own,
    }
    assert shapes(lab.receives)["theta"] == shapes(zoo.receives)["theta"] == full
    assert shapes(zoo.sends)["delta"] == shapes(farm.sends)["delta"] == own
    assert shapes(park.sends)["delta"] == full
    assert farm.private
    assert not zoo.private
    text = "\n".join(found.lines())
    assert 'site "farm", whose classes are private' in text
    assert "the encoder, and the head rows of its 2 classes in its own order" in text
    assert "the model, with the head rows of all 4 classes" in text
    assert "the server knows the classes of farm; no other site does" in text
    assert text.endswith("all promises are kept")


@pytest.mark.parametrize("method", [Tuning(), FixedHead()])
def test_our_methods_for_private_sites_keep_the_promise(method):
    assert audited(method).problems == ()


def test_the_ridge_head_says_that_the_server_receives_feature_sums():
    sites = federation()
    named = pl.Federation.of([site for site in sites.sites if site.name != "park"])
    found = audited(RidgeHead(), named)
    found.check()
    assert shapes(found.sites[0].sends)["extras.sums of 2 labels"] == (2, 129)


def test_every_method_that_takes_private_sites_keeps_the_promise():
    sites = federation()
    views = {"farm": ["dog", "ant"], "zoo": ["bee", "cow", "ant"]}
    private = pl.Federation.of(
        [
            pl.Site.of(s.name, s.inputs, pl.private_subset(SPACE, views[s.name]), s.symbols)
            for s in sites.sites[:2]
        ],
        sites.server,
    )
    kept = set()
    for name, method in METHODS.items():
        try:
            pl.Recipe(rounds=2, method=method()).check(private)
            found = audited(method(), private)
        except pl.PotluckError:
            continue  # it says why it cannot train these sites
        assert found.problems == (), name
        kept.add(name)
    assert {"likelihood", "tuning", "fedlc", "fixed-head", "ridge-head"} <= kept


class Simplex(Likelihood):
    """FedGELA's fixed head, whose rows depend on the number of classes."""

    def adjust(self, server, theta, layout):
        parts = layout.unflatten(theta)
        classes, features = parts["head.weight"].shape
        parts["head.weight"] = torch.eye(classes, features) - 1 / classes
        return layout.flatten(parts)


def test_rows_whose_values_depend_on_the_number_of_classes_break_the_promise():
    (problem,) = audited(Simplex()).problems
    assert problem == (
        'site "farm" keeps its classes private, but the values of theta that it receives depend '
        "on the number or the order of all classes."
    )
    with pytest.raises(pl.PotluckError, match="the values of theta"):
        audited(Simplex()).check()


def test_an_engine_that_sends_the_whole_model_breaks_the_promise(monkeypatch):
    make = rounds.make_broadcast
    monkeypatch.setattr(
        rounds,
        "make_broadcast",
        lambda recipe, state, lr, entries, shared: make(recipe, state, lr, None, shared),
    )
    monkeypatch.setattr("potluck.engines.engine.make_ready", sit_out)
    (problem,) = audited(sites=only_farm()).problems
    assert "it receives theta of shape (1284,), which would be (1671,) if there were 3" in problem


def sit_out(network, recipe, site, state, broadcast):
    return None, state


def only_farm():
    return pl.Federation.of(federation().sites[:1])


class Tattler(Likelihood):
    """A method that sends a value for each sample."""

    def report(self, here, plan):
        return {"labels": here.site.symbols.float()}


def test_values_of_single_samples_must_not_leave_a_site():
    (problem,) = audited(Tattler(), only_farm()).problems
    assert problem.startswith('site "farm" sends extras.labels of shape (24,)')
    assert "depends on how many samples it has" in problem


@dataclass(frozen=True)
class Picky(Likelihood):
    """A method with the name of a class among its options."""

    favourite: str = "cow"


def test_a_class_name_in_the_recipe_breaks_the_promise():
    (problem,) = audited(Picky(), only_farm()).problems
    assert problem.endswith('the recipe, which all sites get, names the class "cow".')


def test_a_class_may_be_called_like_an_option():
    space = pl.LabelSpace(("ant", "none"))  # method.augment is "none"
    site = pl.Site.of("farm", torch.zeros(2, 5), pl.private_subset(space, ["ant"]), [0, 0])
    assert audited(sites=pl.Federation.of([site])).problems == ()


def test_a_site_that_sits_out_sends_nothing(monkeypatch):
    monkeypatch.setattr("potluck.engines.engine.make_ready", sit_out)
    found = audited(sites=only_farm())
    found.check()
    assert found.sites[0].sends == ()
    assert "  sends nothing in the rehearsed rounds, which it sat out; later it may" in list(
        found.lines()
    )
