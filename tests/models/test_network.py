"""A model as a function of one vector: layouts, forward passes, and the way back to a module."""

import pytest
import torch
from torch import nn

from potluck.errors import PotluckError
from potluck.models import Classifier, as_classifier, build
from potluck.models.network import HEAD, Layout, Network, infer_batched


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def normed(dropout=0.0):
    torch.manual_seed(0)
    encoder = nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(dropout), nn.Linear(6, 5)
    )
    return Classifier(encoder, nn.Linear(5, 3))


def batch(count=7):
    return torch.randn(count, 4, generator=seeded())


MODELS = {
    "linear": ((5,), {}),
    "mlp": ((1, 8, 8), {"hidden": (9, 4)}),
    "cnn": ((3, 16, 16), {}),
    "resnet18": ((3, 16, 16), {}),
}


@pytest.mark.parametrize("name", MODELS)
def test_flatten_and_unflatten_are_inverses(name):
    shape, options = MODELS[name]
    classifier = build(name, shape, 4, generator=seeded(), **options)
    layout = Network(classifier).layout
    parameters = dict(classifier.named_parameters())
    theta = layout.flatten(parameters)
    assert theta.shape == (len(layout),) == (sum(p.numel() for p in parameters.values()),)
    parts = layout.unflatten(theta)
    assert list(parts) == list(parameters)
    assert all(torch.equal(parts[key], parameters[key]) for key in parameters)
    other = torch.randn(len(layout), generator=seeded(1))
    assert torch.equal(layout.flatten(layout.unflatten(other)), other)


def test_a_layout_of_tensors_keeps_their_order():
    tensors = {"b": torch.ones(2, 3), "a": torch.zeros(()), "c": torch.full((1,), 5.0)}
    layout = Layout.of(tensors)
    assert layout.names == ("b", "a", "c")
    assert len(layout) == 8
    assert layout.flatten(tensors).tolist() == [1] * 6 + [0, 5]
    assert len(Layout.of({})) == 0
    assert Layout.of({}).unflatten(torch.zeros(0)) == {}


def test_unflatten_gives_views_so_that_gradients_reach_the_vector():
    layout = Layout.of({"a": torch.zeros(2), "b": torch.zeros(2)})
    theta = torch.ones(4, requires_grad=True)
    (3 * layout.unflatten(theta)["b"].sum()).backward()
    assert theta.grad.tolist() == [0, 0, 3, 3]


def test_mask_marks_whole_parameters():
    layout = Network(normed()).layout
    mask = layout.mask(lambda name: name in HEAD)
    assert int(mask.sum()) == 5 * 3 + 3
    head = layout.flatten(
        {n: torch.full(s, n in HEAD) for n, s in zip(layout.names, layout.shapes, strict=True)}
    )
    assert torch.equal(mask, head)


def test_batch_norm_layers_are_known():
    assert Network(normed()).layout.norms == {"encoder.1"}


def test_entries_pick_the_encoder_and_some_rows_in_the_order_asked():
    network = Network(normed())
    theta, _ = network.initial()
    classes = torch.tensor([2, 0])
    part = network.layout.narrowed(2).unflatten(theta[network.layout.entries(classes)])
    whole = network.layout.unflatten(theta)
    for name in network.layout.names:
        expected = whole[name][classes] if name in HEAD else whole[name]
        assert torch.equal(part[name], expected), name


def test_entries_of_all_classes_are_all_entries():
    layout = Network(normed()).layout
    assert torch.equal(layout.entries(torch.arange(3)), torch.arange(len(layout)))


def test_a_head_without_bias_narrows_too():
    network = Network(Classifier(nn.Flatten(), nn.Linear(4, 3, bias=False)))
    theta, buffers = network.initial()
    narrow = network.narrowed(1)
    entries = network.layout.entries(torch.tensor([1]))
    logits = narrow.infer(theta[entries], buffers, batch())
    assert torch.allclose(logits, network.infer(theta, buffers, batch())[:, [1]])


def test_a_narrowed_network_scores_its_classes_as_the_whole_one_does():
    network = Network(normed())
    theta, buffers = network.initial()
    classes = torch.tensor([2, 0])
    narrow, part = network.narrowed(2), theta[network.layout.entries(classes)]
    whole = network.infer(theta, buffers, batch())
    assert torch.allclose(narrow.infer(part, buffers, batch()), whole[:, classes])
    assert network.layout.shapes[-1] == (3,)  # the whole one is as before


def test_inference_equals_the_module_in_evaluation_mode():
    module = normed(dropout=0.5)
    network = Network(module)
    theta, buffers = network.initial()
    before = {name: value.clone() for name, value in buffers.items()}
    assert torch.equal(network.infer(theta, buffers, batch()), module.eval()(batch()))
    assert all(torch.equal(before[name], buffers[name]) for name in buffers)


def test_training_equals_the_module_in_training_mode_and_moves_the_statistics_in_place():
    module = normed()
    network = Network(module)
    theta, buffers = network.initial()
    held = dict(buffers)
    expected = module.train()(batch())
    assert torch.equal(network.train(theta, buffers, batch()), expected)
    for name, value in module.named_buffers():
        assert torch.equal(buffers[name], value), name
        assert buffers[name] is held[name]
    assert buffers["encoder.1.num_batches_tracked"] == 1


def test_training_drops_out_by_the_seed_and_inference_does_not():
    network = Network(normed(dropout=0.5))
    theta, buffers = network.initial()
    first, again, other = (
        network.train(theta, copies(buffers), batch(), torch.tensor(seed, dtype=torch.int32))
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    first, second = (network.infer(theta, buffers, batch()) for _ in range(2))
    assert torch.equal(first, second)


def test_training_with_dropout_needs_a_seed():
    network = Network(normed(dropout=0.5))
    assert network.drops
    with pytest.raises(ValueError, match="a training pass needs a seed"):
        network.train(*network.initial(), batch())


def test_a_seed_is_no_part_of_the_model():
    network = Network(normed(dropout=0.5))
    _, buffers = network.initial()
    assert buffers.keys() == dict(normed(dropout=0.5).named_buffers()).keys()


@pytest.mark.parametrize(
    ("layer", "draws"),
    [(nn.ReLU(), False), (nn.Dropout(0.5), False), (nn.RReLU(), True), (nn.AlphaDropout(), True)],
)
def test_it_is_known_whether_layers_draw_for_themselves(layer, draws):
    network = Network(Classifier(nn.Sequential(nn.Linear(4, 5), layer), nn.Linear(5, 3)))
    before = torch.get_rng_state()
    assert network.draws(torch.Size((4,))) == draws
    assert network.twin().draws(torch.Size((4,))) == draws
    assert torch.equal(before, torch.get_rng_state())


def test_a_twin_computes_the_same_with_modules_of_its_own():
    network = Network(normed(dropout=0.5)).channels_last
    network.narrowed(2)
    twin, (theta, buffers) = network.twin(), network.initial()
    seed = torch.tensor(3, dtype=torch.int32)
    for one, other in ((network, twin), (network.narrowed(2), twin.narrowed(2))):
        assert one._training is not other._training
        assert one._inference.encoder is not other._inference.encoder
        part = theta if one is network else theta[network.layout.entries(torch.tensor([0, 1]))]
        found, expected = (n.train(part, copies(buffers), batch(), seed) for n in (other, one))
        assert torch.equal(found, expected)
    assert twin._channels_last


def copies(tensors):
    return {name: value.clone() for name, value in tensors.items()}


def test_measuring_normalises_by_the_batch_but_does_not_drop_out():
    theta, buffers = Network(normed()).initial()
    expected = Network(normed()).train(theta, {n: v.clone() for n, v in buffers.items()}, batch())
    dropping = Network(normed(dropout=0.5))
    assert torch.equal(dropping.measure(theta, dict(buffers), batch()), expected)


def test_the_given_model_is_copied():
    module = normed()
    network = Network(module)
    theta, buffers = network.initial()
    network.train(theta + 1, buffers, batch())
    theta += 1
    untouched = normed()
    for one, other in zip(
        module.state_dict().values(), untouched.state_dict().values(), strict=True
    ):
        assert torch.equal(one, other)
    again, _ = network.initial()
    assert torch.equal(again, network.layout.flatten(dict(untouched.named_parameters())))


def test_the_vector_and_the_buffers_decide_not_the_modules_own_values():
    network, other = Network(normed()), normed()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(2)
        other.encoder[1].running_mean.add_(0.3)
    theta = network.layout.flatten(dict(other.named_parameters()))
    buffers = dict(other.named_buffers())
    assert torch.equal(network.infer(theta, buffers, batch()), other.eval()(batch()))
    module = network.module(theta, buffers)
    assert not module.training
    assert torch.equal(module(batch()), other(batch()))


def test_the_module_is_a_copy():
    network = Network(normed())
    theta, buffers = network.initial()
    module = network.module(theta, buffers)
    with torch.no_grad():
        module.head.weight.zero_()
    assert theta[network.layout.mask(lambda name: name in HEAD)].abs().max() > 0
    assert torch.equal(network.infer(*network.initial(), batch()), normed().eval()(batch()))


class Tied(nn.Module):
    """Uses one layer twice, and has a buffer that is not saved."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = self.first
        self.register_buffer("scale", torch.full((4,), 2.0), persistent=False)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(torch.tanh(self.second(torch.tanh(self.first(x)))) * self.scale)


def test_tied_layers_and_buffers_that_are_not_saved_survive_the_way_back():
    torch.manual_seed(0)
    model = Tied()
    network = Network(as_classifier(model))
    theta, buffers = network.initial()
    assert len(network.layout) == 4 * 4 + 4 + 4 * 3 + 3  # the tied layer once
    shifted, wider = theta + 0.1, {name: value + 1 for name, value in buffers.items()}
    module = network.module(shifted, wider)
    assert torch.equal(module(batch()), network.infer(shifted, wider, batch()))
    assert module.encoder.scale.tolist() == [3] * 4


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_batched_inference_equals_inference(size):
    network = Network(normed())
    theta, buffers = network.initial()
    theta.requires_grad_()
    logits = infer_batched(network, theta, buffers, batch(), size)
    assert torch.allclose(logits, network.infer(theta, buffers, batch()), atol=1e-6)
    assert not logits.requires_grad


def test_batch_norm_of_a_single_sample_is_explained():
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.BatchNorm1d(3))
    network = Network(Classifier(encoder, nn.Linear(3, 2)))
    with pytest.raises(PotluckError, match=r'single sample.*local\.last_batch = "drop"'):
        network.train(*network.initial(), torch.zeros(1, 2, 2))


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_last_computes_the_same_and_its_images_lie_so(channels):
    network = Network(build("cnn", (channels, 8, 8), 4, dropout=0.0))
    theta, buffers = network.initial()
    images = torch.rand(5, channels, 8, 8, generator=seeded())
    quick, seen = network.channels_last, []
    layer = next(m for m in quick._training.modules() if isinstance(m, nn.Conv2d))
    handle = layer.register_forward_hook(lambda _, given, made: seen.append((given[0], made)))
    found = quick.train(theta, buffers, images)
    handle.remove()
    assert torch.allclose(found, network.train(theta, buffers, images), atol=1e-6)
    assert all(image.stride(1) == 1 for image in seen[0])  # also where there is one channel
    assert torch.allclose(infer_batched(network, theta, buffers, images, 2), found, atol=1e-6)
