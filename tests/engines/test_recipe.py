"""What does not fit together is refused before any training."""

from dataclasses import replace

import pytest
import torch
from by_hand import seesaw

import potluck as pl
from potluck.engines import ENGINES
from potluck.errors import PotluckError
from potluck.federated import FEDERATED
from potluck.methods import METHODS, FedLC


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 0}, "rounds is 0; at least one round is needed"),
        ({"rounds": -3}, "rounds is -3"),
        ({"cohort": 3}, "cohort is 3, but there are 2 sites; choose 1 to 2, or leave it out"),
        ({"cohort": 0}, "cohort is 0, but there are 2 sites"),
        ({"batch_norm": "statik"}, 'unknown batch_norm "statik"; did you mean "static"?'),
        ({"federated": pl.FedBN()}, "fedbn, which keeps batch-norm statistics at the sites, but"),
        (
            {"federated": pl.FedBN(), "batch_norm": "static"},
            'batch_norm is "static"; set batch_norm = "local"',
        ),
        (
            {"federated": pl.FedAvg(weights="sample")},
            'unknown federated.weights "sample"; did you mean "samples"?',
        ),
        (
            {"federated": pl.FedNova(), "local": pl.LocalTraining(optimiser=pl.Adam())},
            "fednova, which normalises the progress of SGD, but local.optimiser is adam; use sgd",
        ),
        (
            {"federated": pl.FedNova(), "local": pl.LocalTraining(optimiser=pl.AdamW())},
            "local.optimiser is adamw",
        ),
        (
            {
                "federated": pl.FedNova(),
                "local": pl.LocalTraining(optimiser=pl.SGD(0.9), optimiser_state="keep"),
            },
            'makes from rest, but local.optimiser_state is "keep"; set it to "reset"',
        ),
        ({"local": pl.LocalTraining(lr=0.0)}, "local.lr is 0.0; it must be above 0"),
        ({"local": pl.LocalTraining(optimiser=pl.SGD(1.5))}, "local.optimiser.momentum is 1.5"),
        (
            {"method": pl.Likelihood(augment="flip")},
            r'method.augment is "flip", but the samples have shape \(1,\), which are not images',
        ),
        (
            {"method": pl.Likelihood(augment="week")},
            'unknown method.augment "week"; did you mean "weak"?',
        ),
    ],
)
def test_misfits_are_refused_with_the_remedy(settings, message):
    with pytest.raises(PotluckError, match=message):
        pl.Recipe(**{"rounds": 1, **settings}).check(seesaw())


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"cohort": 1},
        {"cohort": 2},
        {"federated": pl.FedBN(), "batch_norm": "local"},
        {"federated": pl.FedNova(), "local": pl.LocalTraining(optimiser=pl.SGD(0.9))},
        {"federated": pl.FedNova(), "local": pl.LocalTraining(optimiser_state="keep")},
        {"federated": pl.Scaffold(), "local": pl.LocalTraining(optimiser=pl.Adam())},
    ],
)
def test_what_fits_passes(settings):
    pl.Recipe(rounds=1, **settings).check(seesaw())


def test_train_checks_before_it_trains():
    with pytest.raises(PotluckError, match="rounds is 0"):
        pl.train(seesaw(), pl.Recipe(rounds=0))


def test_a_recipe_checks_the_federation_too():
    sites = [pl.Site("A", torch.ones(3, 1), pl.exact(pl.LabelSpace.numbered(2)), torch.zeros(2))]
    unchecked = pl.Federation(sites[0].view.space, tuple(sites))
    with pytest.raises(PotluckError, match='site "A" has 3 samples but 2 symbols'):
        pl.Recipe(rounds=1).check(unchecked)


def test_labels_at_a_server_that_never_trains_are_refused():
    server = replace(seesaw().sites[0], name="registry")
    message = (
        r'server \("registry"\) has 3 labelled samples, but FedLC does not train at the server'
    )
    with pytest.raises(PotluckError, match=message):
        pl.Recipe(rounds=1, method=FedLC()).check(seesaw(server=server))


def test_unlabelled_samples_at_a_server_that_never_trains_pass():
    server = pl.Site.of("registry", seesaw().sites[0].inputs, pl.unlabeled(seesaw().space))
    pl.Recipe(rounds=1, method=FedLC()).check(seesaw(server=server))


@pytest.mark.parametrize("name", FEDERATED)
def test_federated_optimisers_have_usable_defaults(name):
    batch_norm = "local" if name == "fedbn" else "average"
    pl.Recipe(rounds=1, federated=FEDERATED[name](), batch_norm=batch_norm).check(seesaw())


def test_names_lead_to_engines_and_methods():
    assert "sequential" in ENGINES
    assert METHODS["likelihood"] is pl.Likelihood
