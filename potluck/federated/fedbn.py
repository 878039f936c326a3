"""FedBN: every site keeps its own batch-norm layers.

Li et al. 2021, FedBN: Federated Learning on Non-IID Features via Local Batch Normalization.

A site puts its own batch-norm parameters back into what it receives, and (with
`batch_norm = "local"`, which FedBN implies) its own statistics too. The server's copy is the
average of the sites': only evaluation of the global model, and sites that join later, use it.
"""

from dataclasses import dataclass

from torch import Tensor

from potluck.federated.fedavg import FedAvg
from potluck.federated.optimiser import Progress, Report
from potluck.messages import Tensors
from potluck.models.network import Layout


@dataclass(frozen=True)
class FedBN(FedAvg):
    """FedAvg over all but the batch-norm layers."""

    def site_start(self, theta: Tensor, layout: Layout, private: bool) -> Tensors:
        """Which entries are the site's own, and their values: at first the received ones."""
        mask = layout.mask(lambda name: name.rpartition(".")[0] in layout.norms)
        entries = mask.nonzero().flatten().to(theta.device)
        return {"entries": entries, "values": theta[entries]}

    def begin(self, received: Tensor, site: Tensors) -> Tensor:
        """The received θ with the site's own batch-norm entries."""
        return received.index_copy(0, site["entries"], site["values"])

    def finish(self, progress: Progress, shared: Tensors, site: Tensors) -> Report:
        """Send all changes; keep the batch-norm entries."""
        entries = site["entries"]
        kept = {
            "entries": entries,
            "values": progress.received[entries] + progress.change[entries],
        }
        return Report(progress.change, {}, {}, kept)
