"""Exported models predict what the run predicts, in other software."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from potluck import export
from potluck.data.readers.digits import digits
from potluck.errors import PotluckError
from potluck.export import Deployed, Exportable
from potluck.labels import LabelSpace, subset
from potluck.models import build
from potluck.study.build import prepare
from potluck.study.execute import run_study
from potluck.study.exporting import export_run
from potluck.study.model_files import load_model
from potluck.study.runfolder import RunFolder
from potluck.study.schema import parse_study

SITE = """\
name = "registry"

[data]
kind = "arrays"
path = "few.npz"

[view]
kind = "coarse"
mapping = { low = ["0", "1", "2", "3", "4"], high = ["5", "6", "7", "8", "9"] }
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on digits with a convolutional network and standardised inputs, and a site file."""
    folder = tmp_path_factory.mktemp("export")
    study = parse_study(
        {
            "rounds": 1,
            "model": "lenet",
            "standardise": "federation",
            "simulation": {
                "dataset": "digits",
                "sites": [{"name": "clinic", "samples": 100, "view": {"kind": "exact"}}],
            },
        },
        "the test",
    )
    run_study(study, prepare(study), folder / "run", lambda record: None)
    data = digits()
    np.savez(folder / "few.npz", x=data.inputs[:4].numpy(), y=np.array(["low"] * 4))
    (folder / "site.toml").write_text(SITE)
    return folder


@pytest.fixture(scope="module")
def exported(place: Path) -> Path:
    return export_run(place / "run", None, "onnx", None)


def predicted(path: Path, inputs: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    session = onnxruntime.InferenceSession(path)
    return session.run(["probabilities", "prediction"], {"inputs": inputs.numpy()})


def test_onnx_predicts_raw_images_as_the_run_does(place, exported):
    assert exported == place / "run" / "model.onnx"
    trained = load_model(RunFolder.open(place / "run"))
    for count in (1, 50):  # another size of batch than it was exported with
        inputs = digits().inputs[:count]
        assert inputs.dtype == torch.uint8
        probabilities, labels = predicted(exported, inputs)
        np.testing.assert_allclose(probabilities, trained.probabilities(inputs), atol=1e-6)
        assert [trained.space.names[k] for k in labels] == trained.predict(inputs)


def test_onnx_says_what_its_inputs_and_labels_are(exported):
    model = onnx.load(exported)
    onnx.checker.check_model(model)
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(facts["labels"]) == [str(k) for k in range(10)]
    assert "uint8" in facts["inputs"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_a_model_for_a_site_predicts_its_own_labels(place):
    path = export_run(place / "run", place / "site.pt2", "pt2", place / "site.toml")
    extra = {"potluck.json": ""}
    module = torch.export.load(path, extra_files=extra).module()
    assert json.loads(extra["potluck.json"])["labels"] == ["low", "high"]
    inputs = digits().inputs[:30]
    probabilities, labels = module(inputs)
    classes = load_model(RunFolder.open(place / "run")).probabilities(inputs)
    expected = torch.stack([classes[:, :5].sum(1), classes[:, 5:].sum(1)], 1)
    torch.testing.assert_close(probabilities, expected)
    assert torch.equal(labels, expected.argmax(1))


def test_a_subset_view_is_projected_as_the_library_does():
    space = LabelSpace(("a", "b", "c"))
    view = subset(space, ("c", "a"))
    model = build("linear", (4,), 3)
    inputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    expected = view.project(model(inputs).softmax(1))
    torch.testing.assert_close(Deployed(model, view)(inputs)[0], expected)


def test_without_the_extra_the_message_says_what_to_install(place, monkeypatch):
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    with pytest.raises(PotluckError, match=r'onnx.*pip install "potluck\[export\]".*pt2'):
        export_run(place / "run", place / "none.onnx", "onnx", None)
    ready = Exportable(Deployed(build("linear", (4,), 3)), torch.zeros(2, 4), {"labels": ["a"]})
    ready.write(place / "fine.pt2", "pt2")


def test_an_unknown_format_is_refused(place):
    with pytest.raises(PotluckError, match='unknown format "onx"; did you mean "onnx"'):
        export_run(place / "run", None, "onx", None)


def test_a_folder_is_no_file(place):
    with pytest.raises(PotluckError, match="is a folder; give the name of a file"):
        export_run(place / "run", place, "onnx", None)
