"""The text is the same each time, and held-out text is nowhere in the training text."""

from pathlib import Path

import torch

from relaxc.demo import batches, corpus


def test_encoding_by_hand() -> None:
    assert list(corpus.encode(b"\n a~\r\n\t\xc3\xa9")) == [0, 1, 66, 95, 0, 1, 1, 1, 1]
    assert len(corpus.VOCABULARY) == 96


def test_every_tenth_file_is_held_out(tmp_path: Path) -> None:
    for index in (11, 3, 10, 7, 0, 1, 2, 4, 5, 6, 8, 9):
        (tmp_path / f"m{index:02}.py").write_text(str(index))
    (tmp_path / "notes.txt").write_text("no module")
    train, held_out = corpus.split(corpus.files(tmp_path))
    assert [path.stem for path in held_out] == ["m00", "m10"]
    assert [path.stem for path in train] == [f"m{index:02}" for index in (*range(1, 10), 11)]


def test_the_library_is_read_the_same_twice_and_is_enough() -> None:
    first, second = corpus.standard_library(), corpus.standard_library()
    assert first == second
    assert len(first[0]) > 1_000_000 and len(first[1]) > 50_000
    assert max(first[0]) < 96


def test_batches_depend_on_seed_step_and_rank_alone() -> None:
    text = batches.as_tensor(bytes(range(96)) * 10)
    draw = [batches.training_batch(text, 8, seed=1, step=2, rank=3) for _ in range(2)]
    assert torch.equal(draw[0][0], draw[1][0])
    assert draw[0][0].shape == (1, 8)
    assert torch.equal((draw[0][0] + 1) % 96, draw[0][1])  # the text counts, so the next character is one more
    others = [batches.training_batch(text, 8, seed=s, step=t, rank=r) for s, t, r in ((0, 2, 3), (1, 3, 3), (1, 2, 0))]
    assert all(not torch.equal(draw[0][0], other[0]) for other in others)


def test_workers_share_the_held_out_places_out() -> None:
    text = batches.as_tensor(bytes(range(96)) * 10)
    whole, _ = batches.held_out_batch(text, 8, sequences=6, rank=0, workers=1)
    parts = [batches.held_out_batch(text, 8, sequences=6, rank=rank, workers=3)[0] for rank in range(3)]
    assert torch.equal(whole, torch.stack(parts, dim=1).flatten(0, 1))
