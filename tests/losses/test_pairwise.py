"""The pairwise loss without the double sum, and the mean squared error, over a site's classes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.losses.pairwise import pairwise, probability_mse


def double_sum(teacher, student, held):
    """Equation (5) for one sample, as it is written."""
    own = held.nonzero().flatten().tolist()
    total = 0 * student.sum()
    for y in own:
        for other in own:
            if y != other:
                total = total + (teacher[y] * student[other] - teacher[other] * student[y]) ** 2
    return total


def case(seed, classes, held_count):
    generator = torch.Generator().manual_seed(seed)
    held = torch.zeros(classes, dtype=torch.float64)
    held[torch.randperm(classes, generator=generator)[:held_count]] = 1
    scores = torch.randn(classes, generator=generator, dtype=torch.float64)
    teacher = (scores + held.log()).softmax(0)
    logits = torch.randn(classes, generator=generator, dtype=torch.float64)
    return teacher, logits, held


@given(st.integers(0, 10**6), st.integers(2, 8), st.integers(1, 8))
def test_the_closed_form_equals_the_double_sum_and_has_its_gradient(seed, classes, held_count):
    teacher, logits, held = case(seed, classes, min(held_count, classes))
    results = []
    for loss in (pairwise, double_sum):
        variable = logits.clone().requires_grad_()
        value = loss(teacher, variable.softmax(0), held)
        (gradient,) = torch.autograd.grad(value, variable)
        results.append((value.detach(), gradient))
    (closed, closed_gradient), (brute, brute_gradient) = results
    assert torch.allclose(closed, brute, atol=1e-14)
    assert torch.allclose(closed_gradient, brute_gradient, atol=1e-13)


def test_teachers_and_samples_are_batched():
    cases = [case(seed, 5, 3) for seed in range(6)]
    teachers, logits, held = (torch.stack(parts) for parts in zip(*cases, strict=True))
    students = logits.softmax(1)
    losses = pairwise(teachers.view(2, 3, 5), students.view(2, 3, 5), held.view(2, 3, 5))
    expected = [double_sum(*parts) for parts in zip(teachers, students, held, strict=True)]
    assert torch.allclose(losses.flatten(), torch.stack(expected))
    one = pairwise(teachers, students[0], held)  # one student, many teachers
    assert one[3] == pytest.approx(float(double_sum(teachers[3], students[0], held[3])))


def test_a_model_proportional_to_the_teacher_has_no_loss_and_rounding_makes_none_negative():
    teacher, _, held = case(1, 6, 4)
    rest = torch.full((6,), 0.05, dtype=torch.float64) * (1 - held)
    student = rest + (1 - rest.sum()) * teacher
    assert float(pairwise(teacher, student, held)) == pytest.approx(0, abs=1e-30)
    single = [case(seed, 6, 4) for seed in range(200)]
    losses = [
        pairwise(t.float(), (t * 0.3 + 1e-9 * logits.softmax(0)).float(), h.float())
        for t, logits, h in single
    ]
    assert min(map(float, losses)) >= 0


def test_no_teacher_and_a_single_class_teach_nothing():
    student = torch.tensor([0.2, 0.5, 0.3]).requires_grad_()
    nobody = torch.zeros(3)
    only = torch.tensor([0.0, 1.0, 0.0])
    for teacher, held in ((nobody, nobody), (only, only)):
        loss = pairwise(teacher, student, held)
        assert float(loss.detach()) == 0
        assert torch.equal(torch.autograd.grad(loss, student)[0], torch.zeros(3))


def test_mse_is_over_the_sites_classes_only():
    teacher = torch.tensor([0.25, 0.0, 0.75])
    student = torch.tensor([0.5, 0.3, 0.2])
    held = torch.tensor([1.0, 0.0, 1.0])
    loss = probability_mse(teacher, student, held)
    assert float(loss) == pytest.approx(0.25**2 + 0.55**2)
