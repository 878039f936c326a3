"""Static batch norm: statistics of all sites' samples, from sums that the sites send.

SemiFL (Diao et al. 2022) recomputes batch-norm statistics over everybody's pooled samples
before each broadcast and test. Here each site runs its own samples through the model, with
batch norm by batch statistics and without dropout, and sends, per layer, Σx, Σx² and the count;
the server adds them up.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from potluck.messages import Tensors
from potluck.models import batch_norm_layers
from potluck.models.network import Network

Hook = Callable[[nn.Module, tuple[Tensor, ...]], None]


def norm_sums(
    network: Network, theta: Tensor, buffers: Tensors, inputs: Tensor, batch: int = 256
) -> Tensors:
    """A site's sums for every batch-norm layer.

    Args:
      network: the model.
      theta:   (P,) parameters.
      buffers: its buffers; they are not changed.
      inputs:  (N, ...) the site's samples, as they are (not augmented).
      batch:   most samples per forward pass; layers normalise by the statistics of these.

    Returns:
      {layer.count: (), layer.sum: (C,), layer.square: (C,)} in float64.
    """
    sums: Tensors = {}

    def record(name: str) -> Hook:
        def hook(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            flat = arguments[0].detach().double().transpose(0, 1).flatten(1)
            parts = {
                "count": torch.tensor(float(flat.shape[1]), dtype=torch.float64),
                "sum": flat.sum(1).cpu(),
                "square": (flat**2).sum(1).cpu(),
            }
            for part, value in parts.items():
                key = f"{name}.{part}"
                sums[key] = sums[key] + value if key in sums else value

        return hook

    layers = batch_norm_layers(network.measuring_module)
    handles = [layer.register_forward_pre_hook(record(name)) for name, layer in layers.items()]
    scratch = {name: value.clone() for name, value in buffers.items()}
    try:
        with torch.no_grad():
            # Chunks of nearly equal size: a last one of a single sample has no statistics.
            for chunk in inputs.tensor_split(-(-len(inputs) // batch)):
                network.measure(theta, scratch, chunk)
    finally:
        for handle in handles:
            handle.remove()
    return sums


def static_buffers(buffers: Tensors, sums: Iterable[Tensors]) -> Tensors:
    """Buffers with the statistics of all sites' samples.

    Args:
      buffers: the model's buffers.
      sums:    what each site sent (`norm_sums`), in a fixed order.
    """
    total: Tensors = {}
    for part in sums:
        for name, value in part.items():
            total[name] = total[name] + value if name in total else value
    new = dict(buffers)
    layers = {key.rpartition(".")[0] for key in total}
    for name in sorted(layer for layer in layers if f"{layer}.running_mean" in buffers):
        count = total[f"{name}.count"]
        mean = total[f"{name}.sum"] / count
        variance = total[f"{name}.square"] / count - mean**2
        unbiased = variance * count / (count - 1).clamp_min(1)
        old = buffers[f"{name}.running_mean"]
        new[f"{name}.running_mean"] = mean.to(old)
        new[f"{name}.running_var"] = unbiased.clamp_min(0).to(old)
    return new
