"""The stacked engine agrees with the sequential reference, whatever the federation mixes."""

import pytest
import torch
from torch import nn

import potluck as pl
from potluck.data.makers import bags as bag_makers
from potluck.data.makers import candidates as candidate_makers
from potluck.data.makers import noise
from potluck.data.readers.digits import digits
from potluck.engines import Stacked, run, start
from potluck.engines.compiled import compiled, rewritten, traced, unread_by
from potluck.engines.parts import PartedProgram
from potluck.engines.program import Program, Programs, Room, Run
from potluck.engines.sequential import Sequential
from potluck.engines.stacked import groups
from potluck.engines.trees import leaves
from potluck.federated import FEDERATED
from potluck.models import build
from potluck.models.network import Network

CPU = torch.device("cpu")
SPACE = pl.LabelSpace.numbered(10)


@pytest.fixture(scope="module")
def federation():
    """Seven kinds of labels, two sites of some; sizes that no batch size divides."""
    data = digits()
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(data), generator=generator)
    sizes = [23, 23, 31, 37, 41, 29, 43, 37, 19, 27]
    parts = iter([data.subset(part) for part in order[: sum(sizes)].split(sizes)])

    def exact(name):
        part = next(parts)
        return pl.Site.of(name, part.inputs, pl.exact(SPACE), part.classes)

    def coarse(name):
        part = next(parts)
        view = pl.coarse(SPACE, {"low": list("0123"), "mid": list("456"), "high": list("789")})
        return pl.Site.of(name, part.inputs, view, view.codebook.argmax(0)[part.classes])

    def noisy(name):
        part = next(parts)
        transition = noise.symmetric(10, 0.3)
        labels = noise.flip(part.classes, transition, generator)
        return pl.Site.of(name, part.inputs, pl.noisy(SPACE, transition), labels)

    def bagged(name):
        part = next(parts)
        made = bag_makers.make_bags(
            part.classes, bag_makers.draw_priors(3, 10, generator), generator
        )
        view = pl.bags(SPACE, made.priors, sizes=made.sizes, minimum_rank=1)
        return pl.Site.of(name, part.inputs[made.index], view, made.bag)

    def candidates(name):
        part = next(parts)
        mask = candidate_makers.uniform(part.classes, 10, 0.3, generator)
        return pl.Site.of(name, part.inputs, pl.candidates(SPACE, mask), mask)

    def subset(name, make):
        part = next(parts)
        keep = part.classes < 4
        names = [str(k) for k in part.classes[keep].tolist()]
        return pl.Site.of(name, part.inputs[keep], make(SPACE, ["3", "1", "0", "2"]), names)

    return pl.Federation.of(
        [
            exact("exact 1"),
            exact("exact 2"),
            coarse("coarse"),
            noisy("noisy"),
            bagged("bags"),
            candidates("candidates 1"),
            candidates("candidates 2"),
            subset("subset", pl.subset),
            subset("private", pl.private_subset),
            pl.Site.of("unlabeled", next(parts).inputs, pl.unlabeled(SPACE)),
        ]
    )


def network(kind):
    generator = torch.Generator().manual_seed(0)
    if kind == "mlp":
        return Network(build("mlp", (1, 8, 8), 10, generator=generator, hidden=(8,)).double())
    return with_body(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2))


def with_body(*layers):
    """A network with some layers of its own."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        body = nn.Sequential(*layers, nn.Flatten())
        for layer in body:
            if hasattr(layer, "reset_parameters"):
                layer.reset_parameters()
        head = nn.Linear(body(torch.zeros(2, 1, 8, 8)).shape[1], 10)
    classifier = build("linear", (1, 8, 8), 10)
    classifier.encoder.body = body
    classifier.head = head
    return Network(classifier.double())


def trained(engine, model, recipe, federation):
    state = start(model, recipe, federation, CPU)
    records = []
    state = run(model, recipe, federation, engine, state, lambda _, record: records.append(record))
    return state, records


def stacked(prepare, group=64, make=Program):
    """The stacked engine with steps that are prepared in some way."""
    engine = Stacked(group)
    engine._programs = Programs(make, prepare)
    return engine


def in_pieces(program):
    """What is compiled, but not compiled."""
    steps = traced(program)
    unread = unread_by(steps, program)
    return Run(rewritten(steps, program).after(steps), unread)


def assert_agree(recipe, federation, model, engine=None):
    reference, expected = trained(Sequential(), model, recipe, federation)
    engine = engine or Stacked()
    state, found = trained(engine, model, recipe, federation)
    assert not engine.remarks
    torch.testing.assert_close(state.theta, reference.theta, rtol=1e-9, atol=1e-10)
    for name, value in reference.buffers.items():
        torch.testing.assert_close(state.buffers[name], value, rtol=1e-9, atol=1e-10)
    for site, kept in reference.sites.items():
        for part in ("method", "personal", "federated", "optimiser", "buffers"):
            for name, value in getattr(kept, part).items():
                other = getattr(state.sites[site], part)[name]
                torch.testing.assert_close(other, value, rtol=1e-8, atol=1e-9)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours["cohort"] == theirs["cohort"]
        for site, metrics in theirs["sites"].items():
            assert ours["sites"][site] == pytest.approx(metrics, rel=1e-6)


@pytest.mark.parametrize("name", sorted(FEDERATED))
def test_every_federated_optimiser_agrees(name, federation):
    local = pl.LocalTraining(lr=0.05, batch_size=8, optimiser=pl.SGD(momentum=0.5))
    batch_norm = "local" if name == "fedbn" else "average"
    recipe = pl.Recipe(rounds=2, federated=FEDERATED[name](), local=local, batch_norm=batch_norm)
    assert_agree(recipe, federation, network("convolutional"))


@pytest.mark.parametrize(
    "local",
    [
        pl.LocalTraining(lr=0.05, batch_size=10, epochs=2, l1=1e-3, clip=0.5),
        pl.LocalTraining(lr=0.01, batch_size=16, optimiser=pl.Adam(), optimiser_state="keep"),
        pl.LocalTraining(lr=0.01, batch_size=7, steps=5, optimiser=pl.AdamW(), last_batch="drop"),
    ],
    ids=["clip and l1", "adam kept", "steps"],
)
def test_every_way_to_train_locally_agrees(local, federation):
    assert_agree(pl.Recipe(rounds=2, local=local, cohort=6), federation, network("mlp"))


def test_small_groups_agree(federation):
    recipe = pl.Recipe(rounds=2, local=pl.LocalTraining(batch_size=8))
    assert_agree(recipe, federation, network("mlp"), Stacked(3))


def test_augmentation_agrees(federation):
    recipe = pl.Recipe(rounds=1, method=pl.Likelihood(augment="rotate"))
    assert_agree(recipe, federation, network("mlp"))


def test_static_batch_norm_agrees(federation):
    recipe = pl.Recipe(rounds=2, batch_norm="static")
    assert_agree(recipe, federation, network("convolutional"))


def test_dropout_agrees(federation):
    method = pl.methods.Potluck(tau=0.0)  # with two passes in a step
    recipe = pl.Recipe(rounds=2, method=method, local=pl.LocalTraining(batch_size=8))
    dropping = with_body(nn.Conv2d(1, 4, 3), nn.Dropout(0.5))
    assert_agree(recipe, federation, dropping)
    assert_agree(recipe, federation, dropping, stacked(in_pieces, make=PartedProgram))


class Noise(nn.Module):
    """A layer that draws for itself."""

    def forward(self, inputs):
        return inputs + torch.randn_like(inputs)


def test_layers_that_draw_for_themselves_are_repeatable(federation):
    recipe, model = pl.Recipe(rounds=2), with_body(nn.Conv2d(1, 4, 3), Noise())
    first, _ = trained(Stacked(), model, recipe, federation)
    second, _ = trained(Stacked(), model, recipe, federation)
    assert torch.equal(first.theta, second.theta)


@pytest.mark.parametrize(
    ("make", "momentum"), [(PartedProgram, 0.0), (Program, 0.5)], ids=["processor", "as on a GPU"]
)
def test_a_compiled_step_agrees_over_rounds_and_cohorts(federation, make, momentum):
    """One program serves the cohorts of all rounds; sites differ in size."""
    exact = pl.Federation.of(federation.sites[:2] + twins(federation.sites[0]))
    local = pl.LocalTraining(lr=0.05, batch_size=8, optimiser=pl.SGD(momentum=momentum))
    engine = stacked(compiled, make=make)
    assert_agree(pl.Recipe(rounds=3, local=local, cohort=3), exact, network("mlp"), engine)
    assert sum(map(len, engine._programs._made.values())) == 1


def twins(site):
    """The same labels at sites of other sizes."""
    return tuple(
        pl.Site.of(f"{site.name} first {n}", site.inputs[:n], site.view, site.symbols[:n])
        for n in (17, 20)
    )


def test_a_step_that_asks_for_a_value_runs_uncompiled_and_says_why(federation):
    class Curious(pl.Likelihood):
        def loss(self, step):
            value, state = super().loss(step)
            assert float(value.detach().sum()) == float(value.detach().sum())
            return value, state

    few = pl.Federation.of(federation.sites[:1])
    recipe = pl.Recipe(rounds=1, method=Curious())
    engine = stacked(in_pieces)
    state, _ = trained(engine, network("mlp"), recipe, few)
    reference, _ = trained(Sequential(), network("mlp"), recipe, few)
    torch.testing.assert_close(state.theta, reference.theta)
    assert "cannot be traced" in engine.remarks[0]
    assert engine.remarks[0].endswith("these steps run uncompiled.")


@pytest.mark.parametrize(
    ("federated", "looks"), [(pl.FedAvg(), False), (pl.FedProx(), True)], ids=["fedavg", "fedprox"]
)
def test_what_no_step_looks_at_is_not_loaded(federation, federated, looks):
    found = []

    def prepare(program):
        run = in_pieces(program)
        received = program.memory["fixed"]["broadcast"]["theta"]
        tensors = enumerate(leaves(program.memory["fixed"]))
        found.extend(number in run.unread for number, leaf in tensors if leaf is received)
        return run

    recipe = pl.Recipe(rounds=1, federated=federated, local=pl.LocalTraining(lr=0.1))
    few = pl.Federation.of(federation.sites[:1])
    trained(stacked(prepare), network("mlp"), recipe, few)
    assert found == [not looks]


def test_sites_with_the_same_images_keep_their_own_labels(federation):
    first = federation.sites[0]
    other = pl.Site.of("other", first.inputs, first.view, first.symbols.flip(0))
    recipe = pl.Recipe(rounds=3, cohort=1, local=pl.LocalTraining(lr=0.1))
    assert_agree(recipe, pl.Federation.of([first, other]), network("mlp"))


def test_groups_are_of_similar_size_and_equally_many(federation):
    made = groups(federation.sites, 4)
    assert [len(group) for group in made] == [4, 4, 2]
    sizes = [len(site) for group in made for site in group]
    assert sizes == sorted(sizes, reverse=True)
    assert [len(group) for group in groups(federation.sites, 9)] == [5, 5]


def test_room_is_spare_in_memory_but_not_in_work():
    need = Room(sites=5, samples=100, symbols=10, pool=90, steps=7)
    room = need.spacious()
    assert room == Room(sites=5, samples=128, symbols=12, pool=96, steps=8)
    assert room.suits(need)
    assert room.suits(Room(3, 128, 12, 96, 8))
    assert not room.suits(Room(2, 100, 10, 90, 7))  # more than half the work would be nobody's
    assert not room.suits(Room(5, 129, 10, 90, 7))
