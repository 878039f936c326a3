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

from potluck.engines import Sequential
from potluck.engines.engine import Finished
from potluck.engines.evaluation import evaluate
from potluck.engines.recipe import Recipe
from potluck.engines.rounds import ServerState, close_round, evaluation_due, open_round
from potluck.engines.site_round import held_entries
from potluck.engines.static_norm import norm_sums, static_buffers
from potluck.errors import PotluckError
from potluck.federation import Federation, Site
from potluck.flower.acceptance import agreeing, check_alike, check_arrived
from potluck.flower.grid import INTERVAL
from potluck.flower.terms import Terms
from potluck.flower.wire import (
    facts_of,
    pack_broadcast,
    pack_tensors,
    payload,
    unpack,
    unpack_update,
)
from potluck.history import Record
from potluck.messages import Broadcast, Tensors, Update
from potluck.models.network import Network

_LONGEST = 500  # characters of a site's own words in the history

GRACE = 30.0
"""Seconds after the deadline for which Flower keeps a message, so that it is we who say that a
site is late, and not Flower that there is no such message."""

OnRound = Callable[[ServerState, Record], None]


@dataclass(frozen=True)
class Policy:
    """What happens when sites fail.

    Args:
      deadline: seconds that a site has to answer.
      minimum:  answers that a round needs to count.
      retries:  how often a round that did not count is tried again before the run stops.
      absence:  seconds that a site which is not connected has to come back, once.
    """

    deadline: float = 600.0
    minimum: int = 1
    retries: int = 3
    absence: float = 0.0


@dataclass(frozen=True, eq=False)
class Setup:
    """What the coordinator runs.

    Args:
      network:          the global model.
      recipe:           what all parties agreed on.
      federation:       the sites as the coordinator knows them, its own data, the test set.
      terms:            what each site is told, but for `since` and `floor`.
      nodes:            Flower's number of each site that is connected, by name.
      policy:           what happens when sites fail.
      evaluate_every:   rounds between evaluations.
      checkpoint_every: rounds between checkpoints: how far back a resumed run may go.
    """

    network: Network
    recipe: Recipe
    federation: Federation
    terms: Mapping[str, Terms]
    nodes: Callable[[Grid], Mapping[str, int]]
    policy: Policy = Policy()
    evaluate_every: int = 1
    checkpoint_every: int = 1


class Rounds(Strategy):
    """Potluck's round as a Flower strategy.

    Args:
      setup:    what is run.
      state:    where to start from.
      on_round: called after each round that counts, with the new state and its record.
    """

    def __init__(self, setup: Setup, state: ServerState, on_round: OnRound) -> None:
        self.setup = setup
        self.state = state
        self._on_round = on_round
        self._record: Record | None = None
        self._failed: dict[str, str] = {}
        self._tried: list[dict[str, str]] = []
        self._away: dict[str, float] = {}

    def train(self, grid: Grid) -> ServerState:
        """Run the remaining rounds."""
        recipe = self.setup.recipe
        self._grid = grid
        if self.state.round == 0 and recipe.batch_norm == "static":
            self.state = self._static(self.state)  # plans of the first round look at them
        while self.state.round < recipe.rounds:  # again where rounds did not count
            self.start(
                grid,
                self._arrays(),
                num_rounds=recipe.rounds - self.state.round,
                timeout=self.setup.policy.deadline,
            )
        return self.state

    def summary(self) -> None:
        """Say in Flower's log what is run."""
        log(INFO, "\t%s, %s", self.setup.recipe.method, self.setup.recipe.federated)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Open the round; a message to each site of the cohort that is connected."""
        setup = self.setup
        self._began = time.perf_counter()
        self._grid = grid
        self._opened = open_round(setup.network, setup.recipe, setup.federation, self.state)
        self._failed = {}
        self._await_enough()
        broadcasts = {site.name: self._opened.broadcast(site) for site in self._opened.cohort}
        self._sent = self._messages("train", broadcasts, self.state)
        return list(self._sent.values())

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Close the round with the answers that can be used."""
        setup, opened = self.setup, self._opened
        answers = self._answers(self._sent, replies)
        finished = self._finished(answers)
        self._record = None
        if len(finished) < self._needed:
            self._count_failure()
            return None, None
        heard = {
            done.site.name: torch.tensor(self.state.round + 1)
            for done in finished
            if done.update is not None
        }
        parties = setup.network, setup.recipe, setup.federation
        one_by_one = [[done] for done in finished]
        state, record = close_round(*parties, self.state, opened, one_by_one, Sequential())
        if setup.recipe.batch_norm == "static":
            state = self._static(state)
        self.state = replace(state, heard={**state.heard, **heard})
        for name, message in self._sent.items():
            record["bytes"][name]["down"] = payload(message.content)
        for name, content in answers.items():
            record["bytes"][name]["up"] = payload(content)
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
            aside = [site.name for site in self.setup.federation.validation]
            theta, buffers = self.state.model
            models = self._models(aside, replace(self.state, theta=theta, buffers=buffers))
            self._sent = self._messages("evaluate", models, self.state)
        return list(self._sent.values())

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Evaluate, and hand the round over to be kept."""
        if self._record is None:
            return None
        record, federation = self._record, self.setup.federation
        if self._due() and federation.test is not None:
            model = (self.setup.network, *self.state.model)
            record["test"] = asdict(evaluate(*model, *federation.test))
        if (share := self._validated(replies)) is not None:
            record["validation"] = share
        record["failed"] = dict(self._failed)
        record["seconds"] = time.perf_counter() - self._began
        self._on_round(self.state, record)
        return None

    def _validated(self, replies: Iterable[Message]) -> float | None:
        """The share of validation samples that sites found predicted right; None without any."""
        hits = total = 0
        for name, content in self._answers(self._sent, replies).items():
            facts = facts_of(content)
            right, count = facts.get("hits"), facts.get("total")
            if type(right) is not int or type(count) is not int or not 0 <= right <= count:
                self._failed[name] = "sent what cannot be used: no count of validation samples"
                continue
            hits, total = hits + right, total + count
        return hits / total if total else None

    def _due(self) -> bool:
        return evaluation_due(self.setup.recipe, self.state, self.setup.evaluate_every)

    def _arrays(self) -> ArrayRecord:
        return pack_tensors({"theta": self.state.theta})

    def _messages(
        self, kind: str, broadcasts: Mapping[str, Broadcast], state: ServerState
    ) -> dict[str, Message]:
        """A message for each site that is connected; the others have failed."""
        setup = self.setup
        connected = self._connected(broadcasts)
        floor = max(0, state.round - 2 * setup.checkpoint_every)
        messages = {}
        for name, broadcast in broadcasts.items():
            if name not in connected:
                self._failed[name] = "is not connected"
                continue
            since = int(state.heard[name]) if name in state.heard else 0
            terms = replace(setup.terms[name], since=since, floor=floor)
            messages[name] = Message(
                content=pack_broadcast(broadcast, terms.facts()),
                dst_node_id=connected[name],
                message_type=kind,
                group_id=str(state.round + 1),
                ttl=setup.policy.deadline + GRACE,
            )
        return messages

    def _connected(self, names: Iterable[str]) -> Mapping[str, int]:
        """Who is connected, after waiting for those of some sites that went away lately.

        A site that was restarted is back in a moment. One that stays away is waited for only once.
        """
        policy, end = self.setup.policy, time.monotonic() + self.setup.policy.deadline
        while True:
            here, now = self.setup.nodes(self._grid), time.monotonic()
            self._away = {name: since for name, since in self._away.items() if name not in here}
            waited = [now - self._away.setdefault(name, now) for name in names if name not in here]
            if now >= end or all(seconds >= policy.absence for seconds in waited):
                return here
            time.sleep(INTERVAL)

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
                late = f"did not answer within {self.setup.policy.deadline:g} seconds"
                self._failed[name] = late
            elif reply.has_error():
                self._failed[name] = f"failed: {reply.error.reason}"[:_LONGEST]
            else:
                answers[name] = reply.content
        for name, content in list(answers.items()):
            try:
                problem = facts_of(content).get("problem")
            except PotluckError as error:
                problem = f"sent what cannot be used: {error}"
            if problem is not None:
                self._failed[name] = str(problem)[:_LONGEST]
                del answers[name]
        return answers

    def _finished(self, answers: Mapping[str, RecordDict]) -> list[Finished]:
        """The answers that can be used, in the order of the cohort."""
        setup, sites = self.setup, {site.name: site for site in self._opened.cohort}
        updates: dict[str, Update] = {}
        sat_out = []
        for name, content in answers.items():
            try:
                if facts_of(content).get("sat_out") is True:
                    sat_out.append(name)
                    continue
                update = _placed(unpack_update(content, name), self.state.theta)
                check_arrived(
                    setup.network,
                    setup.recipe,
                    setup.federation,
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

    @property
    def _needed(self) -> int:
        """Answers that the round needs to count."""
        return min(self.setup.policy.minimum, len(self._opened.cohort))

    def _await_enough(self) -> None:
        """Wait for sites where too few are connected, but no longer than for their answers."""
        cohort = {site.name for site in self._opened.cohort}
        end = time.monotonic() + self.setup.policy.deadline
        while time.monotonic() < end:
            if len(cohort & self.setup.nodes(self._grid).keys()) >= self._needed:
                return
            time.sleep(INTERVAL)

    def _count_failure(self) -> None:
        """A round that does not count; too many in a row end the run."""
        self._tried.append(dict(self._failed))
        if len(self._tried) > self.setup.policy.retries:
            reasons = "; ".join(f'"{name}" {why}' for name, why in self._failed.items())
            raise PotluckError(
                f"round {self.state.round + 1}: fewer than {self._needed} sites answered, "
                f"{len(self._tried)} times in a row ({reasons}). What was learned so far is kept; "
                "mend the sites, or lower network.minimum, and coordinate again."
            )

    def _models(self, names: Iterable[str], state: ServerState) -> dict[str, Broadcast]:
        """The model as it now is, cut to what each site may see, without what methods add."""
        sites = {site.name: site for site in self.setup.federation.sites}
        return {name: self._model(sites[name], state) for name in names}

    def _model(self, site: Site, state: ServerState) -> Broadcast:
        held = held_entries(self.setup.network.layout, site.view) if site.view.private else None
        part = state.theta if held is None else state.theta[held.to(state.theta.device)]
        return Broadcast(state.round, 0.0, part, state.buffers)

    def _static(self, state: ServerState) -> ServerState:
        """Batch-norm statistics over everybody's samples, for the model as it now is."""
        federation, policy = self.setup.federation, self.setup.policy
        models = self._models([site.name for site in federation.sites], state)
        sent = self._messages("query.norm", models, state)
        replies = self._grid.send_and_receive(list(sent.values()), timeout=policy.deadline)
        own = (self.setup.network, state.theta, state.buffers)
        # What sums look like, from a look at two blank samples (one has no statistics).
        blank = federation.sites[0].inputs[:1].repeat_interleave(2, 0)
        shapes = norm_sums(*own, blank)
        sums: list[Tensors] = []
        for name, content in self._answers(sent, replies).items():
            try:
                _, (part,) = unpack(content, ["sums"])
                check_alike("the sums of layer inputs", part, shapes)
            except PotluckError as error:
                self._failed[name] = f"sent what cannot be used: {error}"
                continue
            sums.append(part)
        if federation.server is not None:
            sums.append(norm_sums(*own, federation.server.inputs))
        return replace(state, buffers=static_buffers(state.buffers, sums))


def _placed(update: Update, like: Tensor) -> Update:
    def there(tensors: Tensors) -> Tensors:
        return {name: tensor.to(like.device) for name, tensor in tensors.items()}

    return replace(
        update,
        delta=update.delta.to(like.device),
        buffers=there(update.buffers),
        aligned=there(update.aligned),
        extras=there(update.extras),
        weights=None if update.weights is None else update.weights.to(like.device),
    )
