"""Site files: every kind of source with every kind of view, from tiny files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from potluck.errors import PotluckError
from potluck.labels import LabelSpace
from potluck.study.build import load_federation
from potluck.study.schema import parse_study
from potluck.study.sitefile import is_site_file, load_site, read_site_file

SPACE = LabelSpace(("flu", "cold", "well"))
NAMED = ["flu", "well", "cold", "flu"]

# What the site wrote about four samples, its view, and the codebook rows that this must give.
KINDS: dict[str, tuple[list[str], str, list[list[float]]]] = {
    "exact": (NAMED, 'kind = "exact"', [[1, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]),
    "coarse": (
        ["ill", "fine", "ill", "ill"],
        'kind = "coarse"\nmapping = { ill = ["flu", "cold"], fine = ["well"] }',
        [[1, 1, 0], [0, 0, 1], [1, 1, 0], [1, 1, 0]],
    ),
    "coarse matrix": (
        ["ill", "fine", "ill", "ill"],
        'kind = "coarse"\nlabels = ["ill", "fine"]\nmatrix = [[1, 0.75, 0], [0, 0.25, 1]]',
        [[1, 0.75, 0], [0, 0.25, 1], [1, 0.75, 0], [1, 0.75, 0]],
    ),
    "noisy": (
        NAMED,
        'kind = "noisy"\nmatrix = [[0.75, 0.25, 0], [0.25, 0.5, 0], [0, 0.25, 1]]',
        [[0.75, 0.25, 0], [0, 0.25, 1], [0.25, 0.5, 0], [0.75, 0.25, 0]],
    ),
    # π̄ = (1/2, 1/4, 1/4), Π as declared, π uniform: a = π̄ Π / π.
    "bags": (
        ["a", "b", "c", "a"],
        'kind = "bags"\npriors = { a = [1, 0, 0], b = [0, 0.5, 0.5], c = [0, 0, 1] }',
        [[1.5, 0, 0], [0, 0.375, 0.375], [0, 0, 0.75], [1.5, 0, 0]],
    ),
    "candidates": (
        ["flu|cold", "well", "cold | well", "flu|cold|well"],
        'kind = "candidates"',
        [[1, 1, 0], [0, 0, 1], [0, 1, 1], [1, 1, 1]],
    ),
    "subset": (
        ["well", "flu", "well", "flu"],
        'kind = "subset"\nclasses = ["well", "flu"]',
        [[0, 0, 1], [1, 0, 0], [0, 0, 1], [1, 0, 0]],
    ),
    "private subset": (
        ["well", "flu", "well", "flu"],
        'kind = "subset"\nclasses = ["well", "flu"]\nprivate = true',
        [[0, 0, 1], [1, 0, 0], [0, 0, 1], [1, 0, 0]],
    ),
    "unlabeled": (["?"] * 4, 'kind = "unlabeled"', [[1, 1, 1]] * 4),
}

X = np.array([[31, 39.5], [52, 37.0], [24, 38.0], [77, 40.0]])


def _csv(place: Path, labels: list[str]) -> str:
    table = pa.table({"age": X[:, 0], "heat": X[:, 1], "written": labels})
    pyarrow.csv.write_csv(table, place / "data.csv")
    return 'kind = "table"\npath = "data.csv"\nlabel = "written"'


def _semicolons(place: Path, labels: list[str]) -> str:
    rows = "".join(f"{a};x;{h};{label}\n" for (a, h), label in zip(X, labels, strict=True))
    (place / "data.csv").write_text("age;note;heat;written\n" + rows)
    return (
        'kind = "table"\npath = "data.csv"\nlabel = "written"\nseparator = ";"\n'
        'features = ["age", "heat"]'
    )


def _parquet(place: Path, labels: list[str]) -> str:
    table = pa.table({"age": X[:, 0], "heat": X[:, 1], "written": labels})
    pyarrow.parquet.write_table(table, place / "data.parquet")
    return 'kind = "table"\npath = "data.parquet"\nlabel = "written"'


def _npz(place: Path, labels: list[str]) -> str:
    np.savez(place / "data.npz", scans=X, written=np.array(labels))
    return 'kind = "arrays"\npath = "data.npz"\ninputs = "scans"\nlabels = "written"'


def _listed_images(place: Path, labels: list[str]) -> str:
    (place / "scans").mkdir()
    for i in range(4):
        Image.new("L", (3, 2), 10 * i).save(place / "scans" / f"{i}.png")
    table = pa.table({"scan": [f"{i}.png" for i in range(4)], "written": labels})
    pyarrow.csv.write_csv(table, place / "list.csv")
    return (
        'kind = "images"\npath = "scans"\ntable = "list.csv"\nfile = "scan"\nlabel = "written"\n'
        'mode = "L"'
    )


Source = Callable[[Path, list[str]], str]
SOURCES: dict[str, Source] = {
    "csv": _csv,
    "csv with semicolons": _semicolons,
    "parquet": _parquet,
    "npz": _npz,
    "listed images": _listed_images,
}


def site_file(place: Path, data: str, view: str, name: str = "clinic") -> Path:
    path = place / f"{name}.toml"
    path.write_text(f'name = "{name}"\n[data]\n{data}\n[view]\n{view}\n')
    return path


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_source_takes_every_view(source: str, kind: str, tmp_path: Path) -> None:
    labels, view, rows = KINDS[kind]
    data = SOURCES[source](tmp_path, labels)
    site, columns = load_site(site_file(tmp_path, data, view), SPACE)
    assert site.name == "clinic"
    assert torch.allclose(site.view.rows(site.symbols), torch.tensor(rows, dtype=torch.float64))
    assert site.view.private == (kind == "private subset")
    assert site.truth is None
    if source == "listed images":
        assert site.inputs.shape == (4, 1, 2, 3)
        assert site.inputs[:, 0, 0, 0].tolist() == [0, 10, 20, 30]
        assert columns is None
    else:
        assert torch.allclose(site.inputs, torch.from_numpy(X).float())
        assert columns == (None if source == "npz" else ("age", "heat"))


def test_sub_folders_are_labels(tmp_path: Path) -> None:
    for i, label in enumerate(NAMED):
        (tmp_path / "scans" / label).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (i, 0, 0)).save(tmp_path / "scans" / label / f"{i}.png")
    data = 'kind = "images"\npath = "scans"\nsize = [2, 3]'
    site, _ = load_site(site_file(tmp_path, data, 'kind = "exact"'), SPACE)
    assert site.inputs.shape == (4, 3, 2, 3)
    assert [SPACE.names[k] for k in site.symbols.tolist()] == sorted(NAMED)


def test_candidates_may_be_rows_of_a_matrix(tmp_path: Path) -> None:
    sets = np.array([[1, 1, 0], [0, 0, 1], [1, 1, 1], [0, 1, 0]])
    np.savez(tmp_path / "data.npz", x=X, y=sets)
    data = 'kind = "arrays"\npath = "data.npz"'
    site, _ = load_site(site_file(tmp_path, data, 'kind = "candidates"'), SPACE)
    assert torch.equal(site.view.rows(site.symbols), torch.from_numpy(sets).double())


def test_candidates_may_have_another_separator(tmp_path: Path) -> None:
    data = _csv(tmp_path, ["flu; cold", "well", "cold", "flu"])
    view = 'kind = "candidates"\nseparator = ";"'
    site, _ = load_site(site_file(tmp_path, data, view), SPACE)
    assert site.view.rows(site.symbols)[0].tolist() == [1, 1, 0]


def test_whole_numbers_count_target_classes_from_0(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=X, y=np.array([0, 2, 1, 0]))
    data = 'kind = "arrays"\npath = "data.npz"'
    site, _ = load_site(site_file(tmp_path, data, 'kind = "exact"'), SPACE)
    assert site.symbols.tolist() == [0, 2, 1, 0]


def test_priors_may_be_a_table_with_its_columns_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "priors.csv").write_text(
        "well,bag,flu,remark,cold\n0,a,1,x,0\n0.5,b,0,x,0.5\n1,c,0,x,0\n"
    )
    labels, _, rows = KINDS["bags"]
    view = 'kind = "bags"\npriors = "priors.csv"'
    site, _ = load_site(site_file(tmp_path, _csv(tmp_path, labels), view), SPACE)
    assert torch.allclose(site.view.rows(site.symbols), torch.tensor(rows, dtype=torch.float64))


def test_paths_are_relative_to_the_site_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "deep" / "site"
    place.mkdir(parents=True)
    path = site_file(place, _csv(place, NAMED), 'kind = "exact"')
    monkeypatch.chdir(tmp_path)
    assert len(load_site(path.relative_to(tmp_path), SPACE)[0]) == 4


def test_a_site_file_is_told_from_a_study(tmp_path: Path) -> None:
    site = site_file(tmp_path, _csv(tmp_path, NAMED), 'kind = "exact"')
    study = tmp_path / "study.toml"
    study.write_text("rounds = 1\ndata = 3\n")
    assert is_site_file(site)
    assert not is_site_file(study)
    assert not is_site_file(tmp_path / "data.csv")


def test_a_federation_of_site_files_has_its_sites_server_and_test_set(tmp_path: Path) -> None:
    data = _csv(tmp_path, NAMED)
    for name in ("north", "server", "south"):
        site_file(tmp_path, data, 'kind = "exact"', name)
    study = parse_study(
        {
            "rounds": 1,
            "folder": str(tmp_path),
            "federation": {
                "classes": list(SPACE),
                "sites": ["south.toml", "north.toml"],
                "server": "server.toml",
                "test": {"kind": "table", "path": "data.csv", "label": "written"},
            },
        },
        "study",
    )
    federation, columns = load_federation(study)
    assert [site.name for site in federation.sites] == ["south", "north"]
    assert federation.server is not None
    assert federation.server.name == "server"
    assert federation.test is not None
    assert federation.test[1].tolist() == [0, 2, 1, 0]
    assert columns == ("age", "heat")


def test_numbers_written_as_text_are_names_of_classes(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("x,y\n1,10\n2,20\n")
    data = 'kind = "table"\npath = "data.csv"\nlabel = "y"'
    path = site_file(tmp_path, data, 'kind = "exact"')
    site, _ = load_site(path, LabelSpace(("20", "10")))
    assert site.symbols.tolist() == [1, 0]
    with pytest.raises(PotluckError, match='unknown label "10"'):
        load_site(path, LabelSpace(("0", "1")))


def test_a_table_of_pixels_is_read_as_images(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,b,c,d,y\n0,255,7,8,cat\n1,2,3,4,dog\n")
    data = 'kind = "table"\npath = "data.csv"\nlabel = "y"\nimage = [1, 2, 2]'
    path = site_file(tmp_path, data, 'kind = "exact"')
    site, columns = load_site(path, LabelSpace(("cat", "dog")))
    assert columns is None
    assert site.inputs.dtype == torch.uint8
    assert site.inputs.tolist() == [[[[0, 255], [7, 8]]], [[[1, 2], [3, 4]]]]
    wrong = site_file(tmp_path, data.replace("[1, 2, 2]", "[3, 2, 2]"), 'kind = "exact"')
    with pytest.raises(PotluckError, match=r"12 pixels, but the table has 4 input columns"):
        load_site(wrong, LabelSpace(("cat", "dog")))
    (tmp_path / "data.csv").write_text("a,b,c,d,y\n0,256,7,8,cat\n")
    path = site_file(tmp_path, data, 'kind = "exact"')
    with pytest.raises(PotluckError, match="whole numbers from 0 to 255"):
        load_site(path, LabelSpace(("cat", "dog")))


def test_a_site_file_may_name_the_classes_of_the_study(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("x,y\n1,cat\n2,dog\n")
    data = 'kind = "table"\npath = "data.csv"\nlabel = "y"'
    path = site_file(tmp_path, data, 'kind = "exact"')
    path.write_text('classes = ["cat", "dog"]\n' + path.read_text())
    space = read_site_file(path).space()
    assert space == LabelSpace(("cat", "dog"))
    load_site(path, space)
    with pytest.raises(PotluckError, match="those of the study are dog, cat"):
        load_site(path, LabelSpace(("dog", "cat")))
    private = site_file(tmp_path, data, 'kind = "subset"\nclasses = ["dog"]\nprivate = true')
    assert read_site_file(private).space() == LabelSpace(("dog",))
