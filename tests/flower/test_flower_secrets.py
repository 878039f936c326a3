"""Who learns what, at the wire: the bytes that leave and reach each party, row by row.

The table is that of DESIGN §5 and docs/architecture.md.
"""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from federations import a_grid, a_study, over_flower, site_folders
from inprocess import InProcessGrid

from potluck.flower.memory import Memory
from potluck.study.build import load_federation
from potluck.study.schema import parse_study


def traffic(grid, name):
    """(what a site received, what it sent), each as one run of bytes."""
    node = next(node for node in grid.nodes.values() if node.name == name)
    return b"\n".join(node.received), b"\n".join(node.sent)


def encodings(values):
    """The bytes of some numbers as they might be written."""
    array = np.asarray(values, dtype=np.float64)
    yield array.tobytes()
    yield array.astype(np.float32).tobytes()
    yield array.astype(np.float16).tobytes()
    if (array == array.round()).all():
        yield array.astype(np.int64).tobytes()
        yield array.astype(np.int32).tobytes()
        yield array.astype(np.uint8).tobytes()


def assert_absent(values, blob, what):
    for encoded in encodings(values):
        assert encoded not in blob, what


@pytest.fixture(scope="module")
def federated(tmp_path_factory):
    """A federation of all kinds of labels, trained by a method with beliefs about each sample."""
    at = tmp_path_factory.mktemp("secrets")
    study = a_study(rounds=3, method="candidate-targets", standardise="federation")
    federation, _ = load_federation(study)
    grid = a_grid(study, at)
    run = over_flower(study, grid, at / "run")
    return federation, grid, run


def test_inputs_stay_at_the_site(federated):
    federation, grid, _ = federated
    for site in federation.sites:
        received, sent = traffic(grid, site.name)
        for sample in site.inputs[:10].flatten(1).tolist():
            row = [value for value in sample if value] or sample
            assert_absent(sample, received + sent, f"a sample of {site.name}")
            assert_absent([value / 255 for value in sample], received + sent, site.name)
            assert_absent(row, received + sent, f"a sample of {site.name}")


def test_labels_stay_at_the_site(federated):
    federation, grid, _ = federated
    for site in federation.sites:
        _, sent = traffic(grid, site.name)
        others = b"".join(traffic(grid, other.name)[0] for other in federation.sites)
        for first in range(0, len(site) - 12, 6):
            symbols = site.symbols[first : first + 12].tolist()
            if len(set(symbols)) > 2:  # else they are found by chance, as in [0, 0, 0]
                assert_absent(symbols, sent + others, f"labels of {site.name}")


def test_what_labels_are_called_stays_at_the_site(federated):
    federation, grid, _run = federated
    everything = b"".join(b"".join(traffic(grid, site.name)) for site in federation.sites)
    for name in (b'"low"', b'"high"'):
        assert name not in everything
    undecided = next(site for site in federation.sites if site.name == "undecided")
    sets = [name for name in undecided.view.symbols if name.count("|") > 1]
    assert sets
    assert not any(name.encode() in everything for name in sets)


def test_beliefs_about_samples_stay_at_the_site(federated):
    _federation, grid, _run = federated
    beliefs = 0
    for node in grid.nodes.values():
        _, sent = traffic(grid, node.name)
        memory = Memory(node.folder)
        for number in memory.remembered("0123abcd"):
            state = memory.state("0123abcd", number, torch.device("cpu"))
            for value in state.method.values():
                for row in value.flatten(1)[:20] if value.dim() > 1 else []:
                    if len(set(row.tolist())) > 2:
                        beliefs += 1
                        assert_absent(row.tolist(), sent, f"beliefs of {node.name}")
    assert beliefs > 10


def test_bag_priors_and_sizes_stay_at_the_site(federated):
    federation, grid, run = federated
    wards = next(site for site in federation.sites if site.name == "wards")
    received, sent = traffic(grid, "wards")
    everything = b"".join(b"".join(traffic(grid, site.name)) for site in federation.sites)
    everything += b"".join(p.read_bytes() for p in run.path.rglob("*") if p.is_file())
    for priors in (wards.view.proportions, wards.view.codebook):
        for row in priors.tolist():
            assert_absent(row, everything, "a bag's proportions")
            for value in row:
                if value not in (0.0, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0):
                    assert repr(value).encode() not in everything
    # The same search finds them where they are: on the site's own disk.
    folder = next(node.folder for node in grid.nodes.values() if node.name == "wards")
    own = b"".join(path.read_bytes() for path in folder.glob("data.*"))
    assert all(np.asarray(row).tobytes() in own for row in wards.view.codebook.tolist())
    sizes = torch.bincount(wards.symbols).tolist()
    assert_absent(sizes, everything, "the bags' sizes")
    assert str(sizes)[1:-1].encode() not in everything
    assert f'"bags": {len(sizes)}'.encode() not in sent + received


def test_an_estimated_correspondence_leaves_only_with_average(tmp_path):
    sites = [
        {
            "name": f"site-{i}",
            "samples": 60,
            "view": {"kind": "coarse", "mapping": {"x": list("01234"), "y": list("56789")}},
        }
        for i in range(2)
    ]
    server = {"per_class": 4, "view": {"kind": "exact"}}
    found = {}
    for kind in ("estimated", "estimated-averaged"):
        study = a_study(
            rounds=3,
            method={"name": "fedmt", "correspondence": kind, "tau": 0.1},
            simulation={"dataset": "digits", "sites": sites, "server": server},
        )
        grid = a_grid(study, tmp_path / kind)
        over_flower(study, grid, tmp_path / kind / "run")
        hits = 0
        for node in grid.nodes.values():
            _, sent = traffic(grid, node.name)
            memory = Memory(node.folder)
            for number in memory.remembered("0123abcd"):
                state = memory.state("0123abcd", number, torch.device("cpu"))
                matrix = state.method["correspondence"]
                if matrix.unique().numel() > 2:
                    hits += matrix.numpy().tobytes() in sent
        found[kind] = hits
    assert found["estimated"] == 0
    assert found["estimated-averaged"] > 0


def test_an_update_reaches_no_other_site_as_it_is(federated):
    federation, grid, _ = federated
    received = {site.name: traffic(grid, site.name)[0] for site in federation.sites}
    for node in grid.nodes.values():
        arrays = [sent for sent in node.sent if sent.startswith(b"Array ") and len(sent) > 2000]
        for sent in arrays:
            body = sent[-800:]  # the last two hundred entries
            assert not any(body in other for other in received.values())


def write_federation(folder: Path, classes, rows=48):
    """A private site and a public one, with tables; the same samples whatever the classes."""
    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(0)
    for name, own in (("den", ["puma", "lynx"]), ("zoo", ["lynx", "puma", "ocelot"])):
        values = torch.randn(rows, 4, generator=generator)
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["a", "b", "c", "d", "cat"])
            for index, row in enumerate(values.tolist()):
                writer.writerow([*row, own[index % len(own)]])
    data = 'kind = "table"\nlabel = "cat"\n'
    (folder / "den.toml").write_text(
        f'name = "den"\n[data]\npath = "den.csv"\n{data}'
        '[view]\nkind = "subset"\nclasses = ["puma", "lynx"]\nprivate = true\n'
    )
    (folder / "zoo.toml").write_text(
        f'name = "zoo"\n[data]\npath = "zoo.csv"\n{data}'
        '[view]\nkind = "subset"\nclasses = ["lynx", "puma", "ocelot"]\nsoftmax = "own"\n'
    )
    return parse_study(
        {
            "rounds": 2,
            "folder": str(folder),
            "model": {"name": "mlp", "hidden": [8]},
            "local": {"steps": 2, "batch_size": 8},
            "federated": "scaffold",
            "run": {"device": "cpu"},
            "federation": {"classes": classes, "sites": ["den.toml", "zoo.toml"]},
        },
        "test",
    )


def received_contents(grid, name):
    """The objects that reached a site, without Flower's own envelope (numbers, times)."""
    node = next(node for node in grid.nodes.values() if node.name == name)
    return [sent for sent in node.received if not sent.startswith(b"Message ")]


def test_a_private_site_receives_the_same_bytes_whatever_the_other_classes(tmp_path):
    found = []
    for number, classes in enumerate(
        [["lynx", "puma", "ocelot"], ["serval", "ocelot", "caracal", "lynx", "margay", "puma"]]
    ):
        at = tmp_path / str(number)
        study = write_federation(at / "files", classes)
        federation, columns = load_federation(study)
        grid = InProcessGrid(site_folders(federation, at / "sites", columns))
        over_flower(study, grid, at / "run")
        received, sent = traffic(grid, "den")
        for name in set(classes) - {"puma", "lynx"}:
            assert name.encode() not in received + sent
        own = next(node.folder for node in grid.nodes.values() if node.name == "den")
        kept = b"".join(path.read_bytes() for path in own.rglob("*") if path.is_file())
        assert not any(name.encode() in kept for name in set(classes) - {"puma", "lynx"})
        found.append(received_contents(grid, "den"))
    first, second = found
    # The handshake and the first round, byte for byte; in the second, the encoder has heard from
    # the other site, whose own classes are other ones: the same names and sizes.
    assert [len(part) for part in first] == [len(part) for part in second]
    half = len(first) // 2
    assert first[:half] == second[:half]


def test_no_site_learns_the_classes_of_a_private_one(tmp_path):
    # The public site knows the target classes, but not which of them the private one has, nor
    # that there is one.
    study = write_federation(tmp_path / "files", ["lynx", "puma", "ocelot"])
    federation, columns = load_federation(study)
    grid = InProcessGrid(site_folders(federation, tmp_path / "sites", columns))
    over_flower(study, grid, tmp_path / "run")
    received, _ = traffic(grid, "zoo")
    assert b'"den"' not in received.replace(b"\\", b"")
    assert b"private" not in received
    assert b"puma" not in received
