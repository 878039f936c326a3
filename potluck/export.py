"""A trained model as one file for other software: ONNX, or PyTorch's own exported program.

The graph takes samples as they are stored, uint8 images or numbers of a table, and does the rest
itself: scaling to [0, 1], the normalisation that the model was trained with, softmax, and on
request the projection to the labels of a site's view. Label names travel along as metadata.
"""

import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from potluck.errors import PotluckError
from potluck.labels import LabelView

FORMATS = ("onnx", "pt2")
"""For any runtime, and for PyTorch without Potluck."""

INPUT, PROBABILITIES, PREDICTION = "inputs", "probabilities", "prediction"
"""Names of the graph's input (N, …), and outputs (N, L) and (N,) of label numbers."""


class Deployed(nn.Module):
    """Samples as they are stored → probabilities of all labels, and the most probable one.

    Args:
      classifier: gives class scores (N, K).
      view:       the labels to predict in; the target classes when left out.
    """

    def __init__(self, classifier: nn.Module, view: LabelView | None = None) -> None:
        super().__init__()
        self.classifier = classifier
        self.projected = view is not None
        if view is not None:
            self.register_buffer("codebook", view.codebook.float())
            self.register_buffer("normaliser", view.normaliser.float())

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """(N, ...) samples → (N, L) probabilities, (N,) label numbers."""
        probabilities = self.classifier(inputs).softmax(1)
        if self.projected:
            # As LabelView.project: 0 on all of the site's classes must not become 0 / 0.
            eta = probabilities.clamp_min(torch.finfo(torch.float32).tiny)
            probabilities = eta @ self.codebook.T / (eta @ self.normaliser).unsqueeze(1)
        return probabilities, probabilities.argmax(1)


@dataclass(frozen=True, eq=False)
class Exportable:
    """A model that is ready to be exported.

    Args:
      module:  from samples to predictions.
      example: (2, ...) samples of the shape and type that the model takes.
      facts:   what whoever uses the file must know; JSON values.
    """

    module: Deployed
    example: Tensor
    facts: Mapping[str, Any]

    def write(self, out: Path, form: str) -> None:
        """Write the file.

        Args:
          out:  where.
          form: one of `FORMATS`.
        """
        if form == "onnx":
            self._write_onnx(out)
        else:
            torch.export.save(self._program(), out, extra_files={"potluck.json": self._text()})

    def _program(self) -> torch.export.ExportedProgram:
        batch = torch.export.Dim("batch")
        with torch.no_grad():
            return torch.export.export(
                self.module.eval(), (self.example,), dynamic_shapes={INPUT: {0: batch}}
            )

    def _write_onnx(self, out: Path) -> None:
        missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
        if missing:
            raise PotluckError(
                f"ONNX needs the package {missing[0]}, which is not installed: "
                'pip install "potluck[export]". Or use --format pt2, which needs only PyTorch.'
            )
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(
                self.module.eval(),
                (self.example,),
                input_names=[INPUT],
                output_names=[PROBABILITIES, PREDICTION],
                dynamic_shapes={INPUT: {0: "batch"}},
                dynamo=True,
                verbose=False,
            )
        assert program is not None
        for key, value in self.facts.items():
            program.model.metadata_props[key] = _plain(value)
        program.save(out, external_data=False)

    def _text(self) -> str:
        return json.dumps(self.facts, ensure_ascii=False, indent=1)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks about itself: operators of packages that are not used here."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        logger.setLevel(level)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
