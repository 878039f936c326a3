"""Flower's simulation runtime (Ray): a `ServerApp` with FedAvg and a `ClientApp`."""

import json
import os
from collections.abc import Iterable
from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from problem import Clock, Data, Problem
from torch import nn

from peers.loop import local_epoch

HERE = "POTLUCK_BENCHMARK"
"""Tells the actors, which are processes of their own, what the problem is."""


def train(problem: Problem, data: Data, clock: Clock, cores: int) -> nn.Module:
    """Train with actors of some cores each; 2 is Flower's default."""
    os.environ[HERE] = json.dumps({**vars(problem), "threads": cores})
    model = problem.network()
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = _TickingFedAvg(
            fraction_train=problem.cohort / problem.users,
            fraction_evaluate=0.0,
            min_train_nodes=problem.cohort,
            min_available_nodes=problem.users,
        )
        strategy.clock = clock
        result = strategy.start(
            grid, ArrayRecord(model.state_dict()), num_rounds=problem.all_rounds
        )
        model.load_state_dict(result.arrays.to_torch_state_dict())

    run_simulation(
        server_app,
        client_app,
        num_supernodes=problem.users,
        backend_config={
            "init_args": {"num_cpus": problem.threads},
            "client_resources": {"num_cpus": cores, "num_gpus": 0.0},
        },
    )
    return model


class _TickingFedAvg(FedAvg):
    clock: Clock

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        result = super().aggregate_train(server_round, replies)
        self.clock.tick()
        return result


client_app = ClientApp()


@client_app.train()
def local_training(message: Message, context: Context) -> Message:
    problem, data, model, generator = _at_hand()
    user = int(context.node_config["partition-id"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    local_epoch(model, problem, data.inputs[user], data.classes[user], generator)
    content = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": problem.samples}),
        }
    )
    return Message(content=content, reply_to=message)


@cache
def _at_hand() -> tuple[Problem, Data, nn.Module, torch.Generator]:
    """An actor makes these once."""
    problem = Problem(**json.loads(os.environ[HERE]))
    torch.set_num_threads(problem.threads)
    generator = torch.Generator().manual_seed(problem.seed + os.getpid())
    return problem, problem.data(), problem.network(), generator
