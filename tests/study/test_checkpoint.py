import json
import os
import random
import resource
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.engines import ServerState
from potluck.errors import PotluckError
from potluck.messages import SiteState
from potluck.study.checkpoint import Writer, available, load, save
from potluck.study.tensor_files import write_tensors

HASH = "0123456789abcdef"
DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float8_e4m3fn,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]
ODD_NAMES = [
    "",
    "/",
    "%2F",
    "a/b",
    "a%2Fb",
    "theta",
    "sites",
    "sites/x/method",
    "__metadata__",
    "Krankenhaus Süd\n\t",
    "東京",
    "\x00",
    "\udc80",
    "🏥",
    "..",
    '"\\',
]


def make_state(round_number: int) -> ServerState:
    """A state with something of every kind in it, different in each round."""
    vector = torch.arange(7.0) + round_number
    return ServerState(
        round=round_number,
        theta=vector / 3,
        buffers={"norm.running_mean": vector[:2] * 5, "norm.num_batches_tracked": torch.tensor(9)},
        federated={"control": vector * 7},
        method={"counts": torch.arange(3)},
        sites={
            "ward/3": SiteState(
                method={"beliefs": torch.rand(4, 2, generator=torch.Generator().manual_seed(1))},
                federated={"control": vector * 11},
                optimiser={"velocity": vector * 13},
                buffers={"norm.running_mean": vector[:2] * 17},
            ),
            "nothing kept": SiteState(),
        },
    )


def described(state: ServerState) -> list[object]:
    """Everything about a state, down to the bits and the order of its parts."""

    def tensor(value: torch.Tensor) -> tuple[object, ...]:
        raw = value.detach().cpu().contiguous().flatten().view(torch.uint8)
        return value.dtype, tuple(value.shape), bytes(raw.tolist())

    def group(tensors: dict[str, torch.Tensor]) -> list[object]:
        return [(name, tensor(value)) for name, value in tensors.items()]

    return [
        state.round,
        tensor(state.theta),
        *(
            (field.name, group(getattr(state, field.name)))
            for field in fields(state)
            if field.name not in ("round", "theta", "sites")
        ),
        *(
            (name, [group(getattr(kept, field.name)) for field in fields(kept)])
            for name, kept in state.sites.items()
        ),
    ]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def flip(path: Path, position: int, mask: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


# Round trips


def test_a_checkpoint_gives_back_the_state_bit_for_bit(tmp_path: Path) -> None:
    state = make_state(12)
    written = save(state, HASH, tmp_path)
    assert written == tmp_path / "round-000012.json"
    assert names(tmp_path) == ["round-000012.json", "round-000012.safetensors"]
    assert described(load(tmp_path, HASH)) == described(state)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 0, 3), (3, 4)], ids=str)
def test_every_bit_pattern_of_every_dtype_survives(
    tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    count = torch.Size(shape).numel()
    generator = torch.Generator().manual_seed(0)
    if dtype == torch.bool:
        value = torch.randint(2, shape, generator=generator).bool()
    else:  # random bytes: among floats also NaNs with payloads, infinities and subnormals
        raw = torch.randint(256, (count * dtype.itemsize,), generator=generator)
        value = raw.to(torch.uint8).view(dtype).view(shape)
    state = replace(make_state(1), method={"value": value})
    save(state, HASH, tmp_path)
    assert described(load(tmp_path, HASH)) == described(state)


def test_special_floats_keep_their_bits(tmp_path: Path) -> None:
    theta = torch.tensor([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-45])
    theta.view(torch.int32)[2] = 0x7FC12345
    state = ServerState(3, theta, {})
    save(state, HASH, tmp_path)
    assert described(load(tmp_path, HASH)) == described(state)


def test_a_state_with_nothing_but_parameters_stays_so(tmp_path: Path) -> None:
    save(ServerState(0, torch.ones(2), {}), HASH, tmp_path)
    found = load(tmp_path, HASH)
    assert (found.buffers, found.federated, found.method, found.sites) == ({}, {}, {}, {})


def test_a_site_that_kept_nothing_is_not_a_site_that_never_took_part(tmp_path: Path) -> None:
    save(ServerState(1, torch.ones(2), {}, sites={"a": SiteState()}), HASH, tmp_path)
    assert list(load(tmp_path, HASH).sites) == ["a"]


def test_odd_names_stay_apart(tmp_path: Path) -> None:
    tensors = {name: torch.tensor(i) for i, name in enumerate(ODD_NAMES)}
    sites = {
        name: SiteState(method={"x": torch.tensor(i)}, optimiser=tensors)
        for i, name in enumerate(ODD_NAMES)
    }
    state = ServerState(2, torch.ones(1), tensors, tensors, tensors, sites)
    save(state, HASH, tmp_path)
    assert described(load(tmp_path, HASH)) == described(state)


any_text = st.text(st.characters(exclude_categories=())) | st.sampled_from(ODD_NAMES)
tensor_groups = st.dictionaries(any_text, st.integers(0, 255).map(torch.tensor), max_size=3)


@given(
    tensor_groups,
    st.dictionaries(
        any_text,
        st.builds(SiteState, **{field.name: tensor_groups for field in fields(SiteState)}),
        max_size=3,
    ),
)
def test_any_names_survive(
    tmp_path_factory: pytest.TempPathFactory,
    group: dict[str, torch.Tensor],
    sites: dict[str, SiteState],
) -> None:
    folder = tmp_path_factory.mktemp("checkpoints")
    state = ServerState(1, torch.ones(1), group, {}, group, sites)
    save(state, HASH, folder)
    assert described(load(folder, HASH)) == described(state)


def test_tensors_may_share_memory_and_have_any_layout(tmp_path: Path) -> None:
    base = torch.arange(12.0).view(3, 4)
    parts = {
        "same": base,
        "again": base,
        "transposed": base.t(),
        "strided": base[:, ::2],
        "expanded": base[:1].expand(5, 4),
        "differentiable": base.clone().requires_grad_(),
    }
    state = ServerState(1, base.flatten(), parts)
    save(state, HASH, tmp_path)
    found = load(tmp_path, HASH)
    assert described(found) == described(state)
    assert all(tensor.is_contiguous() for tensor in found.buffers.values())
    found.buffers["same"].zero_()
    assert torch.equal(found.buffers["again"], base)


def test_tensors_go_to_the_wanted_device(tmp_path: Path) -> None:
    save(make_state(1), HASH, tmp_path)
    found = load(tmp_path, HASH, torch.device("meta"))
    assert found.theta.is_meta
    assert found.sites["ward/3"].optimiser["velocity"].is_meta


def test_no_part_of_the_state_is_forgotten(tmp_path: Path) -> None:
    def filled(kind: type, **given: object) -> object:
        parts = [field.name for field in fields(kind) if field.name not in given]
        return kind(**{part: {part: torch.tensor(i)} for i, part in enumerate(parts)}, **given)

    state = filled(
        ServerState, round=1, theta=torch.ones(1), sites={"a": filled(SiteState), "b": SiteState()}
    )
    save(state, HASH, tmp_path)
    found = load(tmp_path, HASH)
    assert all(getattr(found, field.name) for field in fields(ServerState))
    assert all(getattr(found.sites["a"], field.name) for field in fields(SiteState))
    assert described(found) == described(state)


# Which checkpoints there are


def test_the_newest_ones_are_kept(tmp_path: Path) -> None:
    for round_number in (1, 5, 6, 9):
        save(make_state(round_number), HASH, tmp_path, keep=3)
    assert available(tmp_path) == [9, 6, 5]
    assert len(names(tmp_path)) == 6
    assert load(tmp_path, HASH).round == 9
    assert [load(tmp_path, HASH, skip=skip).round for skip in (1, 2)] == [6, 5]


def test_rounds_are_ordered_as_numbers(tmp_path: Path) -> None:
    save(make_state(999_999), HASH, tmp_path)
    save(make_state(1_000_000), HASH, tmp_path)
    assert available(tmp_path) == [1_000_000, 999_999]


def test_a_folder_that_is_not_there_has_no_checkpoints(tmp_path: Path) -> None:
    assert available(tmp_path / "none") == []


def test_rounds_of_a_continuation_that_was_given_up_disappear(tmp_path: Path) -> None:
    for round_number in (10, 12):
        save(make_state(round_number), HASH, tmp_path)
    flip(tmp_path / "round-000012.json", 40, 1)
    save(make_state(11), HASH, tmp_path)
    assert available(tmp_path) == [11, 10]
    assert load(tmp_path, HASH).round == 11


def test_what_a_kill_left_half_written_is_ignored_and_then_cleaned(tmp_path: Path) -> None:
    save(make_state(1), HASH, tmp_path)
    (tmp_path / "round-000002.safetensors.tmp").write_bytes(b"half")
    (tmp_path / "round-000002.safetensors").write_bytes(b"no JSON yet")
    (tmp_path / "round-000002.json.tmp").write_bytes(b"{")
    assert available(tmp_path) == [1]
    assert load(tmp_path, HASH).round == 1
    save(make_state(3), HASH, tmp_path)
    expected = [f"round-00000{i}.{end}" for i in (1, 3) for end in ("json", "safetensors")]
    assert names(tmp_path) == expected


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("{}")
    save(make_state(1), HASH, tmp_path)
    assert available(tmp_path) == [1]
    assert (tmp_path / "notes.json").exists()


def test_at_least_one_checkpoint_must_be_kept(tmp_path: Path) -> None:
    with pytest.raises(PotluckError, match="keep is 0"):
        save(make_state(1), HASH, tmp_path, keep=0)


def test_the_json_says_what_people_want_to_know(tmp_path: Path) -> None:
    facts = json.loads(save(make_state(12), HASH, tmp_path).read_text())
    assert facts["format"] == 1
    assert facts["round"] == 12
    assert facts["study_hash"] == HASH
    assert facts["torch"] == torch.__version__
    assert facts["bytes"] == (tmp_path / "round-000012.safetensors").stat().st_size
    assert "sites/ward%2F3/optimiser/velocity" in facts["tensors"]


# What can be wrong with one


def test_no_checkpoint_at_all(tmp_path: Path) -> None:
    with pytest.raises(PotluckError, match=r"run/checkpoints: there is no checkpoint.*--out"):
        load(tmp_path / "run" / "checkpoints", HASH)


def test_no_checkpoint_before_the_oldest(tmp_path: Path) -> None:
    save(make_state(4), HASH, tmp_path)
    with pytest.raises(PotluckError, match="round 4; there is no previous one"):
        load(tmp_path, HASH, skip=1)


def damaged(action: Callable[[Path], None], folder: Path) -> str:
    """The message after something happened to the only checkpoint."""
    action(save(make_state(12), HASH, folder))
    with pytest.raises(PotluckError) as caught:
        load(folder, HASH)
    assert "--previous" not in str(caught.value)
    return str(caught.value)


def test_tensors_cut_short(tmp_path: Path) -> None:
    def cut(path: Path) -> None:
        os.truncate(path.with_suffix(".safetensors"), 100)

    message = damaged(cut, tmp_path)
    assert "round-000012.safetensors: cut short: 100 of " in message
    assert "backup" in message


def test_tensors_with_changed_bytes(tmp_path: Path) -> None:
    message = damaged(lambda path: flip(path.with_suffix(".safetensors"), -1, 4), tmp_path)
    assert "round-000012.safetensors: its bytes have changed" in message
    assert "backup" in message


def test_tensors_with_bytes_added(tmp_path: Path) -> None:
    def grow(path: Path) -> None:
        with path.with_suffix(".safetensors").open("ab") as file:
            file.write(b"\0")

    assert "its bytes have changed" in damaged(grow, tmp_path)


def test_tensors_gone(tmp_path: Path) -> None:
    message = damaged(lambda path: path.with_suffix(".safetensors").unlink(), tmp_path)
    assert "round-000012.safetensors: cannot be read (No such file" in message


@pytest.mark.parametrize(
    "content", [b"", b"\x00" * 100, b"{", b"\xff\xfe", b"9" * 5000, b"[" * 200_000, b"1e999"]
)
def test_json_unreadable(tmp_path: Path, content: bytes) -> None:
    message = damaged(lambda path: path.write_bytes(content) and None, tmp_path)
    assert "round-000012.json: " in message
    assert "not readable as JSON" in message or "does not say its format" in message


@pytest.mark.parametrize("content", ["[]", "null", "{}", '{"format": "1"}', '{"format": null}'])
def test_json_of_something_else(tmp_path: Path, content: str) -> None:
    message = damaged(lambda path: path.write_text(content) and None, tmp_path)
    assert "round-000012.json: the JSON does not say its format" in message


@pytest.mark.parametrize("content", ['{"format": 1}', '{"format": 1, "x": NaN, "y": 1e999}'])
def test_json_without_a_seal(tmp_path: Path, content: str) -> None:
    message = damaged(lambda path: path.write_text(content) and None, tmp_path)
    assert "round-000012.json: changed since it was written" in message


def test_json_that_somebody_edited(tmp_path: Path) -> None:
    def edit(path: Path) -> None:
        path.write_text(path.read_text().replace("ward/3", "ward/4"))

    assert "round-000012.json: changed since it was written" in damaged(edit, tmp_path)


def test_a_newer_format(tmp_path: Path) -> None:
    def upgrade(path: Path) -> None:
        path.write_text('{"format": 2, "potluck": "7.0", "unheard": "of"}')

    message = damaged(upgrade, tmp_path)
    assert "round-000012.json: format 2, written by potluck 7.0" in message
    assert "Upgrade potluck" in message


def test_another_study(tmp_path: Path) -> None:
    save(make_state(12), HASH, tmp_path)
    with pytest.raises(PotluckError, match="another study") as caught:
        load(tmp_path, "feedfeedfeedfeed")
    for part in ("round-000012.json", HASH, "feedfeedfeedfeed", "Undo the change", "--out"):
        assert part in str(caught.value)


def test_a_missing_tensor(tmp_path: Path) -> None:
    def forge(path: Path) -> None:
        facts = json.loads(path.read_text())
        tensors = safetensors.torch.load_file(path.with_suffix(".safetensors"))
        del tensors["federated/control"]
        own = ("format", "potluck", "torch", "bytes", "sha256", "seal")
        write_tensors(
            path.with_suffix(""), tensors, {k: v for k, v in facts.items() if k not in own}
        )

    message = damaged(forge, tmp_path)
    assert 'round-000012.safetensors: the tensor "federated/control" is missing' in message


def test_something_else_than_safetensors_under_a_valid_seal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safetensors.torch, "save", lambda tensors: b"no tensors at all")
    assert "not a safetensors file" in damaged(lambda path: None, tmp_path)


# An older one that is whole


def test_an_older_checkpoint_is_offered_but_never_taken_silently(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "checkpoints"
    for round_number in (10, 12):
        save(make_state(round_number), HASH, folder)
    flip(folder / "round-000012.safetensors", -1, 1)
    with pytest.raises(PotluckError, match="its bytes have changed") as caught:
        load(folder, HASH)
    assert "the checkpoint of round 10, which is whole: " in str(caught.value)
    assert str(caught.value).endswith(f"potluck resume {tmp_path / 'run'} --previous")
    assert described(load(folder, HASH, skip=1)) == described(make_state(10))


def test_a_damaged_older_checkpoint_is_not_offered(tmp_path: Path) -> None:
    for round_number in (8, 10, 12):
        save(make_state(round_number), HASH, tmp_path, keep=3)
    for name in ("round-000012.json", "round-000010.safetensors"):
        flip(tmp_path / name, -1, 1)
    for skip, problem in ((0, "000012.json: not readable"), (1, "000010.safetensors: its bytes")):
        with pytest.raises(PotluckError, match=problem) as caught:
            load(tmp_path, HASH, skip=skip)
        assert "round 8, which is whole" in str(caught.value)
        assert str(caught.value).endswith(f"{tmp_path.parent} --previous --previous")
    assert load(tmp_path, HASH, skip=2).round == 8


# Damage and kills at every place


def test_damage_to_any_byte_of_either_file_is_noticed(tmp_path: Path) -> None:
    rng = random.Random(0)
    path = save(make_state(12), HASH, tmp_path)
    for file in (path, path.with_suffix(".safetensors")):
        whole = file.read_bytes()
        for position in range(len(whole)):
            flip(file, position, 1 << rng.randrange(8))
            with pytest.raises(PotluckError, match="round-000012"):
                load(tmp_path, HASH)
            file.write_bytes(whole[:position])
            with pytest.raises(PotluckError, match="round-000012"):
                load(tmp_path, HASH)
            file.write_bytes(whole)
    assert described(load(tmp_path, HASH)) == described(make_state(12))


@given(
    st.sampled_from(["json", "safetensors"]),
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), min_size=1, max_size=5),
)
def test_damage_to_several_bytes_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, ending: str, changes: list[tuple[float, int]]
) -> None:
    folder = tmp_path_factory.mktemp("checkpoints")
    path = save(make_state(12), HASH, folder).with_suffix(f".{ending}")
    whole = path.read_bytes()
    for share, mask in changes:
        flip(path, int(share * (len(whole) - 1)), mask)
    if path.read_bytes() == whole:  # two changes of one byte took each other back
        return
    with pytest.raises(PotluckError, match="round-000012"):
        load(folder, HASH)


class Killed(BaseException):
    """The process ends here: nothing may catch this."""


def kill_at(monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    """Let the process end before its file operation number `moment`, or midway if it writes."""
    count = iter(range(10_000))

    def dying(operation: Callable[..., object]) -> Callable[..., object]:
        def attempt(*arguments: object, **keywords: object) -> object:
            if next(count) == moment:
                if operation is write_bytes:
                    path, data = arguments
                    operation(path, data[: len(data) // 2])
                raise Killed
            return operation(*arguments, **keywords)

        return attempt

    write_bytes = Path.write_bytes
    for owner, name in ((os, "fsync"), (os, "replace"), (Path, "unlink"), (Path, "write_bytes")):
        monkeypatch.setattr(owner, name, dying(getattr(owner, name)))


@pytest.mark.parametrize("leftover", ["", "flipped", "cut"])
def test_a_kill_at_any_moment_of_saving_leaves_the_old_or_the_new_checkpoint(
    tmp_path: Path, leftover: str
) -> None:
    """Also when a damaged checkpoint of the same round is being replaced."""
    outcomes = set()
    for moment in range(100):
        folder = tmp_path / str(moment)
        for round_number in (9, 10):
            save(make_state(round_number), HASH, folder)
        if leftover:
            other = replace(make_state(12), theta=torch.zeros(7))
            broken = save(other, HASH, folder, keep=3).with_suffix(".safetensors")
            flip(broken, -1, 1) if leftover == "flipped" else os.truncate(broken, 9)
        try:
            with pytest.MonkeyPatch.context() as patch:
                kill_at(patch, moment)
                save(make_state(12), HASH, folder)
        except Killed:
            killed = True
        else:
            killed = False
        newest = available(folder)[0]
        if leftover and moment == 0:
            assert newest == 12  # nothing has happened yet; the damaged one is still refused
        else:
            assert described(load(folder, HASH)) == described(make_state(newest))
            outcomes.add(newest)
        save(make_state(12), HASH, folder)
        assert described(load(folder, HASH)) == described(make_state(12))
        assert available(folder) == [12, 10]
        assert len(names(folder)) == 4
        if not killed:
            break
    assert moment > 8
    assert outcomes == {10, 12}


def test_a_full_disk_is_explained_and_leaves_the_last_checkpoint_unharmed(tmp_path: Path) -> None:
    save(make_state(1), HASH, tmp_path)
    before = names(tmp_path)
    large = replace(make_state(2), theta=torch.zeros(10_000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(PotluckError, match=r"safetensors: cannot be written .*Free some space"):
            save(large, HASH, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == before
    assert load(tmp_path, HASH).round == 1


def test_a_writer_writes_in_order_and_is_done_at_the_end(tmp_path):
    with Writer("hash", tmp_path) as writer:
        for number in (1, 2, 3):
            writer.save(make_state(number))
    assert available(tmp_path) == [3, 2]


def test_a_writer_raises_what_went_wrong(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with (
        pytest.raises(PotluckError, match="file"),
        Writer("hash", blocked / "checkpoints") as writer,
    ):
        writer.save(make_state(1))
