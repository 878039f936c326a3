"""Who takes part: sites with their data and views, the server's own data, the test set."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from potluck.errors import PotluckError
from potluck.labels import Identifiability, LabelSpace, LabelView, exact, identifiability
from potluck.labels.view import Labels


@dataclass(frozen=True, eq=False)
class Site:
    """One site: its samples and what it observed about each.

    Args:
      name:    how people call it.
      inputs:  (N, ...) uint8 images or float features.
      view:    what its symbols say about the target classes.
      symbols: (N,) int64, the observed symbol of each sample.
      truth:   (N,) int64 true classes, or None. Only simulations know them, and only metrics
               look at them.
    """

    name: str
    inputs: Tensor
    view: LabelView
    symbols: Tensor
    truth: Tensor | None = None

    @classmethod
    def of(
        cls,
        name: str,
        inputs: Tensor,
        view: LabelView,
        labels: Labels | None = None,
        truth: Tensor | None = None,
    ) -> "Site":
        """A site from labels as people write them; see `LabelView.observe`."""
        try:
            symbols = view.observe(labels, len(inputs))
        except PotluckError as error:
            raise PotluckError(f'site "{name}": {error}') from None
        return cls(name, inputs, view, symbols, truth)

    def __len__(self) -> int:
        return len(self.inputs)

    def subset(self, index: Tensor) -> "Site":
        """The same site with some of its samples."""
        truth = None if self.truth is None else self.truth[index]
        return replace(self, inputs=self.inputs[index], symbols=self.symbols[index], truth=truth)

    def revealed(self) -> "Site":
        """The same site with its true classes as labels; only simulations know them."""
        if self.truth is None:
            raise PotluckError(f'site "{self.name}" does not know the true classes.')
        return replace(self, view=exact(self.view.space), symbols=self.truth)

    def to(self, device: torch.device) -> "Site":
        """The same site with its samples on a device."""
        truth = None if self.truth is None else self.truth.to(device)
        inputs, symbols = self.inputs.to(device), self.symbols.to(device)
        return replace(self, inputs=inputs, symbols=symbols, truth=truth)


@dataclass(frozen=True, eq=False)
class Federation:
    """Sites that train one classifier over the target classes.

    Args:
      space:  the K target classes.
      sites:  the sites, each with its own view.
      server: data that the server itself holds, if any; a site like any other.
      test:   (inputs, (N,) classes) that the server evaluates on, if any.
      validation: samples that sites keep out of training to choose the best round by: sites
              again, with the names of those that they belong to, and their views or exact ones.
    """

    space: LabelSpace
    sites: tuple[Site, ...]
    server: Site | None = None
    test: tuple[Tensor, Tensor] | None = None
    validation: tuple[Site, ...] = ()

    @classmethod
    def of(
        cls,
        sites: Sequence[Site],
        server: Site | None = None,
        test: tuple[Tensor, Tensor] | None = None,
        validation: Sequence[Site] = (),
    ) -> "Federation":
        """A checked federation of sites that share their target classes."""
        if not sites:
            raise PotluckError("a federation needs at least one site.")
        space = sites[0].view.space
        if test is not None:
            test = (test[0], _test_classes(space, test[1]))
        federation = cls(space, tuple(sites), server, test, tuple(validation))
        federation.check()
        return federation

    def check(self) -> None:
        """Raise a clear error for whatever would make training fail or mislead."""
        names = [site.name for site in self.everyone]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise PotluckError(f'two sites are called "{twice[0]}"; names must be distinct.')
        if self.server is not None and self.server.view.private:
            raise PotluckError(
                "the server's own view is private, but the server knows all classes; "
                "give it a subset view."
            )
        first = self.sites[0].inputs
        for site in (*self.everyone, *self.validation):
            _check_site(site, self.space, first)
        for aside in self.validation:
            if aside.name not in names:
                raise PotluckError(f'there are validation samples of "{aside.name}", but no site.')
        if self.test is not None:
            inputs, classes = self.test
            if len(inputs) != len(classes) or len(inputs) == 0:
                raise PotluckError(
                    f"the test set has {len(inputs)} samples and {len(classes)} classes; "
                    "it needs one class per sample, and at least one sample."
                )
            _check_inputs("the test set", inputs, first)
            _test_classes(self.space, classes)

    @property
    def everyone(self) -> tuple[Site, ...]:
        """The sites, and the server where it has data of its own."""
        return self.sites if self.server is None else (*self.sites, self.server)

    def identifiability(self) -> Identifiability:
        """What the sites' views (and the server's) can separate."""
        views = {site.name: site.view for site in self.sites}
        if self.server is not None:
            views[self.server.name] = self.server.view
        return identifiability(views)

    def revealed(self) -> "Federation":
        """The same federation with the true classes as everybody's labels: an upper bound."""
        return replace(
            self,
            sites=tuple(site.revealed() for site in self.sites),
            validation=tuple(site.revealed() for site in self.validation),
            server=None if self.server is None else self.server.revealed(),
        )

    def to(self, device: torch.device) -> "Federation":
        """The same federation with all data on a device."""
        return replace(
            self,
            sites=tuple(site.to(device) for site in self.sites),
            server=None if self.server is None else self.server.to(device),
            validation=tuple(site.to(device) for site in self.validation),
            test=None if self.test is None else (self.test[0].to(device), self.test[1].to(device)),
        )


def _test_classes(space: LabelSpace, classes: Tensor) -> Tensor:
    try:
        return space.encode(classes)
    except PotluckError as error:
        raise PotluckError(f"the test set: {error}") from None


def _check_site(site: Site, space: LabelSpace, first: Tensor) -> None:
    where = f'site "{site.name}"'
    if len(site) == 0:
        raise PotluckError(f"{where} has no samples; leave it out or give it data.")
    if site.view.space != space:
        raise PotluckError(f"{where} has a view over other target classes than the first site.")
    _check_inputs(where, site.inputs, first)
    if len(site.symbols) != len(site):
        raise PotluckError(f"{where} has {len(site)} samples but {len(site.symbols)} symbols.")
    if not ((site.symbols >= 0) & (site.symbols < len(site.view.symbols))).all():
        raise PotluckError(
            f"{where} has symbols outside 0…{len(site.view.symbols) - 1}; its view has "
            f"{len(site.view.symbols)} symbols."
        )
    if site.truth is not None and len(site.truth) != len(site):
        raise PotluckError(f"{where} has {len(site)} samples but {len(site.truth)} true classes.")


def _check_inputs(where: str, inputs: Tensor, first: Tensor) -> None:
    if inputs.shape[1:] != first.shape[1:]:
        raise PotluckError(
            f"{where} has samples of shape {tuple(inputs.shape[1:])}, the first site of "
            f"shape {tuple(first.shape[1:])}; all sites need the same inputs."
        )
    if inputs.is_floating_point() != first.is_floating_point():
        raise PotluckError(
            f"{where} has samples of type {inputs.dtype}, the first site of type {first.dtype}; "
            "whole numbers are scaled to [0, 1] and fractions are not, so use one kind for all."
        )
    if inputs.is_floating_point() and not torch.isfinite(inputs).all():
        bad = (~torch.isfinite(inputs.flatten(1))).any(1).nonzero()
        raise PotluckError(
            f"{where}: sample {int(bad[0])} has an input that is not a finite number "
            f"({len(bad)} such samples); fill in or drop missing values."
        )
