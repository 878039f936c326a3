"""The round as a Flower strategy: one message to each site, one answer from each.

The round itself is that of `potluck.engines.rounds`; here it is opened, sent out, and closed with
what came back. Flower's own loop (`Strategy.start`) drives it:

    configure_train     opens the round: a message to each site of the cohort that is there
    aggregate_train     checks the answers and closes the round with those that pass
    configure_evaluate  asks for validation, where there is any
    aggregate_evaluate  evaluates, and hands the round's state and record to be kept

A site that is not there, is late, fails, or sends what cannot be used is left out of the round and
named in its record, with the reason. A round with fewer answers than `Policy.minimum` does not
count: the state stays as it was, and the round is tried again.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from logging import INFO

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from flwr.supercore import log
from torch import Tensor

from potluck.engines.engine import Finished
from potluck.engines.evaluation import evaluate
from potluck.engines.recipe import Recipe
from potluck.engines.rounds import (
    Opened,
    Record,
    ServerState,
    close_round,
    evaluation_due,
    make_broadcast,
    open_round,
)
from potluck.engines.site_round import held_entries
from potluck.engines.static_norm import norm_sums, static_buffers
from potluck.errors import PotluckError
from potluck.federation import Federation, Site
from potluck.flower.acceptance import agreeing, check_arrived
from potluck.flower.terms import Terms
from potluck.flower.wire import (
    pack_broadcast,
    pack_tensors,
    payload,
    unpack,
    unpack_update,
)
from potluck.messages import Broadcast, Tensors, Update
from potluck.models.network import Network

OnRound = Callable[[ServerState, Record], None]


@dataclass(frozen=True)
class Policy:
    """What happens when sites fail.

    Args:
      deadline: seconds that a site has to answer.
      minimum:  answers that a round needs to count.
      retries:  how often a round that did not count is tried again before the run stops.
    """

    deadline: float = 600.0
    minimum: int = 1
    retries: int = 3


@dataclass(frozen=True, eq=False)
class Study:
    """What the coordinator runs.

    Args:
      network:          the global model.
      recipe:           what all parties agreed on.
      federation:       the sites as the coordinator knows them, its own data, the test set.
      terms:            what every site is told; `since` and `floor` are filled in for each.
      nodes:            Flower's number of each site, by name.
      policy:           what happens when sites fail.
      evaluate_every:   rounds between evaluations.
      checkpoint_every: rounds between checkpoints: how far back a resumed run may go.
    """

    network: Network
    recipe: Recipe
    federation: Federation
    terms: Terms
    nodes: Mapping[str, int]
    policy: Policy = Policy()
    evaluate_every: int = 1
    checkpoint_every: int = 1


class Rounds(Strategy):
    """Potluck's round as a Flower strategy.

    Args:
      study:    what is run.
      state:    where to start from.
      on_round: called after each round that counts, with the new state and its record.
    """

    def __init__(self, study: Study, state: ServerState, on_round: OnRound) -> None:
        self.study = study
        self.state = state
        self._on_round = on_round
        self._tried: list[dict[str, str]] = []

    def train(self, grid: Grid) -> ServerState:
        """Run the remaining rounds."""
        recipe = self.study.recipe
        self._grid = grid
        if self.state.round == 0 and recipe.batch_norm == "static":
            self.state = self._static(self.state)  # plans of the first round look at them
        while self.state.round < recipe.rounds:  # again where rounds did not count
            self.start(
                grid,
                self._arrays(),
                num_rounds=recipe.rounds - self.state.round,
                timeout=self.study.policy.deadline,
            )
        return self.state

    def summary(self) -> None:
        """Say in Flower's log what is run."""
        log(INFO, "\t%s, %s", self.study.recipe.method, self.study.recipe.federated)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Open the round; a message to each site of the cohort that is connected."""
        study = self.study
        self._began = time.perf_counter()
        self._grid = grid
        self._opened = open_round(study.network, study.recipe, study.federation, self.state)
        self._failed: dict[str, str] = {}
        self._sent = self._messages(
            "train", {site.name: self._opened.broadcast(site) for site in self._opened.cohort}
        )
        return list(self._sent.values())

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Close the round with the answers that can be used."""
        study, opened = self.study, self._opened
        answers = self._answers(self._sent, replies)
        finished = self._finished(answers)
        needed = min(study.policy.minimum, len(opened.cohort))
        self._record: Record | None = None
        if len(finished) < needed:
            self._count_failure(needed)
            return None, None
        heard = {
            done.site.name: torch.tensor(self.state.round + 1)
            for done in finished
            if done.update is not None
        }
        state, record = close_round(
            study.network, study.recipe, study.federation, self.state, opened, finished
        )
        if study.recipe.batch_norm == "static":
            state = self._static(state)
        self.state = replace(state, heard={**state.heard, **heard})
        for name, message in self._sent.items():
            record["bytes"][name]["down"] = payload(message.content)
        for name, content in answers.items():
            record["bytes"][name]["up"] = payload(content)
        record["failed"] = dict(self._failed)
        if self._tried:
            record["tried"] = self._tried
            self._tried = []
        self._record = record
        return self._arrays(), None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """A message to each site that keeps samples out of training, where it is time."""
        self._sent = {}
        if self._record is not None and self._due():
            aside = [site.name for site in self.study.federation.validation]
            self._sent = self._messages("evaluate", self._models(aside))
        return list(self._sent.values())

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Evaluate, and hand the round over to be kept."""
        if self._record is None:
            return None
        record, federation = self._record, self.study.federation
        if self._due() and federation.test is not None:
            model = (self.study.network, self.state.theta, self.state.buffers)
            record["test"] = asdict(evaluate(*model, *federation.test))
        hits = total = 0
        for content in self._answers(self._sent, replies).values():
            facts, _ = unpack(content)
            hits, total = hits + int(facts["hits"]), total + int(facts["total"])
        if total:
            record["validation"] = hits / total
        record["seconds"] = time.perf_counter() - self._began
        self._on_round(self.state, record)
        return None

    def _due(self) -> bool:
        return evaluation_due(self.study.recipe, self.state, self.study.evaluate_every)

    def _arrays(self) -> ArrayRecord:
        return pack_tensors({"theta": self.state.theta})

    def _messages(self, kind: str, broadcasts: Mapping[str, Broadcast]) -> dict[str, Message]:
        """A message for each site that is connected; the others have failed."""
        study, state = self.study, self.state
        connected = set(self._grid.get_node_ids())
        floor = max(0, state.round - 2 * study.checkpoint_every)
        messages = {}
        for name, broadcast in broadcasts.items():
            node = study.nodes.get(name)
            if node not in connected:
                self._failed[name] = "is not connected"
                continue
            since = int(state.heard[name]) if name in state.heard else 0
            terms = replace(study.terms, since=since, floor=floor)
            messages[name] = Message(
                content=pack_broadcast(broadcast, terms.facts()),
                dst_node_id=node,
                message_type=kind,
                group_id=str(state.round + 1),
                ttl=study.policy.deadline,
            )
        return messages

    def _answers(
        self, sent: Mapping[str, Message], replies: Iterable[Message]
    ) -> dict[str, RecordDict]:
        """What sites answered, by name, in the order in which they were asked."""
        # By the message that they answer: Flower itself answers for a site that is gone.
        by_id = {reply.metadata.reply_to_message_id: reply for reply in replies}
        answers = {}
        for name, message in sent.items():
            reply = by_id.get(message.metadata.message_id)
            if reply is None:
                late = f"did not answer within {self.study.policy.deadline:g} seconds"
                self._failed[name] = late
            elif reply.has_error():
                self._failed[name] = f"failed: {reply.error.reason}"
            elif (problem := _problem(reply.content)) is not None:
                self._failed[name] = problem
            else:
                answers[name] = reply.content
        return answers

    def _finished(self, answers: Mapping[str, RecordDict]) -> list[Finished]:
        """The answers that can be used, in the order of the cohort."""
        study, sites = self.study, {site.name: site for site in self._opened.cohort}
        updates: dict[str, Update] = {}
        sat_out = []
        for name, content in answers.items():
            try:
                if unpack_sat_out(content):
                    sat_out.append(name)
                    continue
                update = _placed(unpack_update(content, name), self.state.theta)
                check_arrived(
                    study.network,
                    study.recipe,
                    study.federation,
                    self.state,
                    self._opened,
                    sites[name],
                    update,
                )
            except PotluckError as error:
                self._failed[name] = f"sent what cannot be used: {error}"
                continue
            updates[name] = update
        for name, why in agreeing(updates).items():
            self._failed[name] = f"sent what cannot be used: {why}"
            del updates[name]
        return [
            Finished(site, updates.get(name), None)
            for name, site in sites.items()
            if name in updates or name in sat_out
        ]

    def _count_failure(self, needed: int) -> None:
        """A round that does not count; too many in a row end the run."""
        self._tried.append(dict(self._failed))
        if len(self._tried) > self.study.policy.retries:
            reasons = "; ".join(f'"{name}" {why}' for name, why in self._failed.items())
            raise PotluckError(
                f"round {self.state.round + 1}: fewer than {needed} sites answered, "
                f"{len(self._tried)} times in a row ({reasons}). What was learned so far is kept; "
                "mend the sites, or lower network.minimum, and coordinate again."
            )

    def _models(self, names: Iterable[str]) -> dict[str, Broadcast]:
        """The model as it now is, cut to what each site may see, without what methods add."""
        sites = {site.name: site for site in self.study.federation.sites}
        plain = replace(self.state, federated={}, method={})
        return {name: self._model(sites[name], plain) for name in names}

    def _model(self, site: Site, state: ServerState) -> Broadcast:
        held = held_entries(self.study.network.layout, site.view) if site.view.private else None
        part = state.theta if held is None else state.theta[held.to(state.theta.device)]
        return Broadcast(state.round, 0.0, part, state.buffers)

    def _static(self, state: ServerState) -> ServerState:
        """Batch-norm statistics over everybody's samples, for the model as it now is."""
        federation, policy = self.study.federation, self.study.policy
        kept, self.state = self.state, state
        sent = self._messages("query.norm", self._models([s.name for s in federation.sites]))
        replies = self._grid.send_and_receive(list(sent.values()), timeout=policy.deadline)
        self.state = kept
        sums: list[Tensors] = []
        for name, content in self._answers(sent, replies).items():
            _, (part,) = unpack(content, ["sums"])
            try:
                _check_sums(part, state.buffers)
            except PotluckError as error:
                self._failed[name] = f"sent what cannot be used: {error}"
                continue
            sums.append(part)
        if federation.server is not None:
            model = (self.study.network, state.theta, state.buffers)
            sums.append(norm_sums(*model, federation.server.inputs))
        return replace(state, buffers=static_buffers(state.buffers, sums))
