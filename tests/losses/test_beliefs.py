import torch

from potluck.losses.beliefs import chosen, expected_accuracy, initial_beliefs, moving_average

# Three samples over four classes: candidates {0, 2}, {1} and everything.
LOG_A = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 0], [1, 1, 1, 1]]).log()


def test_beliefs_start_uniform_on_the_candidates():
    expected = torch.tensor([[0.5, 0, 0.5, 0], [0, 1, 0, 0], [0.25, 0.25, 0.25, 0.25]])
    torch.testing.assert_close(initial_beliefs(LOG_A), expected)


def test_the_chosen_class_is_a_candidate_even_where_another_scores_higher():
    logits = torch.tensor([[1.0, 9.0, 2.0, 0.0], [5.0, -7.0, 0.0, 0.0], [0.0, 1.0, 0.0, 3.0]])
    assert chosen(logits, LOG_A).argmax(1).tolist() == [2, 1, 3]
    assert chosen(logits, LOG_A).sum(1).tolist() == [1, 1, 1]


def test_a_moving_average_by_hand():
    logits = torch.tensor([[1.0, 9.0, 2.0, 0.0]]).requires_grad_()
    new = moving_average(torch.tensor([[0.5, 0, 0.5, 0]]), logits, LOG_A[:1], 0.9)
    torch.testing.assert_close(new, torch.tensor([[0.45, 0, 0.55, 0]]))
    assert not new.requires_grad
    unchanged = moving_average(new, logits, LOG_A[:1], 1.0)
    torch.testing.assert_close(unchanged, new)


def test_ties_count_in_part():
    beliefs = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.7, 0.1], [0.0, 0.5, 0.5]])
    assert expected_accuracy(beliefs, torch.tensor([0, 1, 0])).item() == (0.5 + 1 + 0) / 3
