import math

import torch
from torch.nn.functional import cosine_similarity

from potluck.losses.contrast import jensen_shannon, nt_xent, relations

GENERATOR = torch.Generator().manual_seed(0)


def test_nt_xent_equals_a_loop_over_views():
    first, second = torch.randn(2, 3, 4, generator=GENERATOR, dtype=torch.float64)
    views = [*first, *second]
    total = 0.0
    for i, view in enumerate(views):
        partner = (i + 3) % 6
        score = {
            j: math.exp(cosine_similarity(view, other, dim=0).item() / 0.5)
            for j, other in enumerate(views)
            if j != i
        }
        total -= math.log(score[partner] / sum(score.values()))
    torch.testing.assert_close(nt_xent(first, second, 0.5).item(), total / 6)


def test_nt_xent_of_a_single_sample_is_zero():
    assert nt_xent(torch.randn(1, 4), torch.randn(1, 4), 0.1).item() == 0


def test_relations_are_log_probabilities_that_favour_the_nearest_anchor():
    anchors = torch.eye(3)
    found = relations(torch.tensor([[5.0, 0.0, 0.0]]), anchors, 0.1)
    torch.testing.assert_close(found.exp().sum(), torch.tensor(1.0))
    assert found.argmax().item() == 0


def test_jensen_shannon_of_known_pairs():
    p = torch.tensor([[0.5, 0.5], [1 - 1e-9, 1e-9]], dtype=torch.float64)
    q = torch.tensor([[0.5, 0.5], [1e-9, 1 - 1e-9]], dtype=torch.float64)
    found = jensen_shannon(p.log(), q.log())
    torch.testing.assert_close(found, torch.tensor([0.0, math.log(2)]).double(), atol=1e-6, rtol=0)
