from __future__ import annotations

from fedsage.rng import generator


def test_a_stream_depends_on_seed_and_path_alone() -> None:
    first = generator(1, "split", 2).random(4).tolist()
    generator(1, "other").random(100)
    assert generator(1, "split", 2).random(4).tolist() == first


def test_streams_of_other_seeds_and_paths_differ() -> None:
    draws = {generator(*path).random() for path in [(0, "a"), (1, "a"), (0, "b"), (0, "a", 1)]}
    assert len(draws) == 4
