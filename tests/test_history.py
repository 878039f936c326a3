from potluck.history import best_round


def test_the_best_round_is_the_first_of_those_that_did_best_in_validation():
    history = [{"round": r, "validation": v} for r, v in ((1, 0.5), (2, 0.7), (3, 0.7), (4, 0.6))]
    assert best_round(history)["round"] == 2


def test_rounds_without_validation_do_not_count():
    history = [{"round": 1, "validation": 0.2}, {"round": 2, "test": {"accuracy": 0.9}}]
    assert best_round(history)["round"] == 1


def test_without_validation_there_is_no_best_round():
    assert best_round([{"round": 1, "test": {"accuracy": 0.5}}]) is None
    assert best_round([]) is None
