"""All that is sent to a private site over a whole run, byte by byte.

Two federations are compared. The sites and their samples are the same, but the second has three
more classes, which nobody holds, and all classes in another order. The site "farm" must not be able
to tell which one it is in. In a third one the classes that the farm does not have bear other names.
"""

import dataclasses

import pytest
import torch
from by_hand import Spy, play, whole
from torch import Tensor

import potluck as pl
from potluck.engines.rounds import make_broadcast, start
from potluck.engines.static_norm import norm_sums
from potluck.methods import FedLC, FixedHead, Likelihood, Method, RidgeHead, SiteData, Tuning
from potluck.training import make_network

PLAIN = pl.LabelSpace(("aardvark", "bumblebee", "crocodile", "dromedary", "earthworm"))
OTHER = pl.LabelSpace(
    ("gnu", "earthworm", "dromedary", "hamster", "crocodile", "bumblebee", "ibex", "aardvark")
)
RENAMED = pl.LabelSpace(("aardvark", "bumblebee", "jackal", "dromedary", "koala"))
OWN = ["dromedary", "bumblebee", "aardvark"]
CLASSES = {"farm": OWN, "swamp": ["crocodile", "aardvark"], "soil": ["earthworm", "dromedary"]}


def federation(space):
    rename = dict(zip(PLAIN, RENAMED, strict=True)) if space is RENAMED else {}
    generator = torch.Generator().manual_seed(5)
    sites = []
    for name, own in CLASSES.items():
        names = [rename.get(c, c) for c in own]
        inputs = torch.randn(12, 4, generator=generator)
        labels = [names[i % len(names)] for i in range(12)]
        truth = torch.tensor([space.index(label) for label in labels])
        view = pl.private_subset(space, names)
        sites.append(pl.Site.of(name, inputs, view, labels, truth))
    unlabelled = torch.randn(10, 4, generator=generator)
    return pl.Federation.of(sites, pl.Site.of("server", unlabelled, pl.unlabeled(space)))


def recipe(method, federated=None, **changes):
    local = pl.LocalTraining(lr=0.05, batch_size=4, epochs=2)
    return pl.Recipe(
        rounds=3,
        seed=7,
        method=method,
        federated=federated or pl.FedAvg(),
        local=local,
        **changes,
    )


def messages(space, settings):
    """Everything the farm receives in the run, and the server's state at each broadcast."""
    sites, spy = federation(space), Spy()
    network = make_network(sites, settings, "mlp")
    first = start(network, settings, sites, torch.device("cpu"))
    states, _ = play(network, settings, sites, rounds=3, engine=spy, state=first)
    sent = [message for name, message in spy.broadcasts if name == "farm"]
    assert len(sent) == 3
    return sent, [first, *states[:-1]], network


def tensors(message):
    """{name: tensor} of all that a message holds; numbers become tensors."""
    found = {}
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if isinstance(value, dict):
            found |= {f"{field.name}.{name}": tensor for name, tensor in value.items()}
        else:
            found[field.name] = value if isinstance(value, Tensor) else torch.tensor(value)
    return found


def as_bytes(message):
    """The message as it would go over a wire."""
    parts = []
    for name, tensor in tensors(message).items():
        parts += [f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode()]
        parts += [tensor.contiguous().numpy().tobytes()]
    return b"".join(parts)


METHODS = {
    "likelihood": Likelihood(),
    "fedlc": FedLC(),
    "tuning": Tuning(),
    "fixed-head": FixedHead(),
    "ridge-head": RidgeHead(),
}
FEDERATED = {
    "fedavg": pl.FedAvg(),
    "fedprox": pl.FedProx(),
    "scaffold": pl.Scaffold(),
    "fedadam": pl.FedAdam(),
    "fednova": pl.FedNova(),
}
SETTINGS = [
    *(recipe(method) for method in METHODS.values()),
    *(recipe(Likelihood(), federated) for federated in FEDERATED.values()),
    recipe(Likelihood(), batch_norm="static"),
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda r: type(r.method).__name__)
def test_no_message_contains_a_row_or_a_name_of_another_class(settings):
    sent, states, network = messages(PLAIN, settings)
    for message, state in zip(sent, states, strict=True):
        wire = as_bytes(message)
        vectors = {"theta": state.theta, **settings.federated.share(state.federated)}
        for vector in vectors.values():
            rows = network.layout.unflatten(vector)
            for name in set(PLAIN) - set(OWN):
                row = rows["head.weight"][PLAIN.index(name)]
                if row.any():  # control variates start at 0
                    assert row.numpy().tobytes() not in wire
                    # nor in part: any three neighbouring entries would give it away
                    assert row[40:43].numpy().tobytes() not in wire
                bias = rows["head.bias"][PLAIN.index(name)]
                if bias.any():
                    assert bias.numpy().tobytes() not in wire
        for name in PLAIN:
            assert name.encode() not in wire
    # The search would find what is there: the farm's own rows, in its own order.
    own = network.layout.unflatten(states[-1].theta)["head.weight"]
    together = b"".join(own[PLAIN.index(name)].numpy().tobytes() for name in OWN)
    assert together in as_bytes(sent[-1])


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda r: type(r.method).__name__)
def test_messages_do_not_tell_the_number_or_the_order_of_other_classes(settings):
    here, _, _ = messages(PLAIN, settings)
    there, _, _ = messages(OTHER, settings)
    assert as_bytes(here[0]) == as_bytes(there[0])
    for one, two in zip(here, there, strict=True):
        a, b = tensors(one), tensors(two)
        assert list(a) == list(b)
        for name in a:
            # The server adds up in another order, so that the last bits may differ.
            assert a[name].shape == b[name].shape
            assert torch.allclose(a[name].double(), b[name].double(), atol=1e-4), name


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda r: type(r.method).__name__)
def test_before_anybody_has_trained_messages_do_not_depend_on_the_names_of_other_classes(settings):
    here, _, _ = messages(PLAIN, settings)
    there, _, _ = messages(RENAMED, settings)
    assert as_bytes(here[0]) == as_bytes(there[0])
    sizes = [[tuple(t.shape) for t in tensors(m).values()] for m in (*here, *there)]
    assert sizes[:3] == sizes[3:]


@pytest.mark.parametrize("method", [Likelihood(), FedLC(), FixedHead()])
def test_without_sums_over_classes_at_the_server_every_byte_of_the_run_is_the_same(method):
    here, _, _ = messages(PLAIN, recipe(method))
    there, _, _ = messages(OTHER, recipe(method))
    assert [as_bytes(m) for m in here] == [as_bytes(m) for m in there]


def test_the_size_of_a_message_depends_on_the_sites_own_classes_only():
    sent, _, _ = messages(PLAIN, recipe(Likelihood(), pl.Scaffold()))
    encoder = 4 * 128 + 128
    for message in sent:
        assert message.theta.shape == (encoder + 3 * (128 + 1),)
        assert message.aligned["control"].shape == message.theta.shape


def test_whoever_knows_the_seed_cannot_find_out_the_place_of_his_rows():
    # The usual draw of a head goes through its rows in order; see `draw_rows`.
    seed = recipe(Likelihood()).seed
    sent, _, network = messages(PLAIN, recipe(Likelihood()))
    got = network.layout.narrowed(3).unflatten(sent[0].theta)
    for classes in range(3, 10):
        guess = pl.LabelSpace.numbered(classes)
        site = pl.Site.of("guess", torch.zeros(1, 4), pl.exact(guess), [0])
        drawn = make_network(pl.Federation.of([site]), pl.Recipe(rounds=1, seed=seed), "mlp")
        rows = drawn.layout.unflatten(drawn.initial()[0])
        assert torch.equal(rows["encoder.body.1.weight"], got["encoder.body.1.weight"])
        for row in got["head.weight"]:
            assert not torch.isclose(rows["head.weight"], row).all(1).any()
        for value in got["head.bias"]:
            assert not torch.isclose(rows["head.bias"], value).any()


def test_a_private_site_works_with_its_own_classes_only():
    site = federation(PLAIN).sites[0]
    data = SiteData.of(site)
    assert data.log_a.shape == (3, 3)
    assert data.log_b.shape == data.prior.shape == (3,)
    assert data.prior.tolist() == pytest.approx([1 / 3] * 3)
    assert torch.equal(data.truth, data.symbols)  # true classes as the site numbers them
    own = site.view.own()
    assert own.space.names == own.symbols.names == tuple(OWN)
    assert not (set(PLAIN) - set(OWN)) & set(map(str, dataclasses.asdict(own).values()))


def test_the_network_of_a_private_site_has_no_rows_of_its_own():
    network = make_network(federation(PLAIN), recipe(Likelihood()), "mlp")
    narrow = network.narrowed(3)
    theta, _ = narrow.initial()
    parts = narrow.layout.unflatten(theta)
    assert parts["head.weight"].shape == (3, 128)
    assert not parts["head.weight"].any()
    assert not parts["head.bias"].any()
    # It computes what the wide one computes with the same rows.
    full, _ = network.initial()
    classes = torch.tensor([3, 1, 0])
    inputs = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    scores = narrow.infer(full[network.layout.entries(classes)], network.initial()[1], inputs)
    wide = network.infer(full, network.initial()[1], inputs)
    assert torch.allclose(scores, wide[:, classes], atol=1e-6)  # the sums may round differently


def test_sums_for_batch_norm_are_made_with_the_sites_own_rows(monkeypatch):
    sizes = []

    def noted(network, theta, buffers, inputs):
        sizes.append((len(network.layout), len(theta)))
        return norm_sums(network, theta, buffers, inputs)

    monkeypatch.setattr("potluck.engines.rounds.norm_sums", noted)
    messages(PLAIN, recipe(Likelihood(), batch_norm="static"))
    encoder = 4 * 128 + 128
    own = [encoder + rows * 129 for rows in (3, 2, 2, 5)]  # the three sites, then the server
    assert sizes == [(size, size) for size in own] * 3


class Chatty(Likelihood):
    """A method that tells every site how many classes there are."""

    def share(self, server, site):
        return {"classes": torch.tensor([5.0])}


class Gossip(Likelihood):
    """A method that sends a vector like θ to every site."""

    def server_start(self, network, federation):
        return {"echo": torch.arange(float(len(network.layout)))}

    def share(self, server, site):
        return server


def test_a_method_can_send_nothing_to_a_private_site_but_vectors_like_its_parameters():
    with pytest.raises(pl.PotluckError, match=r'send "classes" of shape \(1,\) to a private site'):
        messages(PLAIN, recipe(Chatty()))
    sent, _, network = messages(PLAIN, recipe(Gossip()))
    entries = network.layout.entries(torch.tensor([PLAIN.index(name) for name in OWN]))
    assert torch.equal(sent[0].shared["echo"], entries.float())


def test_the_server_still_tells_open_sites_everything():
    assert isinstance(Chatty(), Method)
    sites = pl.Federation.of([pl.Site.of("open", torch.zeros(2, 4), pl.exact(PLAIN), [0, 1])])
    settings = pl.Recipe(rounds=1, method=Chatty(), local=whole())
    network = make_network(sites, settings, "mlp")
    state = start(network, settings, sites, torch.device("cpu"))
    message = make_broadcast(settings, state, 0.1, None, {"classes": torch.tensor([5.0])})
    assert message.shared["classes"].tolist() == [5.0]
