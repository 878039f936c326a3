"""Train a federation in this process: the Python API's one verb."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from potluck.engines.engine import Engine
from potluck.engines.evaluation import Evaluation, evaluate
from potluck.engines.recipe import Recipe
from potluck.engines.rounds import ServerState, run, start
from potluck.engines.sequential import Sequential
from potluck.errors import PotluckError
from potluck.federation import Federation
from potluck.history import Record
from potluck.labels import LabelSpace, LabelView
from potluck.models import as_classifier, build, draw_rows
from potluck.models.network import Network, infer_batched
from potluck.streams import stream


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained classifier and how it came about.

    Args:
      space:   the target classes.
      network: the model's forward passes.
      state:   the server's final state.
      history: one record per round.
    """

    space: LabelSpace
    network: Network
    state: ServerState
    history: list[Record]

    def probabilities(self, inputs: Tensor) -> Tensor:
        """(N, ...) inputs → (N, K) class posteriors."""
        theta, buffers = self.state.model
        logits = infer_batched(self.network, theta, buffers, inputs.to(theta.device))
        return logits.softmax(1).cpu()

    def predict(self, inputs: Tensor, view: LabelView | None = None) -> list[str]:
        """The most probable class of each sample, or symbol of a site's view."""
        probabilities = self.probabilities(inputs)
        if view is None:
            return [self.space.names[k] for k in probabilities.argmax(1).tolist()]
        return [view.symbols.names[z] for z in view.project(probabilities).argmax(1).tolist()]

    def evaluate(self, inputs: Tensor, classes: Tensor) -> Evaluation:
        """Accuracy and loss on labelled samples."""
        theta, buffers = self.state.model
        place = theta.device
        return evaluate(self.network, theta, buffers, inputs.to(place), classes.to(place))

    def module(self) -> nn.Module:
        """The classifier as an ordinary module in evaluation mode."""
        return self.network.module(*self.state.model)


def train(
    federation: Federation,
    recipe: Recipe,
    model: str | nn.Module = "mlp",
    *,
    engine: Engine | None = None,
    device: str = "cpu",
    on_round: Callable[[ServerState, Record], None] | None = None,
) -> Trained:
    """Train one classifier over the target classes from all sites.

    Args:
      federation: the sites, with their views.
      recipe:     rounds, seed, method, federated optimiser, local training.
      model:      a name from `potluck.models.MODELS`, or any module whose last linear layer
                  gives the K class scores; it gets images as floats in [0, 1].
      engine:     who runs the local part of a round; sequential when left out.
      device:     where to train.
      on_round:   called after each round with the server's state and the history record.
    """
    recipe.check(federation)
    network = make_network(federation, recipe, model)
    place = torch.device(device)
    placed = federation.to(place)
    history: list[Record] = []

    def keep(state: ServerState, record: Record) -> None:
        history.append(record)
        if on_round is not None:
            on_round(state, record)

    state = start(network, recipe, placed, place)
    state = run(network, recipe, placed, engine or Sequential(), state, keep)
    return Trained(federation.space, network, state, history)


def make_network(federation: Federation, recipe: Recipe, model: str | nn.Module) -> Network:
    """The network to train: a named model drawn from the recipe's seed, or a given module."""
    classes = len(federation.space)
    if isinstance(model, str):
        shape = tuple(federation.sites[0].inputs.shape[1:])
        generator = stream(recipe.seed, "model")
        classifier = build(model, shape, classes, generator=generator)
        if any(site.view.private for site in federation.sites):
            draw_rows(classifier.head, federation.space.names, recipe.seed)
        return Network(classifier)
    classifier = as_classifier(model)
    if classifier.classes != classes:
        raise PotluckError(
            f"the model scores {classifier.classes} classes but the federation has {classes}; "
            "give its last linear layer as many outputs as there are target classes."
        )
    return Network(classifier)
