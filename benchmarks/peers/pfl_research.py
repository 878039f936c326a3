"""pfl-research's simulated backend, as its own CIFAR-10 benchmark uses it."""

import os
from collections.abc import Callable
from types import MethodType
from typing import Any

os.environ.setdefault("PFL_PYTORCH_DEVICE", "cpu")  # read when pfl is imported

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm import FederatedAveraging, NNAlgorithmParams
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data import FederatedDataset
from pfl.data.dataset import Dataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from problem import Clock, Data, Problem
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

NEVER = 10**9


def train(problem: Problem, data: Data, clock: Clock) -> nn.Module:
    np.random.seed(problem.seed)  # noqa: NPY002 (what pfl draws from)
    model = problem.network()
    simulate(model, data, problem, clock.tick)
    return model


def simulate(
    module: nn.Module,
    data: Data,
    problem: Problem,
    after_round: Callable[[], None],
    evaluate_every: int | None = None,
) -> None:
    """Train a module; its parameters move in place.

    Args:
      module:         the model.
      data:           the users' and the test samples, on pfl's device.
      problem:        rounds, cohort and local training.
      after_round:    called after each.
      evaluate_every: evaluate on the test samples, and each user's model on its own samples before
                      and after training, every so many rounds; None: not at all (but for the
                      users' in the first round, which pfl always does).
    """
    users = dict(enumerate(zip(data.inputs, data.classes, strict=True)))
    evaluation = NNEvalHyperParams(local_batch_size=10_000)
    callbacks: list[TrainingProcessCallback] = [_AfterRound(after_round)]
    if evaluate_every is not None:
        test = Dataset(raw_data=[data.test_inputs, data.test_classes])
        callbacks.insert(0, CentralEvaluationCallback(test, evaluation, evaluate_every))
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=problem.all_rounds,
            evaluation_frequency=evaluate_every or NEVER,
            train_cohort_size=problem.cohort,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(
            training_data=FederatedDataset.from_slices(users, get_user_sampler("random", [*users])),
            val_data=None,
            postprocessors=[WeightByUser()],
        ),
        model=PyTorchModel(
            model=_as_pfl(module),
            local_optimizer_create=torch.optim.SGD,
            central_optimizer=torch.optim.SGD(module.parameters(), 1.0),
        ),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=problem.lr, local_batch_size=problem.batch
        ),
        model_eval_params=evaluation,
        callbacks=callbacks,
        send_metrics_to_platform=False,
    )


def _as_pfl(module: nn.Module) -> nn.Module:
    """The module with the two functions that pfl asks for."""

    def loss(self: nn.Module, inputs: Tensor, classes: Tensor, eval: bool = False) -> Tensor:  # noqa: A002
        self.train(not eval)
        return cross_entropy(self(inputs), classes)

    @torch.no_grad()
    def metrics(self: nn.Module, inputs: Tensor, classes: Tensor, eval: bool = True) -> dict:  # noqa: A002
        self.train(not eval)
        logits = self(inputs)
        right = (logits.argmax(1) == classes).float().sum().item()
        total = cross_entropy(logits, classes, reduction="sum").item()
        return {
            "loss": Weighted(total, len(inputs)),
            "accuracy": Weighted(right, len(inputs)),
        }

    module.loss, module.metrics = MethodType(loss, module), MethodType(metrics, module)
    return module


class _AfterRound(TrainingProcessCallback):
    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.call()
        return False, Metrics()
