"""The same loop in as many processes as there are cores, with parameters in shared memory."""

from typing import Any

import torch
from problem import Clock, Data, Problem
from torch import Tensor, nn
from torch.multiprocessing import get_context
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from peers.loop import local_epoch


def train(problem: Problem, data: Data, clock: Clock) -> nn.Module:
    model = problem.network()
    context = get_context("spawn")
    theta = parameters_to_vector(model.parameters()).detach().share_memory_()
    sums = torch.zeros(problem.threads, len(theta)).share_memory_()
    jobs = [context.SimpleQueue() for _ in range(problem.threads)]
    done = context.SimpleQueue()
    workers = [
        context.Process(target=_work, args=(problem, number, theta, sums, job, done), daemon=True)
        for number, job in enumerate(jobs)
    ]
    for worker in workers:
        worker.start()
    generator = torch.Generator().manual_seed(problem.seed)
    for _ in range(problem.all_rounds):
        cohort = torch.randperm(problem.users, generator=generator)[: problem.cohort].tolist()
        for number, job in enumerate(jobs):
            job.put(cohort[number :: problem.threads])
        for _ in jobs:
            done.get()
        torch.sum(sums, 0, out=theta).div_(problem.cohort)
        clock.tick()
    for job in jobs:
        job.put(None)
    for worker in workers:
        worker.join()
    vector_to_parameters(theta, model.parameters())
    return model


def _work(problem: Problem, number: int, theta: Tensor, sums: Tensor, jobs: Any, done: Any) -> None:
    torch.set_num_threads(1)
    model, data = problem.network(), problem.data()
    generator = torch.Generator().manual_seed(problem.seed + number)
    while (cohort := jobs.get()) is not None:
        own = sums[number].zero_()
        for user in cohort:
            vector_to_parameters(theta.clone(), model.parameters())
            local_epoch(model, problem, data.inputs[user], data.classes[user], generator)
            own += parameters_to_vector(model.parameters()).detach()
        done.put(number)
