"""What the FedUL paper claims, on digits: mean errors over seeds, each setting trained once.

All settings share images, model and number of steps; they differ in what sites know and in the
method. Hyper-parameters were chosen on other seeds than those used here. So was the number of
rounds: 20, and where that is enough 12 (non-iid) or 15 (prior). Mean differences in points of
error over the seeds 20 to 28, and, in brackets, what they were after 25 rounds:

    fedul − supervised           2.3  (2.4)    ten per cent − fedul          3.2  (3.5)
    fedpl − ten per cent        29.5 (29.5)    fedllp − fedul               28.9 (24.6)
    non-iid, 10 − 40 sets       18.3  (9.1)    noise .8 − fedul              0.4  (0.7)
    mixed − supervised           1.7  (1.7)    prior ignored − prior         1.5  (0.6)
    noise 1.6 − with refinement  3.7  (4.2)    refined − fedul               1.0  (1.1)

The loss with the prior is 0.69 of that without it (0.71), 0.73 at most; four sets end with an
error of 14.4, 19.5 at most (12.0). The worst pair of these seeds has ten per cent − fedul 0.7.
"""

from functools import cache
from pathlib import Path
from statistics import mean, stdev

import pytest

import potluck as pl
from potluck.study.build import make_recipe
from potluck.study.schema import parse_study
from potluck.study.simulation import simulate

SEEDS = (0, 1)
CLOSE_SEEDS = (0, 1, 2, 3)
"""For settings that differ by less than seeds do."""


def study(method, view, partition="iid", sites=None, steps=6, rounds=20, **simulation):
    return {
        "rounds": rounds,
        "method": method,
        # as many steps for all, whatever the number of their samples
        "local": {"lr": 5e-3, "optimiser": "adam", "batch_size": 64, "steps": steps},
        "simulation": {
            "dataset": "digits",
            "partition": partition,
            "sites": sites or [{"name": "site", "count": 5, "view": view}],
            **simulation,
        },
    }


def last_record(table):
    described = parse_study(table, "test")
    federation = simulate(described.simulation, described.seed, Path())
    return pl.train(federation, make_recipe(described)).history[-1]


BAGS = {"kind": "bags", "bags": 10}
EXACT = {"kind": "exact"}
NON_IID = {"name": "majority_classes", "gamma": 0.9}
SKEWED = [0.19, 0.01] * 5

SETTINGS = {
    "supervised": study("likelihood", EXACT),
    "ten per cent": study("likelihood", {**EXACT, "labelled": 0.1}),
    "fedul": study("fedul", BAGS),
    "fedpl": study({"name": "fedpl", "warmup": 10}, BAGS),
    "fedllp": study("fedllp", BAGS, steps=10),  # one for each set
    "non-iid 10": study("fedul", {**BAGS, "minimum_rank": 1}, NON_IID, rounds=12),
    "non-iid 40": study("fedul", {**BAGS, "bags": 40, "minimum_rank": 1}, NON_IID, rounds=12),
    "noise .8": study("fedul", {**BAGS, "epsilon": 0.8}),
    "noise 1.6": study("fedul", {**BAGS, "epsilon": 1.6, "minimum_rank": 8}),
    "refined": study("fedul-refined", BAGS),
    "noise 1.6 refined": study("fedul-refined", {**BAGS, "epsilon": 1.6, "minimum_rank": 8}),
    "mixed": study(
        "fedul",
        None,
        sites=[{"name": f"site-{m}", "view": {**BAGS, "bags": m}} for m in (10, 20, 30, 40, 50)],
    ),
    "four sets": study("fedul", {**BAGS, "bags": 4, "minimum_rank": 4}),
    "prior": study("fedul", BAGS, rounds=15, target_prior=SKEWED),
    "prior ignored": study(
        {"name": "fedul", "target_prior": "ignored"}, BAGS, rounds=15, target_prior=SKEWED
    ),
}


@cache
def records(name):
    seeds = CLOSE_SEEDS if name.startswith("prior") else SEEDS
    return [last_record({**SETTINGS[name], "seed": seed}) for seed in seeds]


def errors(name):
    """Test errors in per cent, one for each seed."""
    return [100 * (1 - record["test"]["accuracy"]) for record in records(name)]


def metric(name, key):
    """Mean of a site metric over sites and seeds."""
    return mean(mean(site[key] for site in record["sites"].values()) for record in records(name))


def test_fedul_is_within_a_few_points_of_supervised_training_on_the_same_images():
    assert metric("fedul", "samples") == metric("supervised", "samples")
    assert mean(errors("fedul")) < mean(errors("supervised")) + 5


def test_fedul_beats_a_tenth_of_the_labels_which_beat_pseudo_labels():
    tenth = metric("fedul", "samples") / 10
    assert metric("ten per cent", "samples") == pytest.approx(tenth, abs=1)
    assert mean(errors("fedul")) + 0.5 < mean(errors("ten per cent"))
    assert mean(errors("ten per cent")) + 5 < mean(errors("fedpl"))


def test_label_proportions_alone_are_worse_and_less_stable():
    assert mean(errors("fedul")) + 8 < mean(errors("fedllp"))
    assert stdev(errors("fedul")) < stdev(errors("fedllp"))


def test_non_iid_error_falls_as_sets_increase():
    assert mean(errors("non-iid 40")) + 1 < mean(errors("non-iid 10"))


def test_noise_in_the_priors_up_to_08_costs_little():
    assert mean(errors("noise .8")) < mean(errors("fedul")) + 3


def test_mixed_numbers_of_sets_work():
    assert mean(errors("mixed")) < mean(errors("supervised")) + 4


def test_sites_with_four_sets_for_ten_classes_learn_all_classes_together():
    assert mean(errors("four sets")) < 22


def test_the_target_prior_counts_and_leaving_it_out_is_worse():
    assert mean(errors("prior")) < mean(errors("prior ignored"))
    told, untold = (
        mean(record["test"]["loss"] for record in records(name))
        for name in ("prior", "prior ignored")
    )
    assert told < 0.75 * untold


def test_refinement_helps_where_proportions_are_far_off():
    name = "noise 1.6 refined"
    assert metric(name, "prior_error") < 0.7 * metric(name, "declared_error")
    assert mean(errors(name)) + 1 < mean(errors("noise 1.6"))


def test_refinement_does_not_pay_where_proportions_are_known():
    assert metric("refined", "prior_error") > metric("refined", "declared_error")
    assert mean(errors("fedul")) - 1 < mean(errors("refined")) < mean(errors("fedul")) + 4
