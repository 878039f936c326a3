"""FedLab's standalone pipeline."""

import logging
import random
from collections.abc import Iterator

import torch

# FedLab imports torchvision, whose package for CUDA lacks two operators on a CPU build of torch;
# FedLab uses neither of them.
_LIBRARY = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    _LIBRARY.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer  # noqa: E402
from fedlab.contrib.algorithm.basic_server import SyncServerHandler  # noqa: E402
from fedlab.core.standalone import StandalonePipeline  # noqa: E402
from problem import Clock, Data, Problem  # noqa: E402
from torch import Tensor, nn  # noqa: E402


def train(problem: Problem, data: Data, clock: Clock) -> nn.Module:
    random.seed(problem.seed)
    quiet = logging.getLogger("fedlab")
    share = problem.cohort / problem.users
    handler = SyncServerHandler(problem.network(), problem.all_rounds, share, logger=quiet)
    trainer = SGDSerialClientTrainer(problem.network(), problem.users, logger=quiet)
    trainer.setup_dataset(_Users(data, problem.seed))
    trainer.setup_optim(1, problem.batch, problem.lr)
    _Pipeline(handler, trainer, clock).main()
    return handler.model


class _Users:
    """Whole batches at once: quicker than the `DataLoader` of FedLab's examples."""

    def __init__(self, data: Data, seed: int) -> None:
        self.data, self.generator = data, torch.Generator().manual_seed(seed)

    def get_dataloader(self, user: int, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        inputs, classes = self.data.inputs[user], self.data.classes[user]
        for index in torch.randperm(len(inputs), generator=self.generator).split(batch_size):
            yield inputs[index], classes[index]


class _Pipeline(StandalonePipeline):
    def __init__(
        self, handler: SyncServerHandler, trainer: SGDSerialClientTrainer, clock: Clock
    ) -> None:
        super().__init__(handler, trainer)
        self.clock = clock

    def evaluate(self) -> None:
        self.clock.tick()
