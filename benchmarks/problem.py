"""What all tools are given to do: the same data, model and local training."""

import hashlib
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from models import MODELS, Shape
from torch import Tensor, nn


@dataclass(frozen=True)
class Problem:
    """FedAvg with plain SGD: one epoch at each user of a cohort, no evaluation.

    Args:
      model:   a key of `models.MODELS`.
      shape:   (C, H, W) of an image.
      users:   how many there are.
      samples: each has.
      cohort:  users of a round.
      batch:   samples of a step.
      lr:      learning rate.
      planned: rounds of the study that is simulated; a tool may prepare itself for as many.
      warm_up: the first rounds, which are not counted.
      rounds:  the next ones, which are; then it is enough.
      seed:    of the data and the first parameters.
      threads: of the processor.
    """

    model: str
    shape: Shape
    users: int
    samples: int
    cohort: int
    batch: int
    lr: float = 0.05
    planned: int = 1000
    warm_up: int = 2
    rounds: int = 10
    seed: int = 0
    threads: int = 2

    @property
    def steps(self) -> int:
        """Local steps of a round."""
        return self.cohort * -(-self.samples // self.batch)

    @property
    def all_rounds(self) -> int:
        """With those that are not counted."""
        return self.warm_up + self.rounds

    def network(self) -> nn.Module:
        """The model with its first parameters, the same ones for every tool."""
        torch.manual_seed(self.seed)
        return MODELS[self.model](tuple(self.shape))

    def data(self) -> "Data":
        """The data; read from a file that all processes share."""
        size = (tuple(self.shape), self.users, self.samples, self.seed)
        name = hashlib.blake2b(repr(size).encode(), digest_size=8).hexdigest()
        path = Path(tempfile.gettempdir()) / f"potluck-benchmark-{name}.pt"
        if not path.exists():
            part = path.with_suffix(".part")
            torch.save(asdict(_drawn(*size)), part)
            part.rename(path)
        return Data(**torch.load(path, mmap=True))


@dataclass(frozen=True)
class Data:
    """Ten classes, each a pattern under noise.

    Args:
      inputs:       (U, N, C, H, W) float32, about 0 to 1.
      classes:      (U, N) int64.
      test_inputs:  (T, C, H, W).
      test_classes: (T,).
    """

    inputs: Tensor
    classes: Tensor
    test_inputs: Tensor
    test_classes: Tensor

    def accuracy(self, model: nn.Module) -> float:
        """Of a trained model: a tool that is fast because it does not learn is no good."""
        with torch.no_grad():
            guess = model.eval()(self.test_inputs).argmax(1)
        return float((guess == self.test_classes).float().mean())


class Clock:
    """Notes when rounds end, and what a tool remarks; `began` is when the process started."""

    def __init__(self, began: float) -> None:
        self.began, self.ends = began, list[float]()
        self.remarks: list[str] = []

    def tick(self) -> None:
        self.ends.append(time.time())

    def report(self, problem: Problem) -> dict[str, Any]:
        """Seconds of each counted round, and of all that came before them."""
        assert len(self.ends) == problem.all_rounds, (len(self.ends), problem)
        last = problem.warm_up - 1
        pairs = zip(self.ends[last:-1], self.ends[last + 1 :], strict=True)
        return {
            "rounds": [end - start for start, end in pairs],
            "until counted": self.ends[last] - self.began,
            "remarks": self.remarks,
        }


def _drawn(shape: Shape, users: int, samples: int, seed: int) -> Data:
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.randn(10, *shape, generator=generator)

    def images(classes: Tensor) -> Tensor:
        noise = torch.randn(len(classes), *shape, generator=generator)
        return (0.5 + 0.1 * patterns[classes] + 0.2 * noise).clamp_(0, 1)

    classes = torch.randint(0, 10, (users, samples), generator=generator)
    inputs = images(classes.flatten()).view(users, samples, *shape)
    test = torch.randint(0, 10, (1000,), generator=generator)
    return Data(inputs, classes, images(test), test)
