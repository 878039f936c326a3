"""Partial-label data as people have it: joined names, dense and sparse matrices; and bad ones."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.sparse
import torch

import potluck as pl
from potluck.study.schema import parse_study
from potluck.study.simulation import simulate
from potluck.study.sitefile import load_site

SPACE = pl.LabelSpace(("ant", "bee", "cat"))
MASK = np.array([[1, 1, 0], [0, 1, 0], [1, 0, 1], [1, 1, 1]])
JOINED = ["ant|bee", "bee", "cat | ant", "bee|ant|cat"]
X = np.arange(8, dtype=np.float32).reshape(4, 2)


def load(folder, data, view=""):
    (folder / "site.toml").write_text(
        f'name = "zoo"\n[data]\n{data}\n[view]\nkind = "candidates"\n{view}\n'
    )
    return load_site(folder / "site.toml", SPACE)[0]


def rows(site):
    return site.view.codebook[site.symbols].numpy()


def write_table(folder, labels, name="data.csv"):
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "label": labels})
    if name.endswith("csv"):
        pyarrow.csv.write_csv(table, folder / name)
    else:
        pyarrow.parquet.write_table(table, folder / name)
    return f'kind = "table"\npath = "{name}"\nlabel = "label"'


@pytest.mark.parametrize("name", ["data.csv", "data.parquet"])
def test_joined_names_in_a_column_load(tmp_path, name):
    np.testing.assert_array_equal(rows(load(tmp_path, write_table(tmp_path, JOINED, name))), MASK)


def test_another_separator_loads(tmp_path):
    joined = [text.replace("|", ";") for text in JOINED]
    site = load(tmp_path, write_table(tmp_path, joined), 'separator = ";"')
    np.testing.assert_array_equal(rows(site), MASK)


@pytest.mark.parametrize("kind", [bool, np.uint8, np.float64])
def test_a_dense_matrix_beside_the_inputs_loads(tmp_path, kind):
    np.savez(tmp_path / "data.npz", x=X, y=MASK.astype(kind))
    np.testing.assert_array_equal(rows(load(tmp_path, 'kind = "arrays"\npath = "data.npz"')), MASK)


def save_csr(path):
    scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(MASK))


def save_csc_array(path):
    scipy.sparse.save_npz(path, scipy.sparse.csc_array(MASK.astype(bool)))


def save_dense(path):
    np.savez_compressed(path, candidates=MASK)


@pytest.mark.parametrize("save", [save_csr, save_csc_array, save_dense])
def test_a_matrix_in_its_own_file_loads_for_arrays_and_tables(tmp_path, save):
    save(tmp_path / "sets.npz")
    np.savez(tmp_path / "data.npz", x=X)
    site = load(tmp_path, 'kind = "arrays"\npath = "data.npz"', 'matrix = "sets.npz"')
    np.testing.assert_array_equal(rows(site), MASK)
    write_table(tmp_path, JOINED)
    table = 'kind = "table"\npath = "data.csv"\nfeatures = ["a", "b"]'
    np.testing.assert_array_equal(rows(load(tmp_path, table, 'matrix = "sets.npz"')), MASK)


def test_a_matrix_in_npy_or_as_a_table_with_a_column_for_each_class_loads(tmp_path):
    np.savez(tmp_path / "data.npz", x=X)
    np.save(tmp_path / "sets.npy", MASK)
    shuffled = {name: MASK[:, SPACE.index(name)] for name in ("cat", "ant", "bee")}
    pyarrow.csv.write_csv(pa.table(shuffled), tmp_path / "sets.csv")
    for name in ("sets.npy", "sets.csv"):
        site = load(tmp_path, 'kind = "arrays"\npath = "data.npz"', f'matrix = "{name}"')
        np.testing.assert_array_equal(rows(site), MASK)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["ant|bee", "bee", "ant|bat", "cat"], 'unknown label "bat".*did you mean "cat"'),
        (["ant|bee", "|", "ant", "cat"], "the candidate set of sample 1 is empty"),
    ],
)
def test_bad_names_are_explained_with_the_site_and_the_file(tmp_path, labels, message):
    data = write_table(tmp_path, labels)
    with pytest.raises(pl.PotluckError, match=r'site\.toml: site "zoo".*' + message):
        load(tmp_path, data)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[1, 0, 0], [0, 0, 0], [1, 1, 0], [0, 0, 1]], "the candidate set of sample 1 is empty"),
        ([[1, 0, 0, 1]] * 4, "matrix of samples × 3 classes"),
        ([[2, 0, 0]] * 4, 'sample 0 has 2 for the class "ant"'),
        ([[1, 0, 0]] * 3, "4 samples but 3 labels"),
    ],
)
def test_bad_matrices_are_explained(tmp_path, matrix, message):
    np.savez(tmp_path / "data.npz", x=X)
    scipy.sparse.save_npz(tmp_path / "sets.npz", scipy.sparse.csr_matrix(np.array(matrix)))
    with pytest.raises(pl.PotluckError, match=r"site\.toml: .*" + message):
        load(tmp_path, 'kind = "arrays"\npath = "data.npz"', 'matrix = "sets.npz"')


def test_a_damaged_or_ambiguous_matrix_file_is_explained(tmp_path):
    np.savez(tmp_path / "data.npz", x=X)
    data = 'kind = "arrays"\npath = "data.npz"'
    np.savez(tmp_path / "two.npz", a=MASK, b=MASK)
    with pytest.raises(pl.PotluckError, match=r"must hold one array.*it has a, b"):
        load(tmp_path, data, 'matrix = "two.npz"')
    (tmp_path / "bad.npy").write_bytes(b"nothing")
    with pytest.raises(pl.PotluckError, match="cannot be read as an array"):
        load(tmp_path, data, 'matrix = "bad.npy"')
    with pytest.raises(pl.PotluckError, match=r'view.matrix: file ".*none.npz" does not exist'):
        load(tmp_path, data, 'matrix = "none.npz"')
    with pytest.raises(pl.PotluckError, match="the site names no labels"):
        load(tmp_path, data)


def simulated(**view):
    study = parse_study(
        {
            "rounds": 1,
            "simulation": {
                "dataset": "digits",
                "sites": [{"name": "a", "view": {"kind": "candidates", **view}}],
            },
        },
        "study",
    )
    site = simulate(study.simulation, 0, None).sites[0]
    return site.view.codebook[site.symbols].bool(), site.truth


def test_simulated_candidates_may_miss_the_truth_at_a_stated_rate():
    mask, truth = simulated(rho=0.3, truth_missing=0.2)
    missing = ~mask.gather(1, truth[:, None])
    assert missing.float().mean().item() == pytest.approx(0.2, abs=0.03)
    assert mask.any(1).all()


def test_simulated_candidates_may_be_mixed_with_exact_labels():
    mask, truth = simulated(rho=0.3, exact=0.5)
    alone = mask.sum(1) == 1
    assert alone.float().mean().item() == pytest.approx(0.5, abs=0.05)
    assert mask.gather(1, truth[:, None]).all()


def test_simulated_candidates_may_be_of_confusable_classes_only():
    mask, truth = simulated(rho=0.5, confusable=[["1", "7"], ["3", "8", "9"]])
    seen = torch.stack([mask[truth == k].float().mean(0) for k in range(10)])
    expected = torch.eye(10)
    for group in ([1, 7], [3, 8, 9]):
        for k in group:
            expected[k, group] = 0.5
    expected.fill_diagonal_(1)
    torch.testing.assert_close(seen, expected, atol=0.15, rtol=0)


@pytest.mark.parametrize(
    ("view", "message"),
    [
        ({"rho": 0.3, "confusable": [["1", "x"]]}, 'unknown label "x"'),
        ({"rho": 0.3, "confusable": "superclass"}, 'unknown grouping "superclass"'),
        ({"rho": 0.3, "truth_missing": 1.5}, "truth_missing"),
    ],
)
def test_impossible_simulated_candidates_are_explained(view, message):
    with pytest.raises(pl.PotluckError, match=message):
        simulated(**view)
