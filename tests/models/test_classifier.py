import pytest
import torch
from torch import nn

from potluck.errors import PotluckError
from potluck.models import Classifier, as_classifier, batch_norm_layers


class Branching(nn.Module):
    """Not a Sequential, with its head registered first and nested."""

    def __init__(self):
        super().__init__()
        self.out = nn.ModuleDict({"fc": nn.Linear(6, 3, bias=False)})
        self.left = nn.Linear(4, 6)
        self.right = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x):
        return self.out["fc"](self.norm(self.left(x).relu() * self.right(x)))


def test_classifier_composes_encoder_and_head_and_knows_its_sizes():
    model = Classifier(nn.Linear(4, 6), nn.Linear(6, 3))
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    assert torch.equal(model(x), model.head(model.encoder(x)))
    assert (model.features, model.classes) == (6, 3)
    assert list(model.state_dict()) == [
        "encoder.weight",
        "encoder.bias",
        "head.weight",
        "head.bias",
    ]


@pytest.mark.parametrize(
    ("module", "head", "features"),
    [
        (nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), None, 5),
        (nn.Sequential(nn.Linear(4, 5), nn.Sequential(nn.Tanh(), nn.Linear(5, 3))), "1.1", 5),
        (Branching(), "out.fc", 6),
        (nn.Linear(4, 3), None, 4),
    ],
    ids=["last", "dotted", "branching", "linear"],
)
def test_as_classifier_computes_what_the_module_computes(module, head, features):
    x = torch.randn(7, 4, generator=torch.Generator().manual_seed(2))
    module.eval()
    split = as_classifier(module, head)
    assert torch.equal(split(x), module(x))
    assert split.encoder(x).shape == (7, features)
    assert (split.features, split.classes) == (features, 3)
    names = {name for name, _ in split.named_parameters() if not name.startswith("encoder.")}
    assert names <= {"head.weight", "head.bias"}
    assert "head.weight" in names


def test_as_classifier_leaves_the_callers_module_untouched():
    module = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    split = as_classifier(module)
    with torch.no_grad():
        for parameter in split.parameters():
            parameter.zero_()
    after = module.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize("head", [None, "head"])
def test_a_classifier_comes_back_as_it_is(head):
    model = Classifier(nn.Linear(4, 6), nn.Linear(6, 3))
    assert as_classifier(model, head) is model


def test_as_classifier_says_what_is_wrong_with_the_head():
    with pytest.raises(PotluckError, match=r"Conv2d has no nn\.Linear layer to serve as"):
        as_classifier(nn.Conv2d(1, 1, 1))
    with pytest.raises(PotluckError, match=r'Branching: unknown linear layer "out\.fcc"; did you'):
        as_classifier(Branching(), "out.fcc")
    with pytest.raises(PotluckError, match=r'"norm" is a BatchNorm1d.*Known: out\.fc, left, right'):
        as_classifier(Branching(), "norm")


def test_batch_norm_layers_are_found_by_dotted_name_and_only_they():
    module = nn.Sequential(
        nn.BatchNorm2d(2), nn.GroupNorm(1, 2), nn.Sequential(nn.Flatten(), nn.BatchNorm1d(8))
    )
    assert batch_norm_layers(module) == {"0": module[0], "2.1": module[2][1]}
