"""A site's own disk: its data as it was checked, and its state after each round.

    FOLDER/data.safetensors, data.json     samples, symbols and view, made by `potluck join`
    FOLDER/runs/RUN/round-000003.*         what the site keeps after round 3 of a run

Flower starts a site's program anew for every message, and keeps nothing when it is restarted. So
data are kept in a form that needs no reading of tables, and what the site must remember is written
before its update leaves. The coordinator says which round it last heard of (`Terms.since`): a site
whose update was lost, or that is asked twice, goes on from the state before that round.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from potluck.errors import PotluckError
from potluck.federation import Site
from potluck.flower.declaration import Declaration
from potluck.labels import LabelSpace, LabelView, exact, private_subset
from potluck.messages import SiteState, Tensors
from potluck.methods import SiteData
from potluck.study.files import read_sealed, writing, written_whole
from potluck.study.tensor_files import read_tensors, write_tensors

_PARTS = [field.name for field in fields(SiteState)]


@dataclass(frozen=True, eq=False)
class Holding:
    """What a site has.

    Args:
      site:       its samples and view; a private site's view is over its own classes only.
      columns:    names of the input columns, where the data is a table.
      validation: samples that it keeps out of training, if any.
    """

    site: Site
    columns: tuple[str, ...] | None = None
    validation: Site | None = None


@dataclass(frozen=True)
class Memory:
    """A site's folder.

    Args:
      folder: where it is.
    """

    folder: Path

    def keep_data(self, holding: Holding) -> None:
        """Store a site's data, so that its program has it at hand for each message."""
        site = secluded(holding.site)
        view = site.view
        tensors = {
            **_samples("", site),
            "codebook": view.codebook,
            "normaliser": view.normaliser,
            "prior": view.prior,
        }
        kept = holding.validation
        if kept is not None:
            tensors |= _samples("validation.", secluded(kept))
        aside = 0 if kept is None else len(kept)
        facts = {
            "declared": Declaration.of(site, holding.columns, aside).facts(),
            "name": site.name,
            "kind": view.kind,
            "private": view.private,
            "exact_validation": kept is not None and kept.view.kind == "exact",
            "classes": list(view.space),
            "symbols": list(view.symbols),
            "columns": None if holding.columns is None else list(holding.columns),
        }
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        data = {name: value.to("cpu").contiguous() for name, value in tensors.items()}
        with written_whole(self._data(".safetensors")) as temporary:
            safetensors.torch.save_file(data, temporary)
        with written_whole(self._data(".json")) as temporary:
            temporary.write_text(json.dumps(facts), encoding="utf-8")

    def declared(self) -> Declaration:
        """What the site says of the data that it stored."""
        with self._reading():
            facts = json.loads(self._data(".json").read_text(encoding="utf-8"))
        return Declaration.read(facts["declared"])

    def data(self) -> Holding:
        """The site's data as it was stored."""
        with self._reading():
            facts = json.loads(self._data(".json").read_text(encoding="utf-8"))
            stored = safetensors.torch.load_file(self._data(".safetensors"))
        # In memory that torch allocated: results of vectorised code may depend on the alignment.
        tensors = {name: value.clone() for name, value in stored.items()}
        view = LabelView(
            kind=facts["kind"],
            space=LabelSpace(tuple(facts["classes"])),
            symbols=LabelSpace(tuple(facts["symbols"])),
            codebook=tensors["codebook"],
            normaliser=tensors["normaliser"],
            prior=tensors["prior"],
            private=facts["private"],
        )
        validation = None
        if "validation.inputs" in tensors:
            own = exact(view.space) if facts["exact_validation"] else view
            validation = _site(facts["name"], "validation.", tensors, own)
        columns = None if facts["columns"] is None else tuple(facts["columns"])
        return Holding(_site(facts["name"], "", tensors, view), columns, validation)

    def keep_state(self, run: str, round_number: int, state: SiteState, floor: int) -> None:
        """Store what the site keeps after a round, and forget what nobody will ask for.

        Args:
          run:          which run.
          round_number: counted from 1.
          state:        what it keeps.
          floor:        a coordinator that resumes goes back to this many rounds at most.
        """
        folder = self._run(run)
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        tensors = {
            f"{part}/{name}": tensor
            for part in _PARTS
            for name, tensor in getattr(state, part).items()
        }
        write_tensors(_stem(folder, round_number), tensors, {"run": run, "round": round_number})
        settled = [number for number in self.remembered(run) if number <= floor]
        for number in settled[:-1]:  # the newest of them is what a resumed round starts from
            with writing(folder):
                _stem(folder, number).with_suffix(".json").unlink(missing_ok=True)
                _stem(folder, number).with_suffix(".safetensors").unlink(missing_ok=True)

    def state(self, run: str, since: int, device: torch.device) -> SiteState | None:
        """What the site kept after a round; None before its first.

        Args:
          run:    which run.
          since:  the round, counted from 1; 0 for none.
          device: where the tensors go.
        """
        if since == 0:
            return None
        stem = _stem(self._run(run), since)
        if since not in self.remembered(run):
            raise PotluckError(
                f"what the site kept after round {since} is gone from its folder. Restore the "
                "folder from a backup, or start the site with --forget to begin anew."
            )
        tensors = read_tensors(stem, read_sealed(stem.with_suffix(".json")), device)
        parts: dict[str, Tensors] = {part: {} for part in _PARTS}
        for address, tensor in tensors.items():
            part, _, name = address.partition("/")
            parts[part][name] = tensor
        return SiteState(**parts)

    def remembered(self, run: str) -> list[int]:
        """The rounds of a run whose state is there, oldest first."""
        files = self._run(run).glob("round-*.json")
        found = (re.fullmatch(r"round-(\d{6,})\.json", path.name) for path in files)
        return sorted(int(match[1]) for match in found if match)

    def _run(self, run: str) -> Path:
        # The name comes from the coordinator: it must not lead out of the folder.
        if not re.fullmatch(r"[0-9a-f]{1,64}", run):
            raise PotluckError("the coordinator names a run in a way that potluck does not")
        return self.folder / "runs" / run

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            raise PotluckError(
                f"the site's stored data cannot be read ({type(error).__name__}); start potluck "
                "join again."
            ) from None

    def _data(self, suffix: str) -> Path:
        return (self.folder / "data").with_suffix(suffix)


def secluded(site: Site) -> Site:
    """The same site, but a private one with a view over its own classes: it knows no others."""
    if not site.view.private:
        return site
    own = LabelSpace(site.view.symbols.names)
    return replace(site, view=private_subset(own, own.names), truth=SiteData.of(site).truth)


def _samples(prefix: str, site: Site) -> Tensors:
    found: dict[str, Tensor] = {f"{prefix}inputs": site.inputs, f"{prefix}symbols": site.symbols}
    if site.truth is not None:
        found[f"{prefix}truth"] = site.truth
    return found


def _site(name: str, prefix: str, tensors: Tensors, view: LabelView) -> Site:
    inputs, symbols = tensors[f"{prefix}inputs"], tensors[f"{prefix}symbols"]
    return Site(name, inputs, view, symbols, tensors.get(f"{prefix}truth"))


def _stem(folder: Path, round_number: int) -> Path:
    return folder / f"round-{round_number:06d}"
