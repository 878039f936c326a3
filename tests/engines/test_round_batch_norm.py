"""Where batch-norm statistics come from: averaged, local, or sums over everybody's samples."""

import pytest
import torch
from by_hand import CPU, play, whole
from torch import nn

import potluck as pl
from potluck.engines import evaluate, start
from potluck.engines.static_norm import norm_sums, static_buffers
from potluck.errors import PotluckError
from potluck.models import Classifier
from potluck.models.network import Network

SPACE = pl.LabelSpace(("zero", "one"))


def shallow():
    """Batch norm as the first layer, so that its statistics are those of the inputs."""
    torch.manual_seed(4)  # the model's own start, not the round's randomness
    return Network(Classifier(nn.BatchNorm1d(2), nn.Linear(2, 2)).double())


def deep(dropout=0.0):
    torch.manual_seed(4)
    encoder = nn.Sequential(
        nn.Conv2d(1, 3, 3),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Flatten(),
        nn.Linear(12, 4),
        nn.BatchNorm1d(4),
    )
    return Network(Classifier(encoder, nn.Linear(4, 2)).double())


def images(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 1, 4, 4, generator=generator).double()


def site(name, inputs):
    return pl.Site.of(name, inputs, pl.exact(SPACE), torch.arange(len(inputs)) % 2)


def table(count, shift, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 2, generator=generator).double() * (1 + shift) + shift


def federation(**changes):
    return pl.Federation.of(
        [site("small", table(4, 0.0, 1)), site("large", table(12, 3.0, 2))], **changes
    )


def moved(running, batch, momentum=0.1):
    """One update of running statistics by a batch: torch's rule, with the unbiased variance."""
    mean, variance = running
    return (
        (1 - momentum) * mean + momentum * batch.mean(0),
        (1 - momentum) * variance + momentum * batch.var(0, correction=1),
    )


def test_average_takes_the_weighted_mean_of_the_statistics():
    sites = federation().sites
    states, _ = play(shallow(), pl.Recipe(rounds=2, local=whole(steps=1)), federation(), rounds=2)
    running = (torch.zeros(2).double(), torch.ones(2).double())
    for state in states:
        small, large = (moved(running, s.inputs) for s in sites)
        running = tuple(0.25 * a + 0.75 * b for a, b in zip(small, large, strict=True))
        assert torch.allclose(state.buffers["encoder.running_mean"], running[0], atol=1e-14)
        assert torch.allclose(state.buffers["encoder.running_var"], running[1], atol=1e-14)
        assert not any(kept.buffers for kept in state.sites.values())
    assert states[-1].buffers["encoder.num_batches_tracked"] == 2


def test_local_lets_each_site_go_on_from_its_own_statistics():
    recipe = pl.Recipe(rounds=3, local=whole(steps=2), batch_norm="local")
    states, _ = play(shallow(), recipe, federation(), rounds=3)
    for s in federation().sites:
        running = (torch.zeros(2).double(), torch.ones(2).double())
        for state in states:
            running = moved(moved(running, s.inputs), s.inputs)
            kept = state.sites[s.name].buffers
            assert torch.allclose(kept["encoder.running_mean"], running[0], atol=1e-14)
            assert torch.allclose(kept["encoder.running_var"], running[1], atol=1e-14)


def test_local_evaluates_the_global_model_with_the_average_of_the_sites_statistics():
    recipe = pl.Recipe(rounds=2, local=whole(steps=1), batch_norm="local")
    test = (table(9, 1.0, 3), torch.arange(9) % 2)
    joint = federation(test=test)
    trained = pl.train(joint, recipe, Classifier(nn.BatchNorm1d(2), nn.Linear(2, 2)).double())
    state = trained.state
    means = [state.sites[s.name].buffers["encoder.running_mean"] for s in joint.sites]
    assert torch.allclose(state.buffers["encoder.running_mean"], 0.25 * means[0] + 0.75 * means[1])
    expected = evaluate(trained.network, state.theta, state.buffers, *test)
    assert trained.history[-1]["test"]["loss"] == expected.loss


def test_static_is_exactly_the_statistics_of_the_pooled_samples():
    server = site("server", table(5, -2.0, 7))
    joint = federation(server=server)
    recipe = pl.Recipe(rounds=1, local=whole(steps=1), batch_norm="static")
    states, _ = play(shallow(), recipe, joint)
    pooled = torch.cat([s.inputs for s in (*joint.sites, server)])
    buffers = states[0].buffers
    assert torch.allclose(buffers["encoder.running_mean"], pooled.mean(0), atol=1e-13)
    assert torch.allclose(buffers["encoder.running_var"], pooled.var(0, correction=1), atol=1e-13)


def test_static_on_one_site_and_one_batch_equals_torchs_own_statistics_in_every_layer():
    network, inputs = deep(), images(40)
    theta, buffers = network.initial()
    found = static_buffers(buffers, [norm_sums(network, theta, buffers, inputs)])
    module = network.module(theta, buffers).train()
    norms = [
        layer for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._NormBase)
    ]
    for layer in norms:
        layer.momentum = 1.0
    module(inputs)
    for name, value in module.named_buffers():
        if not name.endswith("num_batches_tracked"):
            assert torch.allclose(found[name], value, atol=1e-12), name


def test_static_belongs_to_the_model_after_the_round():
    joint = pl.Federation.of([site("a", images(10, 1)), site("b", images(7, 2))])
    recipe = pl.Recipe(rounds=1, local=whole(0.5, steps=2), batch_norm="static")
    states, _ = play(deep(), recipe, joint)
    state = states[0]
    sums = [norm_sums(deep(), state.theta, state.buffers, s.inputs) for s in joint.sites]
    again = static_buffers(state.buffers, sums)
    assert all(torch.equal(again[name], state.buffers[name]) for name in again)


def test_measuring_changes_nothing_and_draws_nothing():
    network, inputs = deep(dropout=0.5), images(20)
    theta, buffers = network.initial()
    before = {name: value.clone() for name, value in buffers.items()}
    stream = torch.get_rng_state()
    first = norm_sums(network, theta, buffers, inputs)
    second = norm_sums(network, theta, buffers, inputs)
    assert torch.equal(stream, torch.get_rng_state())
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert all(torch.equal(before[name], buffers[name]) for name in buffers)
    assert not any(m._forward_pre_hooks for m in network.measuring_module.modules())


@pytest.mark.parametrize("count", [2, 255, 256, 257, 513])
def test_no_sample_is_lost_or_left_alone_in_a_chunk(count):
    network, inputs = shallow(), table(count, 1.0, 3)
    theta, buffers = network.initial()
    sums = norm_sums(network, theta, buffers, inputs)
    assert sums["encoder.count"] == count
    assert torch.allclose(sums["encoder.sum"], inputs.sum(0))
    assert torch.allclose(sums["encoder.square"], (inputs**2).sum(0))


def test_a_layer_without_running_statistics_is_left_alone():
    head = nn.Linear(2, 2)
    module = Classifier(nn.BatchNorm1d(2, track_running_stats=False), head).double()
    recipe = pl.Recipe(rounds=1, local=whole(), batch_norm="static")
    states, _ = play(Network(module), recipe, federation())
    assert states[0].buffers == {}


def test_fedbn_wants_local_statistics():
    recipe = pl.Recipe(rounds=1, federated=pl.FedBN())
    with pytest.raises(
        PotluckError, match=r'fedbn.*but batch_norm is "average"; set batch_norm = '
    ):
        recipe.check(federation())
    pl.Recipe(rounds=1, federated=pl.FedBN(), batch_norm="local").check(federation())


def test_a_model_without_batch_norm_runs_in_every_mode():
    network = Network(Classifier(nn.Identity(), nn.Linear(2, 2)).double())
    ends = []
    for mode in ("average", "local", "static"):
        recipe = pl.Recipe(rounds=1, local=whole(), batch_norm=mode)
        state = start(network, recipe, federation(), CPU)
        ends.append(play(network, recipe, federation(), state=state)[0][0].theta)
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])
