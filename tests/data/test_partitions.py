"""Partitions: nothing lost or doubled, the papers' proportions, and errors that say what to do."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.data.partitions import (
    PARTITIONS,
    LabelSubsets,
    apportion,
    bernoulli_dirichlet,
    by_weights,
    covering_label_subsets,
    deal,
    dirichlet,
    iid,
    label_subsets,
    majority_classes,
)
from potluck.errors import PotluckError

# Classes of the first 48 000 MNIST and 40 000 CIFAR-10 training samples (FedUL's training sets).
MNIST = [4729, 5470, 4762, 4889, 4655, 4324, 4748, 4968, 4653, 4802]
CIFAR10 = [3986, 3986, 4048, 3984, 4003, 3975, 4020, 4023, 3997, 3978]

FEDUL_D5 = [
    [4498, 4646, 56, 56, 54, 57, 54, 60, 60, 54],
    [57, 54, 4425, 4737, 49, 50, 49, 58, 57, 58],
    [64, 61, 57, 61, 4316, 4217, 54, 63, 58, 57],  # the paper prints 53 where its code gives 63
    [53, 58, 55, 35, 50, 0, 4572, 4576, 60, 57],
    [57, 58, 61, 0, 60, 0, 19, 54, 4418, 4576],
]
FEDUL_D6 = [
    [3748, 3872, 47, 46, 45, 47, 45, 50, 50, 45],
    [48, 45, 3688, 3938, 41, 41, 41, 48, 48, 48],
    [53, 51, 48, 0, 3597, 3887, 45, 53, 48, 47],
    [44, 18, 46, 0, 42, 0, 3810, 3813, 50, 48],
    [47, 0, 51, 0, 50, 0, 46, 45, 3788, 3790],
]

OPTIONS = {
    "iid": {},
    "dirichlet": {"alpha": 0.5},
    "bernoulli_dirichlet": {"p": 0.7, "alpha": 0.5},
    "majority_classes": {},
    "label_subsets": {"labels_per_site": 3},
    "covering_label_subsets": {"labels_per_site": 3},
}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def with_counts(counts):
    """Class vector with the given number of samples of each class, out of order."""
    classes = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return classes[torch.randperm(len(classes), generator=seeded(99))]


def table(classes, indices):
    """(S, K) samples of each class at each site."""
    num_classes = int(classes.max()) + 1
    return torch.stack([torch.bincount(classes[i], minlength=num_classes) for i in indices])


def indices_of(split):
    return split.indices if isinstance(split, LabelSubsets) else split


class_vectors = st.lists(st.integers(0, 6), min_size=1, max_size=150).map(torch.tensor)


def assert_every_sample_once(indices, samples):
    assert torch.equal(torch.cat(indices).sort().values, torch.arange(samples))
    assert all(torch.equal(i, i.sort().values) for i in indices)


# --- what all partitions share


def test_the_dictionary_names_each_partition_by_its_function():
    assert {name: f.__name__ for name, f in PARTITIONS.items()} == {n: n for n in OPTIONS}


@pytest.mark.parametrize("name", PARTITIONS)
def test_the_seed_decides_the_split(name):
    classes = with_counts([60] * 10)
    first, again, other = (
        indices_of(PARTITIONS[name](classes, 5, seeded(seed), **OPTIONS[name]))
        for seed in (1, 1, 2)
    )
    assert len(first) == 5
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("name", PARTITIONS)
def test_no_sample_is_at_two_sites_and_indices_ascend(name):
    classes = with_counts([60] * 10)
    indices = indices_of(PARTITIONS[name](classes, 5, seeded(), **OPTIONS[name]))
    everywhere = torch.cat(indices)
    assert len(everywhere.unique()) == len(everywhere)
    assert all((i.diff() > 0).all() for i in indices)
    assert all(len(i) > 0 for i in indices)


@pytest.mark.parametrize("name", PARTITIONS)
def test_more_sites_than_samples_is_an_error(name):
    with pytest.raises(PotluckError, match="cannot split 3 samples among 4 sites; use fewer"):
        PARTITIONS[name](torch.tensor([0, 1, 2]), 4, seeded(), **OPTIONS[name])


@pytest.mark.parametrize("name", PARTITIONS)
def test_no_sites_is_an_error(name):
    with pytest.raises(PotluckError, match="number of sites must be at least 1, not 0"):
        PARTITIONS[name](torch.tensor([0, 1, 2]), 0, seeded(), **OPTIONS[name])


# --- iid


@given(class_vectors, st.integers(1, 20), st.integers(0, 5))
def test_iid_gives_each_sample_once_and_sites_differ_by_at_most_one(classes, sites, seed):
    sites = min(sites, len(classes))
    indices = iid(classes, sites, seeded(seed))
    assert_every_sample_once(indices, len(classes))
    counts = table(classes, indices)
    assert (counts.amax(0) - counts.amin(0)).max() <= 1
    assert counts.sum(1).max() - counts.sum(1).min() <= 1


def test_iid_repeats_the_totals_of_fedul_and_the_balance_of_fedmt():
    # The IID rows of D.5 repeat one client's counts: five times its 1098 ones exceed the 5470
    # there are. Only the totals, 9600 a client, can be met.
    counts = table(mnist := with_counts(MNIST), iid(mnist, 5, seeded()))
    assert counts.sum(1).tolist() == [9600] * 5
    cifar100 = with_counts([400] * 100)
    assert (table(cifar100, iid(cifar100, 10, seeded())) == 40).all()  # N_c = 4000


# --- dirichlet


@given(class_vectors, st.integers(1, 6), st.sampled_from([0.3, 1.0, 100.0]), st.integers(0, 3))
def test_dirichlet_gives_each_sample_once_and_no_site_too_few(classes, sites, alpha, seed):
    classes = classes.repeat(20 * sites)  # so that one for each site is within reach
    indices = dirichlet(classes, sites, seeded(seed), alpha=alpha, min_size=1)
    assert_every_sample_once(indices, len(classes))
    assert min(len(i) for i in indices) >= 1


def test_dirichlet_shares_have_the_mean_and_variance_of_the_distribution():
    classes, sites, alpha = with_counts([200] * 1000), 4, 0.5
    shares = table(classes, dirichlet(classes, sites, seeded(), alpha=alpha)) / 200
    assert torch.allclose(shares.mean(1), torch.full((sites,), 1 / sites), atol=0.04)
    expected = (1 / sites) * (1 - 1 / sites) / (sites * alpha + 1)
    assert shares.var(1).mean().item() == pytest.approx(expected, rel=0.08)


def test_dirichlet_draws_again_until_every_site_has_min_size():
    classes = with_counts([50] * 4)
    sizes = [
        [len(i) for i in dirichlet(classes, 5, seeded(seed), alpha=0.3, min_size=15)]
        for seed in range(20)
    ]
    assert min(map(min, sizes)) >= 15
    free = [[len(i) for i in dirichlet(classes, 5, seeded(seed), alpha=0.3)] for seed in range(20)]
    assert min(map(min, free)) < 15  # the demand was binding


def test_a_tiny_alpha_gives_each_class_to_one_site():
    classes = with_counts([30] * 50)
    counts = table(classes, dirichlet(classes, 3, seeded(), alpha=1e-4))
    assert counts.sum() == 1500
    assert (counts.amax(0) == 30).float().mean() > 0.95


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.0}, "dirichlet: alpha must be above 0, not 0.0"),
        ({"alpha": 1.0, "min_size": 0}, "dirichlet: min_size must be at least 1, not 0"),
        ({"alpha": 1.0, "min_size": 30}, "3 sites with min_size 30 need 90 samples, but there are"),
        ({"alpha": 1e-3, "min_size": 12}, "none of 1000 draws gave all 3 sites at least 12 sam"),
    ],
)
def test_dirichlet_refuses_what_cannot_be(options, message):
    with pytest.raises(PotluckError, match=message):
        dirichlet(with_counts([20, 20]), 3, seeded(), **options)


# --- bernoulli_dirichlet


@given(class_vectors, st.integers(1, 6), st.sampled_from([0.1, 0.7, 1.0]), st.integers(0, 3))
def test_bernoulli_dirichlet_gives_each_sample_once_and_no_site_none(classes, sites, p, seed):
    classes = classes.repeat(2 * sites)
    indices = bernoulli_dirichlet(classes, sites, seeded(seed), p=p, alpha=1.0)
    assert_every_sample_once(indices, len(classes))
    assert min(len(i) for i in indices) >= 1


def test_a_site_holds_a_class_with_probability_p():
    classes = with_counts([1000] * 100)
    counts = table(classes, bernoulli_dirichlet(classes, 10, seeded(), p=0.7, alpha=100.0))
    # 1000 Bernoulli(0.7) entries; redrawing empty rows and columns is negligible here
    assert (counts > 0).double().mean().item() == pytest.approx(0.7, abs=4 * 0.0145)


def test_classes_without_a_holder_are_offered_again_and_not_lost():
    classes = with_counts([20] * 60)
    # 60 classes, 3 sites, p = 0.1: about 44 classes have no holder at the first offer
    indices = bernoulli_dirichlet(classes, 3, seeded(), p=0.1, alpha=1.0)
    assert_every_sample_once(indices, len(classes))


def test_samples_choose_their_site_independently():
    classes = with_counts([400] * 500)
    counts = table(classes, bernoulli_dirichlet(classes, 4, seeded(), p=1.0, alpha=1e8)).double()
    # equal shares, so the counts vary as a multinomial does: 400 · 1/4 · 3/4
    assert counts.mean(1).tolist() == pytest.approx([100] * 4, abs=1.6)
    assert counts.var(1).mean().item() == pytest.approx(75, rel=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p": 0.0, "alpha": 1.0}, "p must be above 0 and at most 1, not 0.0"),
        ({"p": 1.5, "alpha": 1.0}, "p must be above 0 and at most 1, not 1.5"),
        ({"p": 0.5, "alpha": -1.0}, "bernoulli_dirichlet: alpha must be above 0, not -1.0"),
        ({"p": 1e-9, "alpha": 1.0}, "with p = 1e-09, 1000 draws left a site without a class"),
        ({"p": 0.5, "alpha": 1e-3, "min_size": 12}, "none of 1000 draws gave all 3 sites"),
    ],
)
def test_bernoulli_dirichlet_refuses_what_cannot_be(options, message):
    with pytest.raises(PotluckError, match=message):
        bernoulli_dirichlet(with_counts([20, 20]), 3, seeded(), **options)


# --- majority classes


@pytest.mark.parametrize(("counts", "expected"), [(MNIST, FEDUL_D5), (CIFAR10, FEDUL_D6)])
def test_the_weights_of_fedul_give_its_tables_d5_and_d6_to_the_sample(counts, expected):
    # numpy's old generator with seed 0, as FedUL's code draws them
    weights = np.random.RandomState(0).random_sample((5, 10)) * 0.1 + 0.45
    for site in range(5):
        weights[site, 2 * site : 2 * site + 2] *= 4 / (1 - 0.95)
    classes = with_counts(counts)
    indices = by_weights(classes, torch.from_numpy(weights), seeded())
    assert table(classes, indices).tolist() == expected


@pytest.mark.parametrize("counts", [MNIST, CIFAR10])
def test_majority_classes_have_the_proportions_of_fedul_by_default(counts):
    classes = with_counts(counts)
    shares = table(classes, majority_classes(classes, 5, seeded())) / (sum(counts) // 5)
    own = torch.zeros(5, 10, dtype=torch.bool)
    own[torch.arange(5).repeat_interleave(2), torch.arange(10)] = True
    assert (shares[own] > 0.42).all()
    assert (shares[own] < 0.53).all()  # D.5 and D.6 have 0.44 to 0.50
    assert (shares[~own] < 0.008).all()
    assert shares.sum() > 4.8  # nearly all data is used (4.96 in D.5)


def test_fedmt_superclasses_fit_at_its_strongest_heterogeneity():
    # CIFAR-100 less 5 images a class at the server: 20 superclasses of 2475, 10 sites of 4000
    groups = with_counts([2475] * 20)
    indices = majority_classes(
        groups, 10, seeded(), gamma=0.99, low=0.35, high=0.55, samples_per_site=4000
    )
    counts = table(groups, indices)
    assert (counts.sum(1) > 3980).all()
    majority = counts.view(10, 10, 2)[torch.arange(10), torch.arange(10)]
    assert majority.double().mean().item() == pytest.approx(1955, rel=0.01)


@given(
    st.lists(st.integers(1, 60), min_size=2, max_size=6),
    st.integers(1, 5),
    st.floats(0, 0.99),
    st.integers(0, 3),
)
def test_sites_take_in_turn_what_is_left(counts, sites, gamma, seed):
    classes = with_counts([20 + c for c in counts])
    weights = torch.rand(sites, len(counts), generator=seeded(seed)) + 0.2
    weights[:, 0] /= 1 - gamma
    size = len(classes) // sites
    left = torch.bincount(classes).tolist()
    expected = []
    for row in (weights.double() / weights.double().sum(1, keepdim=True) * size).tolist():
        took = [min(int(want), have) for want, have in zip(row, left, strict=True)]
        left = [have - t for have, t in zip(left, took, strict=True)]
        expected.append(took)
    assert table(classes, by_weights(classes, weights, seeded(seed))).tolist() == expected


def test_majority_classes_wrap_around():
    classes = with_counts([100] * 4)
    counts = table(classes, majority_classes(classes, 4, seeded(), gamma=0.9, per_site=1))
    assert counts.argmax(1).tolist() == [0, 1, 2, 3]
    counts = table(classes, majority_classes(classes, 8, seeded(), gamma=0.9, per_site=1))
    assert counts.argmax(1).tolist() == [0, 1, 2, 3, 0, 1, 2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 1.0}, "gamma must be at least 0 and below 1, not 1.0"),
        ({"gamma": -0.1}, "gamma must be at least 0 and below 1, not -0.1"),
        ({"low": 0.0}, "weights need 0 < low <= high, not low=0.0 and high=0.55"),
        ({"low": 0.6}, "weights need 0 < low <= high, not low=0.6 and high=0.55"),
        ({"per_site": 0}, "per_site must be from 1 to the 4 classes, not 0"),
        ({"per_site": 5}, "per_site must be from 1 to the 4 classes, not 5"),
        ({"samples_per_site": 21}, r"from 1 to 20 \(40 samples, 2 sites\), not 21"),
        ({"samples_per_site": 0}, "samples_per_site must be from 1 to 20"),
    ],
)
def test_majority_classes_refuses_what_cannot_be(options, message):
    with pytest.raises(PotluckError, match=message):
        majority_classes(with_counts([10] * 4), 2, seeded(), **options)


def test_a_site_that_comes_too_late_is_named():
    weights = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    with pytest.raises(PotluckError, match="site 1 gets no samples, as the sites before it used"):
        by_weights(with_counts([5, 5]), weights, seeded())


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([[1.0], [1.0]], "samples of class 1, but weights for only 1 classes"),
        ([[1.0, -1.0], [1.0, 1.0]], "must not be negative, nor all 0 at a site"),
        ([[1.0, 1.0], [0.0, 0.0]], "must not be negative, nor all 0 at a site"),
    ],
)
def test_weights_that_mean_nothing_are_explained(weights, message):
    with pytest.raises(PotluckError, match=message):
        by_weights(with_counts([5, 5]), torch.tensor(weights), seeded())


# --- label subsets


@pytest.mark.parametrize("split_by", [label_subsets, covering_label_subsets])
@pytest.mark.parametrize("labels", [1, 2, 5, 10])
def test_sites_hold_just_their_classes_and_holders_share_equally(split_by, labels):
    classes = with_counts([37, 40, 53, 60, 61, 62, 70, 80, 90, 100])
    split = split_by(classes, 10, seeded(labels), labels_per_site=labels)
    counts = table(classes, split.indices)
    assert torch.equal(counts > 0, split.subsets)
    assert (split.subsets.sum(1) == labels).all()
    for k in range(10):
        shares = counts[split.subsets[:, k], k]
        if len(shares):
            assert shares.sum() == (classes == k).sum()
            assert shares.max() - shares.min() <= 1
    assert split.unheld == [k for k in range(10) if counts[:, k].sum() == 0]


@given(st.integers(2, 12), st.integers(1, 12), st.integers(1, 12), st.integers(0, 3))
def test_covering_subsets_hold_every_class_whenever_they_can(num_classes, sites, labels, seed):
    labels = min(num_classes, max(labels, -(-num_classes // sites)))
    classes = torch.arange(num_classes).repeat(12)
    split = covering_label_subsets(classes, sites, seeded(seed), labels_per_site=labels)
    assert split.unheld == []
    assert (split.subsets.sum(1) == labels).all()
    assert_every_sample_once(split.indices, len(classes))


def test_independent_subsets_report_classes_without_a_holder():
    split = label_subsets(with_counts([10] * 10), 2, seeded(), labels_per_site=2)
    assert len(split.unheld) >= 6
    assert sum(map(len, split.indices)) == 10 * (10 - len(split.unheld))


@pytest.mark.parametrize("split_by", [label_subsets, covering_label_subsets])
def test_every_class_is_as_likely_at_every_site(split_by):
    classes = with_counts([20] * 6)
    held = sum(
        split_by(classes, 4, seeded(seed), labels_per_site=2).subsets.double()
        for seed in range(900)
    )
    assert torch.allclose(held / 900, torch.full((4, 6), 1 / 3).double(), atol=0.065)  # 4 sd


@pytest.mark.parametrize("labels", [2, 4, 6, 8, 10])
def test_the_private_label_setting_gives_every_site_2000_samples(labels):
    classes = with_counts([4500] * 10)  # CIFAR-10 less the server's 5000
    for split_by in (label_subsets, covering_label_subsets):
        split = split_by(classes, 10, seeded(labels), labels_per_site=labels, samples_per_site=2000)
        assert [len(i) for i in split.indices] == [2000] * 10
        assert len(torch.cat(split.indices).unique()) == 20_000
        assert torch.equal(table(classes, split.indices) > 0, split.subsets)


@pytest.mark.parametrize("split_by", [label_subsets, covering_label_subsets])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels_per_site": 5}, "labels_per_site must be from 1 to the 4 classes, not 5"),
        ({"labels_per_site": 0}, "labels_per_site must be from 1 to the 4 classes, not 0"),
        (
            {"labels_per_site": 2, "samples_per_site": 21},
            r"samples_per_site must be from 1 to 20 \(40 samples, 2 sites\), not 21",
        ),
    ],
)
def test_label_subsets_refuse_what_cannot_be(split_by, options, message):
    with pytest.raises(PotluckError, match=f"^{split_by.__name__}: {message}"):
        split_by(with_counts([10] * 4), 2, seeded(), **options)


@pytest.mark.parametrize("split_by", [label_subsets, covering_label_subsets])
def test_label_subsets_name_an_empty_class(split_by):
    with pytest.raises(PotluckError, match="class 1 has no samples, so no site can hold it"):
        split_by(torch.tensor([0, 2, 0, 2]), 2, seeded(), labels_per_site=2)


def test_label_subsets_say_when_a_class_is_too_small_for_its_holders():
    with pytest.raises(PotluckError, match="none of 1000 draws gave every site a sample of each"):
        label_subsets(with_counts([2, 50]), 4, seeded(), labels_per_site=2)


def test_covering_needs_enough_places():
    with pytest.raises(PotluckError, match="2 sites with 1 classes each cannot hold all 4 classes"):
        covering_label_subsets(with_counts([10] * 4), 2, seeded(), labels_per_site=1)


# --- dealing and rounding


def test_deal_hands_out_the_counts_and_leaves_the_rest():
    classes = with_counts([5, 0, 7])
    counts = torch.tensor([[1, 0, 3], [4, 0, 2]])
    owner = deal(classes, counts, seeded())
    for site in range(2):
        assert torch.equal(torch.bincount(classes[owner == site], minlength=3), counts[site])
    assert classes[owner == -1].tolist() == [2, 2]


def test_deal_gives_every_sample_the_same_chance():
    classes = torch.tensor([0] * 4 + [1] * 6)
    counts = torch.tensor([[1, 3]])
    chosen = sum((deal(classes, counts, seeded(s)) == 0).double() for s in range(2000)) / 2000
    assert chosen.tolist() == pytest.approx([0.25] * 4 + [0.5] * 6, abs=0.045)


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(1, 8), st.integers(0, 1000)
)
def test_apportion_rounds_each_entry_and_keeps_the_sums(totals, rows, seed):
    shares = torch.rand(rows, len(totals), generator=seeded(seed), dtype=torch.float64)
    exact = shares / shares.sum(0) * torch.tensor(totals)
    exact[exact < 1e-12] = 0
    counts = apportion(exact)
    assert counts.sum(0).tolist() == totals
    assert ((counts - exact).abs() < 1 + 1e-9).all()
    assert (counts[exact == 0] == 0).all()
    assert ((counts - exact).sum(1).abs() < 2).all()
