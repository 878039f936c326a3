"""Every augmentation is a pure function that engines can stack, trace and capture."""

import pytest
import torch
from torch.func import vmap
from torch.fx.experimental.proxy_tensor import make_fx

from potluck.data.augment import AUGMENTATIONS

NAMES = list(AUGMENTATIONS)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(*shape: int) -> torch.Tensor:
    return torch.randint(256, shape, generator=generator(1), dtype=torch.uint8)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("channels", [1, 3])
def test_result_is_in_the_unit_range_and_of_the_same_shape(name, channels):
    augmentation, images = AUGMENTATIONS[name](), batch(200, channels, 12, 16)
    draws = augmentation.draw(generator(), (200,), (channels, 12, 16))
    before = images.clone()
    result = augmentation.apply(images, draws)
    assert result.shape == images.shape
    assert result.dtype == torch.float32
    assert result.min() >= 0
    assert result.max() <= 1
    assert torch.equal(images, before)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_floats_give_what_bytes_give_and_keep_their_type(name, dtype):
    augmentation = AUGMENTATIONS[name]()
    images = batch(40, 3, 12, 16) // 128 * 255  # black and white is exact in every type
    draws = augmentation.draw(generator(), (40,), (3, 12, 16))
    result = augmentation.apply((images / 255).to(dtype), draws)
    assert result.dtype == dtype
    expected = augmentation.apply(images, draws).to(dtype)
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_draws_have_the_shape_asked_for_and_follow_the_generator(name):
    augmentation = AUGMENTATIONS[name]()
    first, again, other = (
        augmentation.draw(generator(seed), (5, 4), (3, 12, 16)) for seed in (3, 3, 4)
    )
    for key, tensor in first.items():
        assert tensor.shape[:2] == (5, 4)
        assert torch.equal(tensor, again[key])
        assert not torch.equal(tensor, other[key])


@pytest.mark.parametrize("name", NAMES)
def test_an_image_is_augmented_alike_whatever_else_is_in_the_batch(name):
    augmentation, images = AUGMENTATIONS[name](), batch(16, 3, 12, 16)
    draws = augmentation.draw(generator(), (16,), (3, 12, 16))
    together = augmentation.apply(images, draws)
    assert torch.equal(together, augmentation.apply(images, draws))
    for i in range(16):
        alone = augmentation.apply(images[i : i + 1], {k: v[i : i + 1] for k, v in draws.items()})
        torch.testing.assert_close(alone[0], together[i])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("channels", [1, 3])
def test_stacking_sites_with_vmap_equals_a_loop_over_sites(name, channels):
    augmentation, images = AUGMENTATIONS[name](), batch(3, 20, channels, 12, 16)
    draws = augmentation.draw(generator(), (3, 20), (channels, 12, 16))
    stacked = vmap(augmentation.apply)(images, draws)
    for site in range(3):
        own = {key: tensor[site] for key, tensor in draws.items()}
        torch.testing.assert_close(stacked[site], augmentation.apply(images[site], own))


@pytest.mark.parametrize("name", NAMES)
def test_traces_without_looking_at_the_data(name):
    augmentation, images = AUGMENTATIONS[name](), batch(20, 3, 12, 16)
    draws, others = (augmentation.draw(generator(seed), (20,), (3, 12, 16)) for seed in (0, 1))
    # Fake tensors hold no values: a branch on data, .item() or a boolean index would raise.
    traced = make_fx(lambda x, d: augmentation.apply(x, d), tracing_mode="fake")(images, draws)
    torch.testing.assert_close(traced(images, others), augmentation.apply(images, others))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", NAMES)
def test_a_captured_graph_replays_on_new_images_and_draws(name):
    augmentation = AUGMENTATIONS[name]()
    images = [batch(64, 3, 32, 32).cuda(), batch(64, 3, 32, 32).flip(0).cuda()]
    draws = [
        {k: v.cuda() for k, v in augmentation.draw(generator(s), (64,), (3, 32, 32)).items()}
        for s in (0, 1)
    ]
    expected = augmentation.apply(images[1], draws[1])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = augmentation.apply(images[0], draws[0])
    images[0].copy_(images[1])
    for key, tensor in draws[0].items():
        tensor.copy_(draws[1][key])
    graph.replay()
    torch.testing.assert_close(result, expected)
