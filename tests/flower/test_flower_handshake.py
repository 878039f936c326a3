"""What sites declare, how the coordinator then knows them, and whom it admits."""

from dataclasses import replace

import pytest
import torch
from federations import SITES, a_grid, a_study, over_flower
from flwr.app import Message
from hypothesis import given
from hypothesis import strategies as st

import potluck as pl
from potluck.engines.site_round import held_entries
from potluck.errors import PotluckError
from potluck.flower.declaration import Declaration, known_site, verdict
from potluck.flower.gathering import Gathering
from potluck.flower.memory import Holding, Memory, secluded
from potluck.flower.terms import Terms, check_secrets
from potluck.flower.wire import pack, unpack
from potluck.labels import LabelSpace, bags, candidates, coarse, noisy, private_subset, subset
from potluck.models import build
from potluck.models.network import Network
from potluck.study.build import load_federation
from potluck.study.recipe import recipe_of, recipe_values

LAYOUT = Network(build("linear", (5,), 4)).layout
SPACE = LabelSpace(("ant", "bee", "cicada", "dung beetle"))


def site(view, name="site", count=12):
    symbols = torch.arange(count) % len(view.symbols)
    return pl.Site(name, torch.rand(count, 5), view, symbols)


VIEWS = {
    "exact": pl.exact(SPACE),
    "unlabeled": pl.unlabeled(SPACE),
    "coarse": coarse(SPACE, {"x": ["ant", "bee"], "y": ["cicada", "dung beetle", "bee"]}),
    "noisy": noisy(SPACE, torch.full((4, 4), 0.1) + 0.6 * torch.eye(4)),
    "subset": subset(SPACE, ["cicada", "ant"]),
    "subset, all": subset(SPACE, ["cicada", "ant"], "all"),
    "private": private_subset(SPACE, ["cicada", "ant"]),
    "bags": bags(SPACE, torch.eye(4) * 0.6 + 0.1),
    "bags without ant": bags(
        SPACE, [[0, 0.2, 0, 0.8], [0, 0.1, 0.9, 0], [0, 0.9, 0.1, 0]], minimum_rank=3
    ),
    "candidates": candidates(SPACE, [[1, 1, 0, 0], [0, 0, 1, 0], [0, 1, 1, 1]]),
}


def declared(view):
    """The declaration after a journey over the network."""
    content = pack({"declared": Declaration.of(secluded(site(view))).facts()})
    facts, _ = unpack(content)
    return Declaration.read(facts["declared"])


@pytest.mark.parametrize("kind", VIEWS)
def test_the_coordinator_knows_what_it_needs_for_averaging(kind):
    view = VIEWS[kind]
    known = known_site(declared(view), SPACE)
    assert (known.name, len(known), known.view.kind) == ("site", 12, view.kind)
    assert known.inputs.shape == (12, 5)
    assert known.view.private == view.private
    assert known.view.held.tolist() == view.held.tolist()
    one, two = held_entries(LAYOUT, known.view), held_entries(LAYOUT, view)
    assert (one is None and two is None) or torch.equal(one, two)  # in the same order
    assert torch.equal(known.view.prior, view.prior)


@pytest.mark.parametrize("kind", ["exact", "unlabeled", "coarse", "noisy", "subset", "private"])
def test_views_that_are_told_are_known_exactly(kind):
    view = VIEWS[kind]
    known = known_site(declared(view), SPACE).view
    assert torch.equal(known.codebook, view.codebook)
    assert torch.equal(known.normaliser, view.normaliser)


def test_a_known_site_takes_up_no_memory():
    many = replace(declared(VIEWS["exact"]), samples=10**9, shape=(3, 32, 32), whole=True)
    known = known_site(many, SPACE)
    assert len(known) == 10**9
    assert known.inputs.untyped_storage().nbytes() == 1


@given(st.sampled_from(sorted(VIEWS)))
def test_no_label_name_and_no_prior_is_declared(kind):
    view = VIEWS[kind]
    text = str(Declaration.of(secluded(site(view))).facts())
    if kind in ("coarse", "bags", "candidates"):
        assert not any(f"'{name}'" in text for name in view.symbols if name not in SPACE)
    if kind.startswith("bags"):
        assert not any(str(value) in text for value in (0.7, 0.8, 0.9))
    if kind == "private":
        assert "bee" not in text
        assert "dung beetle" not in text


def known_federation(*views):
    sites = [replace(declared(view), name=f"site {i}") for i, view in enumerate(views)]
    return sites, pl.Federation.of([known_site(one, SPACE) for one in sites])


def test_the_check_concludes_when_what_is_told_suffices():
    text = verdict(*known_federation(VIEWS["exact"], VIEWS["bags without ant"]))
    assert text == "All 4 classes can be separated from the labels the sites have."
    text = verdict(*known_federation(VIEWS["bags"], VIEWS["unlabeled"]))
    assert text.startswith("All 4 classes")  # the site itself says that its bags suffice


def test_the_check_says_what_it_cannot_conclude():
    text = verdict(*known_federation(VIEWS["coarse"], VIEWS["bags without ant"]))
    assert 'What "site 1" know stays with them, so this cannot be settled from here.' in text
    assert "Without them: Only 1 of 3 independent class contrasts" in text


def test_the_check_concludes_that_nothing_could_help():
    views = (
        subset(SPACE, ["bee", "cicada"]),
        bags(SPACE, [[0, 0.5, 0.5, 0], [0, 0.1, 0.9, 0]], minimum_rank=2),
    )
    text = verdict(*known_federation(*views))
    assert "even if it were all there is to know" in text
    assert "No site has: ant, dung beetle." in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": ("ant", "bee")}, "trains for other target classes"),
        ({"classes": ("bee", "ant", "cicada", "dung beetle")}, "in the same order"),
        ({"potluck": "0.0.1"}, "runs potluck 0.0.1"),
        ({"kind": "astrology"}, 'unknown kind of view "astrology"'),
        ({"kind": "coarse", "matrix": ((1.0, 1.0),)}, "correspondence matrix M"),
        ({"kind": "subset", "held": ("wasp",)}, 'unknown label "wasp"'),
        ({"kind": "bags", "prior": (1.0,)}, "target prior"),
        ({"private": True, "kind": "subset", "classes": ("wasp",)}, "none of the study's"),
    ],
)
def test_a_declaration_that_does_not_fit_is_refused_in_words(change, message):
    with pytest.raises(PotluckError, match=message):
        known_site(replace(declared(VIEWS["exact"]), **change), SPACE)


@pytest.mark.parametrize(
    "change",
    [{"samples": 0}, {"samples": "7"}, {"shape": [-1]}, {"shape": 3}, {"name": 3}, {"kind": None}],
)
def test_a_declaration_that_makes_no_sense_is_refused(change):
    facts = Declaration.of(site(VIEWS["exact"])).facts()
    with pytest.raises(PotluckError, match="makes no sense"):
        Declaration.read({**facts, **change})
    with pytest.raises(PotluckError, match="not what this version of potluck reads"):
        Declaration.read({**facts, "labels": [1, 2]})


def gathered(grid, expected, **options):
    notes = []
    space = LabelSpace(tuple("0123456789"))
    gathering = Gathering(
        grid, space, expected, True, False, lambda **note: notes.append(note), **options
    )
    gathering.look()
    return gathering, notes


@pytest.fixture
def grid(tmp_path):
    return a_grid(a_study(), tmp_path)


NAMES = [entry["name"] for entry in SITES]


def test_everybody_who_is_expected_is_admitted(grid):
    gathering, notes = gathered(grid, NAMES)
    assert list(gathering.present) == NAMES
    brings = {note["site"]: note["brings"] for note in notes if note["what"] == "site"}
    assert brings["clinic"] == "40 samples, labels: exact"
    assert brings["secretive"].endswith("labels: subset, private")


def test_a_site_that_the_study_does_not_list_is_not_admitted(grid):
    gathering, notes = gathered(grid, NAMES[1:])
    assert "clinic" not in gathering.present
    problems = {note["site"]: note["why"] for note in notes if note["what"] == "problem"}
    assert problems == {"clinic": "the study does not list it (network.sites)"}


def test_a_site_cannot_pass_for_another(tmp_path):
    grid = a_grid(a_study(), tmp_path)
    node = next(node for node in grid.nodes.values() if node.name == "clinic")
    holding = Memory(node.folder).data()
    Memory(node.folder).keep_data(Holding(replace(holding.site, name="registry")))
    _, notes = gathered(grid, NAMES)
    (why,) = [note["why"] for note in notes if note["what"] == "problem"]
    assert 'the name "registry", but its key belongs to "clinic"' in why


def test_a_site_that_fails_in_the_handshake_is_asked_again(tmp_path, monkeypatch):
    asked = []

    def tamper(name, message, reply):
        asked.append(name)
        first = asked.count("wards") == 1 and name == "wards"
        return Message(pack({"problem": "disk full"}), reply_to=message) if first else reply

    monkeypatch.setattr("potluck.flower.gathering.AGAIN", 0.0)
    gathering, notes = gathered(a_grid(a_study(), tmp_path, tamper), NAMES)
    assert "wards" not in gathering.present
    assert ("wards", "disk full") in [(note.get("site"), note.get("why")) for note in notes]
    assert set(gathering.wait(len(NAMES))) == set(NAMES)


def test_a_run_goes_on_only_with_the_sites_that_it_was_started_with(grid):
    known = Declaration.of(site(VIEWS["exact"], "clinic"))
    gathering, notes = gathered(grid, NAMES, admitted={"clinic": known})
    assert gathering.present == {}
    whys = {note["site"]: note["why"] for note in notes if note["what"] == "problem"}
    assert "not what it was when the run was started" in whys["clinic"]
    assert "was not there when the run was started" in whys["wards"]


def test_training_starts_when_the_stated_number_is_there(tmp_path):
    study = a_study(network={"start": 4})
    grid = a_grid(study, tmp_path)
    grid.away = {"undecided", "archive"}
    run = over_flower(study, grid, tmp_path / "run")
    assert run.history()[0]["cohort"] == ["clinic", "registry", "wards", "secretive"]


def test_a_recipe_that_names_a_class_is_kept_from_private_sites():
    federation, _ = load_federation(a_study())
    private = next(one for one in federation.sites if one.view.private)
    terms = Terms("ab", {"method": {"name": "x", "ignore": ["9"]}}, {"name": "mlp"})
    with pytest.raises(PotluckError, match='names the class "9"'):
        check_secrets(terms, private)
    check_secrets(terms, federation.sites[0])
    check_secrets(replace(terms, recipe={"method": {"ignore": ["7"]}}), private)


def test_the_recipe_survives_the_journey():
    study = a_study(
        local={"schedule": {"name": "step", "milestones": [3, 5], "gamma": 0.5}, "clip": 1.0},
        method={"name": "candidate-targets", "rule": "renormalise"},
        federated={"name": "fedadam", "beta2": 0.9},
    )
    facts, _ = unpack(pack({"recipe": recipe_values(study)}))
    assert recipe_of(facts["recipe"]) == recipe_of(recipe_values(study))


def test_of_the_study_sites_get_the_recipe_and_no_more():
    values = recipe_values(a_study())
    assert not set(values) & {"simulation", "federation", "folder", "network", "name"}


def test_a_folder_of_a_site_cannot_be_left(tmp_path):
    with pytest.raises(PotluckError, match="names a run in a way that potluck does not"):
        Memory(tmp_path).state("../../etc", 1, torch.device("cpu"))


def test_stored_data_is_the_data(tmp_path):
    federation, _ = load_federation(a_study())
    for number, one in enumerate(federation.sites):
        memory = Memory(tmp_path / str(number))
        memory.keep_data(Holding(one))
        stored = memory.data().site
        kept = secluded(one)
        assert torch.equal(stored.inputs, one.inputs)
        assert torch.equal(stored.symbols, one.symbols)
        assert torch.equal(stored.view.codebook, kept.view.codebook)
        assert torch.equal(stored.view.own().codebook, one.view.own().codebook)
        assert stored.view.symbols == one.view.symbols
