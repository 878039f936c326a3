"""What crosses between the server and a site in a round, and what never does.

Inputs, labels, per-sample beliefs, bag priors and class names have no place in these types.
"""

from dataclasses import dataclass, field

from torch import Tensor

Tensors = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Broadcast:
    """Server → site, at the start of a round.

    Args:
      round:   the round's number, from 0.
      lr:      the learning rate of this round; a 0-d tensor where an engine captures steps.
      theta:   (P_s,) parameters; a private site gets the head rows of its own classes only.
      buffers: batch-norm statistics and the like.
      aligned: what the federated optimiser adds, entry for entry like θ (control variates).
      shared:  what the method adds (an averaged correspondence, a global gradient).
    """

    round: int
    lr: float | Tensor
    theta: Tensor
    buffers: Tensors
    aligned: Tensors = field(default_factory=dict)
    shared: Tensors = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Update:
    """Site → server, at the end of a round.

    Args:
      site:    who sends it.
      samples: how many samples it trained on.
      delta:   (P_s,) change of θ (FedNova: per unit of local progress).
      buffers: batch-norm statistics after training.
      aligned: what the federated optimiser adds, entry for entry like θ.
      extras:  what the federated optimiser and the method add otherwise.
      metrics: numbers for the history.
      weights: (1 + C,) how much the update counts for the encoder, then for the head row of each
               class that the site holds, in its order; None for `samples` throughout.
    """

    site: str
    samples: int
    delta: Tensor
    buffers: Tensors
    aligned: Tensors = field(default_factory=dict)
    extras: Tensors = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    weights: Tensor | None = None


@dataclass(frozen=True, eq=False)
class SiteState:
    """What a site keeps between rounds; it never leaves the site.

    Args:
      method:    the method's, e.g. beliefs about each sample.
      personal:  tensors that the site trains but never sends, e.g. a head of its own.
      federated: the federated optimiser's, e.g. the site's control variate.
      optimiser: the local optimiser's, when it is kept between rounds.
      buffers:   the site's own batch-norm statistics, when they are local.
    """

    method: Tensors = field(default_factory=dict)
    personal: Tensors = field(default_factory=dict)
    federated: Tensors = field(default_factory=dict)
    optimiser: Tensors = field(default_factory=dict)
    buffers: Tensors = field(default_factory=dict)


def size_in_bytes(message: Broadcast | Update) -> int:
    """How many bytes of tensors a message carries; names and framing come on top."""
    total = 0
    for value in vars(message).values():
        for tensor in value.values() if isinstance(value, dict) else (value,):
            if isinstance(tensor, Tensor):
                total += tensor.nbytes
    return total
