"""Every method can be traced and stacked, and gives the same result as on the reference."""

from dataclasses import replace

import pytest
import torch
from test_stacked import SPACE, assert_agree, in_pieces, network, stacked

import potluck as pl
from potluck.data.makers import bags as bag_makers
from potluck.data.makers import candidates as candidate_makers
from potluck.data.readers.digits import digits
from potluck.engines.parts import PartedProgram
from potluck.methods import METHODS


def parts(sizes):
    data = digits()
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(1))
    return [data.subset(part) for part in order[: sum(sizes)].split(sizes)]


def codes():
    """Three sites with coarse labels, and a server with a few exact ones."""
    view = pl.coarse(SPACE, {"low": list("0123"), "mid": list("456"), "high": list("789")})
    *sites, own = parts([41, 33, 41, 30])
    return pl.Federation.of(
        [
            pl.Site.of(f"site {i}", part.inputs, view, view.codebook.argmax(0)[part.classes])
            for i, part in enumerate(sites)
        ],
        pl.Site.of("server", own.inputs, pl.exact(SPACE), own.classes),
    )


def bags():
    generator = torch.Generator().manual_seed(0)
    sites = []
    for i, part in enumerate(parts([120, 120, 90])):
        made = bag_makers.identifiable_bags(part.classes, 11, 10, generator)
        view = pl.bags(SPACE, made.priors, sizes=made.sizes)
        sites.append(pl.Site.of(f"site {i}", part.inputs[made.index], view, made.bag))
    return pl.Federation.of(sites)


def sets():
    generator = torch.Generator().manual_seed(0)
    sites = []
    for i, part in enumerate(parts([41, 33, 41])):
        mask = candidate_makers.uniform(part.classes, 10, 0.3, generator)
        sites.append(pl.Site.of(f"site {i}", part.inputs, pl.candidates(SPACE, mask), mask))
    return pl.Federation.of(sites)


def subsets():
    """Three sites with exact labels of few classes, and a server without labels."""
    held = [["0", "1", "2", "3"], ["3", "4", "5", "6"], ["6", "7", "8", "9"]]
    *sites, own = parts([90, 90, 90, 30])
    return pl.Federation.of(
        [
            _of_classes(f"site {i}", part, names)
            for i, (part, names) in enumerate(zip(sites, held, strict=True))
        ],
        pl.Site.of("server", own.inputs, pl.unlabeled(SPACE)),
    )


def _of_classes(name, part, names):
    view = pl.subset(SPACE, names)
    kept = part.subset(view.held[part.classes].nonzero().flatten())
    return pl.Site.of(name, kept.inputs, view, [str(k) for k in kept.classes.tolist()])


def suitable(method):
    """The first federation that has what the method needs."""
    reasons = []
    for make in (codes, bags, sets, subsets):
        federation = make()
        try:
            method.check(federation)
        except pl.PotluckError as error:
            reasons.append(str(error))
        else:
            return federation
    raise AssertionError(reasons)


@pytest.mark.parametrize("name", ["fedpll-laar", "potluck", "semifl"])
def test_looks_at_the_received_model_agree_for_convolutions(name):
    method = METHODS[name]()
    local = pl.LocalTraining(lr=0.05, batch_size=16)
    recipe = pl.Recipe(rounds=2, method=method, local=local)
    engine = stacked(in_pieces, make=PartedProgram)
    assert_agree(recipe, suitable(method), network("convolutional"), engine)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_agrees(name):
    method = METHODS[name]()
    if hasattr(method, "tau"):
        method = replace(method, tau=0.0)  # an untrained model is confident of nothing
    recipe = pl.Recipe(
        rounds=2, method=method, local=pl.LocalTraining(lr=0.05, batch_size=16, epochs=1)
    )
    engine = stacked(in_pieces, make=PartedProgram)
    assert_agree(recipe, suitable(method), network("mlp"), engine)
