"""Vectors as rows of a matrix: the same numbers, and no copy where none is needed."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.engines.rows import as_rows


@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 3))
def test_rows_of_a_matrix_are_that_matrix(count, size, skipped):
    matrix = torch.arange(float((skipped + count) * size)).view(-1, size)
    found = as_rows(list(matrix)[skipped:])
    assert torch.equal(found, matrix[skipped:])
    assert found.data_ptr() == matrix[skipped:].data_ptr()


@given(st.lists(st.integers(0, 3), min_size=2, max_size=5))
def test_any_choice_of_vectors_is_stacked(chosen):
    """In any order, with repetitions, from storages of their own or from one."""
    matrix = torch.arange(12.0).view(4, 3)
    expected = matrix[torch.tensor(chosen)]
    assert torch.equal(as_rows([matrix[number] for number in chosen]), expected)
    assert torch.equal(as_rows([matrix[number].clone() for number in chosen]), expected)


def test_vectors_that_are_not_contiguous_are_copied():
    matrix = torch.arange(12.0).view(3, 4)
    assert torch.equal(as_rows(list(matrix.T)), matrix.T)
