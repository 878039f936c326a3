import inspect
import re

import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from potluck.errors import PotluckError
from potluck.models import MODELS, Classifier, batch_norm_layers, build

CONVOLUTIONAL = [name for name in MODELS if name not in ("linear", "mlp")]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def images(*shape):
    return torch.randint(256, shape, dtype=torch.uint8, generator=seeded(9))


# Shapes and values


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_bytes_and_the_same_floats_give_equal_scores_of_the_right_shape(name, channels):
    model = build(name, (channels, 32, 32), 5, mean=0.4, std=[0.2] * channels).eval()
    x = images(2, channels, 32, 32)
    with torch.no_grad():
        scores = model(x)
        assert torch.equal(model(x / 255), scores)
        assert model.encoder(x).shape == (2, model.features)
    assert scores.shape == (2, 5)
    assert scores.isfinite().all()
    assert scores[0].ne(scores[1]).any()


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_tables_suit_the_fully_connected_models(name):
    model = build(name, (6,), 3, mean=torch.arange(6.0), std=2.0)
    assert model(torch.ones(4, 6)).shape == (4, 3)


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_small_and_oblong_images_suit_the_convolutional_models(name):
    model = build(name, (1, 8, 11), 4).eval()
    assert model(images(2, 1, 8, 11)).shape == (2, 4)


def test_linear_is_softmax_regression_on_standardised_inputs():
    model = build("linear", (3,), 2, mean=[1.0, 2.0, 3.0], std=2.0)
    x = torch.tensor([[3.0, 2.0, -1.0]])
    wanted = torch.tensor([[1.0, 0.0, -2.0]]) @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(model(x), wanted)


@pytest.mark.parametrize(
    ("stem", "sides"), [("7x7", [16, 16, 8, 4, 2]), ("3x3", [32, 32, 16, 8, 4])]
)
def test_resnet_stem_sets_the_resolution_of_the_stages(stem, sides):
    body = build("resnet18", (3, 32, 32), 2, stem=stem).eval().encoder.body
    x, seen = torch.rand(1, 3, 32, 32, generator=seeded()), {}
    with torch.no_grad():
        for name, layer in body.named_children():
            x = layer(x)
            seen[name] = x.shape[-1]
    assert [seen[name] for name in ("conv1", "layer1", "layer2", "layer3", "layer4")] == sides


@pytest.mark.parametrize(("stride", "side"), [(1, 2), (2, 1)])
def test_mobilenet_stem_stride_sets_the_final_resolution(stride, side):
    body = build("mobilenet_v2", (3, 32, 32), 2, stem_stride=stride).eval().encoder.body
    with torch.no_grad():
        assert body.features(torch.rand(1, 3, 32, 32)).shape == (1, 1280, side, side)


# Sizes


@pytest.mark.parametrize(
    ("name", "shape", "classes", "options", "parameters"),
    [
        # As torchvision counts them.
        ("resnet18", (3, 224, 224), 1000, {}, 11_689_512),
        ("resnet34", (3, 224, 224), 1000, {}, 21_797_672),
        ("resnet50", (3, 224, 224), 1000, {}, 25_557_032),
        ("mobilenet_v2", (3, 224, 224), 1000, {"stem_stride": 2}, 3_504_872),
        # The stem's 7·7 becomes 3·3; group normalisation has as many parameters as batch.
        ("resnet18", (3, 32, 32), 1000, {"stem": "3x3"}, 11_689_512 - 3 * 64 * (49 - 9)),
        ("resnet18", (1, 32, 32), 1000, {"norm": "group"}, 11_689_512 - 2 * 64 * 49),
        # By hand, layer by layer.
        ("linear", (3, 8, 8), 10, {}, 1930),
        ("mlp", (12,), 5, {}, 13 * 128 + 129 * 5),
        ("mlp", (1, 2, 6), 5, {"hidden": [7, 4], "dropout": 0.1}, 13 * 7 + 8 * 4 + 5 * 5),
        ("mlp", (12,), 5, {"hidden": ()}, 13 * 5),
        (
            "lenet",
            (3, 28, 28),
            10,
            {},
            (76 * 64 + 128)
            + (1601 * 64 + 128)
            + (1601 * 128 + 256)
            + (6273 * 2048 + 4096)
            + (2049 * 512 + 1024)
            + 513 * 10,
        ),
        ("cnn", (3, 32, 32), 10, {}, 28 * 32 + 289 * 32 + 289 * 64 + 577 * 64 + 4097 * 512 + 5130),
    ],
)
def test_parameter_counts_are_the_known_ones(name, shape, classes, options, parameters):
    with torch.device("meta"):  # build makes models on the CPU whatever the default device is
        model = build(name, shape, classes, **options)
    assert count(model) == parameters
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}


def test_lenet_at_28_is_the_papers_table_d2():
    body = build("lenet", (3, 28, 28), 10).encoder.body
    dense = [(m.in_features, m.out_features) for m in body if isinstance(m, nn.Linear)]
    assert dense == [(6272, 2048), (2048, 512)]
    assert [type(layer).__name__ for layer in body] == [
        *("Conv2d", "BatchNorm2d", "ReLU", "MaxPool2d"),
        *("Conv2d", "BatchNorm2d", "ReLU", "MaxPool2d"),
        *("Conv2d", "BatchNorm2d", "ReLU", "Flatten"),
        *("Linear", "BatchNorm1d", "ReLU"),
        *("Linear", "BatchNorm1d", "ReLU"),
    ]


@pytest.mark.parametrize(
    ("width", "stem", "features", "last"), [(0.35, 16, 1280, 112), (1.4, 48, 1792, 448)]
)
def test_mobilenet_width_rounds_channels_to_eights_and_keeps_the_features(
    width, stem, features, last
):
    model = build("mobilenet_v2", (3, 32, 32), 2, width=width)
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert convolutions[0].out_channels == stem
    assert (convolutions[-1].in_channels, model.features) == (last, features)


def test_names_and_order_of_layers_are_those_of_published_weights():
    resnet = set(build("resnet50", (3, 32, 32), 2).state_dict())
    mobilenet = set(build("mobilenet_v2", (3, 32, 32), 2).state_dict())
    assert {
        "encoder.body.conv1.weight",
        "encoder.body.bn1.running_mean",
        "encoder.body.layer1.0.downsample.0.weight",
        "encoder.body.layer4.2.bn3.bias",
        "head.weight",
    } <= resnet
    assert {
        "encoder.body.features.0.0.weight",
        "encoder.body.features.1.conv.1.weight",
        "encoder.body.features.2.conv.3.running_var",
        "encoder.body.features.18.1.weight",
        "head.bias",
    } <= mobilenet
    # ResNet-50 has 53 convolutions each with six tensors (weight and five of BatchNorm).
    assert len(resnet) == 53 * 6 + 2 + 2
    assert len(mobilenet) == 52 * 6 + 2 + 2


# Randomness


@pytest.mark.parametrize("name", ["mlp", "cnn", "mobilenet_v2"])
def test_parameters_come_from_the_generator_alone(name):
    def parameters(seed):
        return torch.cat(
            [p.flatten() for p in build(name, (3, 8, 8), 4, generator=seed).parameters()]
        )

    torch.rand(3)
    state = torch.get_rng_state()
    first = parameters(seeded(5))
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    assert torch.equal(parameters(seeded(5)), first)
    assert not torch.equal(parameters(seeded(6)), first)
    assert torch.equal(parameters(None), parameters(None))


def test_one_generator_gives_a_new_model_each_time():
    generator = seeded()
    first, second = (build("linear", (4,), 3, generator=generator) for _ in range(2))
    assert not torch.equal(first.head.weight, second.head.weight)


def test_a_refused_model_leaves_the_global_random_state_alone():
    state = torch.get_rng_state()
    with pytest.raises(PotluckError):
        build("resnet18", (20,), 2)
    assert torch.equal(torch.get_rng_state(), state)


# Training


@pytest.mark.parametrize("name", MODELS)
def test_gradient_reaches_every_parameter(name):
    model = build(name, (1, 16, 16), 3, generator=seeded())
    target = torch.arange(8) % 3
    nn.functional.cross_entropy(model(images(8, 1, 16, 16)), target).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.any(), parameter_name


def test_batch_norm_keeps_running_statistics_and_group_norm_has_none():
    model = build("resnet18", (3, 8, 8), 3)
    layers = batch_norm_layers(model)
    assert len(layers) == 20
    assert "encoder.body.layer2.0.downsample.1" in layers
    assert all(layer.track_running_stats for layer in layers.values())
    model(images(4, 3, 8, 8))
    assert layers["encoder.body.bn1"].num_batches_tracked == 1
    assert layers["encoder.body.bn1"].running_mean.any()
    grouped = build("resnet18", (3, 8, 8), 3, norm="group")
    assert batch_norm_layers(grouped) == {}
    assert sum(isinstance(layer, nn.GroupNorm) for layer in grouped.modules()) == 20


def test_dropout_is_there_only_when_asked_for():
    def layers(*arguments, **options):
        modules = build(*arguments, **options).modules()
        return [layer.p for layer in modules if isinstance(layer, nn.Dropout)]

    assert layers("mlp", (4,), 2, hidden=(3, 3)) == []
    assert layers("mlp", (4,), 2, hidden=(3, 3), dropout=0.3) == [0.3, 0.3]
    assert layers("cnn", (1, 8, 8), 2) == [0.5]
    assert layers("cnn", (1, 8, 8), 2, dropout=0) == []
    assert layers("mobilenet_v2", (1, 8, 8), 2) == [0.2]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mlp", {}),
        ("lenet", {}),
        ("cnn", {"dropout": 0.0}),
        ("resnet18", {}),
        ("resnet18", {"norm": "group", "stem": "3x3"}),
        ("mobilenet_v2", {"dropout": 0.0}),
    ],
)
def test_stacked_sites_compute_what_each_site_computes_alone(name, options):
    sites = [build(name, (1, 8, 8), 3, generator=seeded(i), **options) for i in range(2)]
    x = images(2, 6, 1, 8, 8)
    parameters, buffers = stack_module_state(sites)

    def forward(parameters, buffers, batch):
        return functional_call(sites[0], (parameters, buffers), (batch,))

    stacked = vmap(forward)(parameters, buffers, x)
    alone = torch.stack([site(batch) for site, batch in zip(sites, x, strict=True)])
    torch.testing.assert_close(stacked, alone, rtol=1e-3, atol=1e-4)
    # Training mode: the running statistics of each site moved as they do alone.
    for key, value in buffers.items():
        each = torch.stack([site.get_buffer(key) for site in sites])
        torch.testing.assert_close(value, each, rtol=1e-3, atol=1e-4)


# What a user may ask for


def test_every_option_has_a_type_and_a_default_to_be_read():
    for builder in MODELS.values():
        shape, *options = inspect.signature(builder).parameters.values()
        assert shape.name == "input_shape"
        for option in options:
            assert option.kind is inspect.Parameter.KEYWORD_ONLY
            assert option.default is not inspect.Parameter.empty
            assert not isinstance(option.annotation, str)
            assert option.annotation is not inspect.Parameter.empty


@pytest.mark.parametrize(
    ("name", "shape", "options", "message"),
    [
        ("resnt18", (3, 8, 8), {}, 'unknown model "resnt18"; did you mean "resnet18"? Known: lin'),
        (
            "mlp",
            (4,),
            {"hiden": (3,)},
            'model "mlp": unknown option "hiden"; did you mean "hidden"',
        ),
        ("linear", (4,), {"hidden": (3,)}, 'model "linear" has no options; remove "hidden".'),
        (
            "resnet18",
            (20,),
            {},
            'model "resnet18": needs images (channels, height, width), but the',
        ),
        ("lenet", (3, 8, 3), {}, 'model "lenet": needs images of at least 4×4, but these are 8×3'),
        ("mlp", (8, 8), {}, 'model "mlp": input shape (8, 8) is neither an image'),
        ("resnet34", (3, 8, 8), {"stem": "5x5"}, 'model "resnet34": unknown stem "5x5"'),
        ("resnet50", (3, 8, 8), {"norm": "bach"}, 'unknown norm "bach"; did you mean "batch"?'),
        ("mlp", (4,), {"hidden": 128}, "hidden must be a list of positive layer widths, not 128"),
        ("mlp", (4,), {"hidden": [8, 0]}, "hidden must be a list of positive layer widths"),
        ("cnn", (3, 8, 8), {"dropout": 1.0}, "dropout must be at least 0 and below 1, not 1.0"),
        ("mobilenet_v2", (3, 8, 8), {"stem_stride": 3}, "stem_stride must be 1 or 2, not 3"),
        ("mobilenet_v2", (3, 8, 8), {"width": 0.0}, "width must be positive, not 0.0"),
        ("cnn", (3, 8, 8), {"mean": [0, 0]}, 'model "cnn": mean has 2 values'),
    ],
)
def test_what_cannot_be_built_is_explained(name, shape, options, message):
    with pytest.raises(PotluckError, match=re.escape(message)):
        build(name, shape, 3, **options)


def test_a_model_needs_a_class():
    with pytest.raises(PotluckError, match="at least one class, not 0"):
        build("linear", (4,), 0)


def test_every_model_is_a_classifier_that_starts_by_normalising():
    model = build("mlp", (4,), 3, mean=1.0)
    assert isinstance(model, Classifier)
    assert model.state_dict()["encoder.normalise.mean"].tolist() == [1.0] * 4
