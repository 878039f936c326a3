"""Tremor severity from surface electromyograms, made up from a paper's description.

FedMT (2023) predicts the severity of tremor in Parkinson's disease (five levels of the
MDS-UPDRS) from 12 summary statistics of an sEMG signal. Its data set is not public; this is a
synthetic one in its form: a muscle's band-limited noise, in bursts at the tremor's frequency
that grow stronger with the severity, from which the same 12 statistics are computed.
"""

from pathlib import Path

import torch
from torch import Tensor

from potluck.data.dataset import Dataset, Split, check
from potluck.errors import PotluckError

SEVERITIES = ("normal", "slight", "mild", "moderate", "severe")
FEATURES = (
    "MAV", "MSV", "RMS", "VAR", "STD", "WL", "WAMP", "LOG", "SSC", "ZC", "MSF", "MF",
)  # fmt: skip

TRAIN_PER_CLASS, TEST_PER_CLASS = 1805, 200
RATE = 1000.0
"""Samples of the signal per second."""
LENGTH = 512
"""Samples of the signal per recording."""


def semg_like(path: Path | str | None = None, seed: int = 0) -> Split:
    """Make recordings of five severities, as many of each.

    Args:
      path: None: there is no file to read.
      seed: of the signals.

    Returns:
      9025 training and 1000 test rows of 12 features.
    """
    if path is not None:
        raise PotluckError(f'the sEMG-like data are made, not read: leave out the path "{path}".')
    generator = torch.Generator().manual_seed(seed)
    per_class = TRAIN_PER_CLASS + TEST_PER_CLASS
    severity = torch.arange(len(SEVERITIES)).repeat(per_class)  # 0 1 2 3 4 0 1 2 …
    features = torch.cat([summary(signals(chunk, generator)) for chunk in severity.split(2000)])
    train = len(SEVERITIES) * TRAIN_PER_CLASS
    return Split(
        check(Dataset(features[:train], severity[:train], SEVERITIES), "semg-like"),
        check(Dataset(features[train:], severity[train:], SEVERITIES), "semg-like"),
    )


def signals(severity: Tensor, generator: torch.Generator) -> Tensor:
    """Recordings of given severities.

    Args:
      severity:  (N,) levels 0 … 4.
      generator: source of the signals.

    Returns:
      (N, LENGTH) signals.
    """
    level = severity.float().unsqueeze(1)

    def normal() -> Tensor:
        return torch.randn(len(level), 1, generator=generator)

    # Every quantity varies between people, so that neighbouring severities overlap.
    strength = torch.exp(0.35 * level + 0.25 * normal())
    depth = torch.sigmoid(0.9 * (level - 2) + 0.8 * normal())
    tremor = 6.0 - 0.25 * level + 0.5 * normal()
    centre = 90.0 - 4.0 * level + 8.0 * normal()

    frequency = torch.fft.rfftfreq(LENGTH, 1 / RATE)
    band = torch.exp(-0.5 * ((frequency - centre) / 35.0) ** 2)
    parts = torch.randn(2, len(level), len(frequency), generator=generator)
    muscle = torch.fft.irfft(torch.complex(parts[0], parts[1]) * band, n=LENGTH)
    muscle = muscle / muscle.std(1, keepdim=True)
    phase = 2 * torch.pi * torch.rand(len(level), 1, generator=generator)
    time = torch.arange(LENGTH) / RATE
    bursts = 1 + depth * torch.sin(2 * torch.pi * tremor * time + phase)
    hum = 0.1 * torch.randn(len(level), LENGTH, generator=generator)
    return strength * bursts * muscle + hum


def summary(signal: Tensor) -> Tensor:
    """The 12 statistics of each recording, as Chowdhury et al. (Sensors, 2013) define them.

    Args:
      signal: (N, T) recordings.

    Returns:
      (N, 12) in the order of `FEATURES`.
    """
    threshold = 0.5
    step = signal.diff(dim=1)
    square = (signal**2).mean(1)
    variance = signal.var(1)
    turns = (step[:, :-1] * step[:, 1:] < 0) & (step[:, 1:].abs() > threshold)
    crossings = (signal[:, :-1] * signal[:, 1:] < 0) & (step.abs() > threshold)
    power = torch.fft.rfft(signal).abs() ** 2
    frequency = torch.fft.rfftfreq(signal.shape[1], 1 / RATE)
    share = power / power.sum(1, keepdim=True)
    columns = [
        signal.abs().mean(1),
        square,
        square.sqrt(),
        variance,
        variance.sqrt(),
        step.abs().sum(1),
        (step.abs() > threshold).float().sum(1),
        signal.abs().clamp_min(1e-6).log().mean(1).exp(),
        turns.float().sum(1),
        crossings.float().sum(1),
        share @ frequency,
        frequency[(share.cumsum(1) >= 0.5).int().argmax(1)],
    ]
    return torch.stack(columns, 1)
