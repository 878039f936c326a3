"""Sites and federations: what is refused, and in what words."""

import pytest
import torch

import potluck as pl
from potluck.errors import PotluckError

SPACE = pl.LabelSpace(("cat", "dog", "lynx"))


def site(name="north", count=4, columns=2, **changes):
    parts = {
        "name": name,
        "inputs": torch.zeros(count, columns),
        "view": pl.exact(SPACE),
        "labels": torch.arange(count) % 3,
        **changes,
    }
    return pl.Site.of(**parts)


def test_labels_are_encoded_in_the_sites_terms():
    assert site(labels=["dog", "cat", "lynx", "dog"]).symbols.tolist() == [1, 0, 2, 1]


def test_a_wrong_label_names_the_site():
    with pytest.raises(PotluckError, match='site "north": unknown label "dgo"; did you mean "dog"'):
        site(labels=["dgo", "cat", "cat", "cat"])


def test_missing_labels_name_the_site():
    with pytest.raises(PotluckError, match=r'site "north": .*needs one label per sample'):
        site(labels=None)


def test_sites_share_the_target_classes_of_the_first():
    federation = pl.Federation.of([site(), site("south", view=pl.unlabeled(SPACE), labels=None)])
    assert federation.space == SPACE
    assert [len(s) for s in federation.sites] == [4, 4]


def wild():
    inputs = torch.zeros(4, 2)
    inputs[1, 0], inputs[3, 1] = float("nan"), float("inf")
    return inputs


OTHER = pl.LabelSpace(("cat", "dog"))

MISTAKES = {
    "no sites": (lambda: {"sites": []}, "a federation needs at least one site"),
    "same name twice": (
        lambda: {"sites": [site("a"), site("b"), site("a")]},
        'two sites are called "a"; names must be distinct',
    ),
    "server called like a site": (
        lambda: {"sites": [site("a")], "server": site("a")},
        'two sites are called "a"',
    ),
    "empty site": (
        lambda: {"sites": [site("a"), site("b", count=0)]},
        'site "b" has no samples; leave it out or give it data',
    ),
    "other inputs": (
        lambda: {"sites": [site("a"), site("b", columns=3)]},
        r'site "b" has samples of shape \(3,\), the first site of shape \(2,\); all sites need',
    ),
    "other inputs at the server": (
        lambda: {"sites": [site("a")], "server": site("hub", columns=3)},
        r'site "hub" has samples of shape \(3,\)',
    ),
    "bytes and fractions": (
        lambda: {"sites": [site("a"), site("b", inputs=torch.zeros(4, 2, dtype=torch.uint8))]},
        'site "b" has samples of type torch.uint8, the first site of type torch.float32',
    ),
    "missing values": (
        lambda: {"sites": [site("a"), site("b", inputs=wild())]},
        r'site "b": sample 1 has an input that is not a finite number \(2 such samples\); fill in',
    ),
    "other target classes": (
        lambda: {"sites": [site("a"), site("b", view=pl.exact(OTHER), labels=[0, 1, 0, 1])]},
        'site "b" has a view over other target classes than the first site',
    ),
    "private server": (
        lambda: {
            "sites": [site("a")],
            "server": site("hub", view=pl.private_subset(SPACE, ["cat"]), labels=["cat"] * 4),
        },
        "the server's own view is private, but the server knows all classes; give it a subset",
    ),
    "truth of another length": (
        lambda: {"sites": [site("a", truth=torch.zeros(3, dtype=torch.int64))]},
        'site "a" has 4 samples but 3 true classes',
    ),
    "symbols of another length": (
        lambda: {"sites": [pl.Site("a", torch.zeros(4, 2), pl.exact(SPACE), torch.zeros(5))]},
        'site "a" has 4 samples but 5 symbols',
    ),
    "symbols outside the view": (
        lambda: {"sites": [pl.Site("a", torch.zeros(2, 2), pl.exact(SPACE), torch.tensor([0, 3]))]},
        'site "a" has symbols outside 0…2; its view has 3 symbols',
    ),
    "test classes missing": (
        lambda: {"sites": [site()], "test": (torch.zeros(3, 2), torch.zeros(2).long())},
        "the test set has 3 samples and 2 classes; it needs one class per sample",
    ),
    "empty test set": (
        lambda: {"sites": [site()], "test": (torch.zeros(0, 2), torch.zeros(0).long())},
        "the test set has 0 samples",
    ),
    "test samples of another shape": (
        lambda: {"sites": [site()], "test": (torch.zeros(3, 5), torch.zeros(3).long())},
        r"the test set has samples of shape \(5,\), the first site of shape \(2,\)",
    ),
    "missing values in the test set": (
        lambda: {"sites": [site()], "test": (wild(), torch.zeros(4).long())},
        "the test set: sample 1 has an input that is not a finite number",
    ),
    "test classes outside the space": (
        lambda: {"sites": [site()], "test": (torch.zeros(2, 2), torch.tensor([0, 3]))},
        "the test set: label index 3 is outside 0…2",
    ),
    "test classes that are fractions": (
        lambda: {"sites": [site()], "test": (torch.zeros(2, 2), torch.zeros(2))},
        "the test set: labels are float32 numbers",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(name):
    make, message = MISTAKES[name]
    with pytest.raises(PotluckError, match=message):
        pl.Federation.of(**make())


def test_test_classes_may_be_names_or_small_integers():
    inputs = torch.zeros(3, 2)
    for classes in (["dog", "cat", "lynx"], torch.tensor([1, 0, 2], dtype=torch.int32)):
        test = pl.Federation.of([site()], test=(inputs, classes)).test
        assert test[1].tolist() == [1, 0, 2]
        assert test[1].dtype == torch.int64


def test_identifiability_counts_the_servers_labels():
    coarse = pl.coarse(SPACE, {"feline": ["cat", "lynx"], "canine": ["dog"]})
    sites = [site("a", view=coarse, labels=["feline"] * 4)]
    hub = site("hub")
    alone = pl.Federation.of(sites).identifiability()
    joint = pl.Federation.of(sites, server=hub).identifiability()
    assert alone.verdict() != joint.verdict()
    assert joint.verdict() == pl.Federation.of([hub]).identifiability().verdict()


def test_moving_to_a_device_moves_all_data():
    full = site("a", truth=torch.zeros(4, dtype=torch.int64))
    federation = pl.Federation.of([full], server=site("hub"), test=(torch.zeros(1, 2), ["cat"]))
    moved = federation.to(torch.device("meta"))
    tensors = [moved.sites[0].inputs, moved.sites[0].symbols, moved.sites[0].truth, *moved.test]
    assert {t.device.type for t in [*tensors, moved.server.inputs]} == {"meta"}
    assert federation.sites[0].inputs.device.type == "cpu"
