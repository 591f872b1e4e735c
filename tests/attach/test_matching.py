"""Who meets whom, without any exchange: matchmakers in threads of one process, over the stores that there are."""

from __future__ import annotations

import datetime as dt
import random
import threading
import time
from typing import Any, Self

import pytest
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from relaxc.attach import matching
from relaxc.attach.crew import meet
from relaxc.attach.matching import Match, Matchmaker, Offer

STORES = ("hash", "file", "tcp")


@pytest.fixture(params=STORES)
def stores(request, tmp_path):
    """A function from the number of workers to a store for each."""

    def make(workers: int) -> list[Any]:
        if request.param == "hash":
            inner = [dist.HashStore()] * workers
        elif request.param == "file":
            inner = [dist.FileStore(str(tmp_path / "store"), workers) for _ in range(workers)]
        else:
            limit = dt.timedelta(seconds=20)
            host = dist.TCPStore("127.0.0.1", 0, None, True, limit, wait_for_workers=False)
            inner = [host, *(dist.TCPStore("127.0.0.1", host.port, None, False, limit) for _ in range(workers - 1))]
        return [PrefixStore("a", store) for store in inner]

    return make


class Team:
    def __init__(self, stores: list[Any], timeout: float = 20.0) -> None:
        workers = len(stores)
        self.makers = [Matchmaker(store, rank, workers, timeout) for rank, store in enumerate(stores)]
        for maker in self.makers:
            maker.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for maker in self.makers:
            maker.stop()
        assert [maker.error for maker in self.makers] == [None] * len(self.makers)


class Launched:
    """An offer that tells when it has begun."""

    def __init__(self, maker: Matchmaker, number: int, **who: Any) -> None:
        self.begun, self.match = threading.Event(), Match((), -1)
        maker.offer(Offer("place", number, self._begin, **who))

    def _begin(self, match: Match) -> None:
        self.match = match
        self.begun.set()

    def wait(self) -> Match:
        assert self.begun.wait(20)
        return self.match


def test_known_partners_begin_once_all_have_offered_the_same_launch(stores) -> None:
    with Team(stores(3)) as team:
        first = [Launched(team.makers[r], 0, crew=(0, 1, 2)) for r in (0, 1)]
        time.sleep(0.2)
        assert not any(launch.begun.is_set() for launch in first)
        last = Launched(team.makers[2], 0, crew=(0, 1, 2))
        assert [launch.wait() for launch in (*first, last)] == [
            Match(tuple((r, 0) for r in range(3) if r != rank), 0) for rank in range(3)
        ]


class Counting:
    """A store that notes the keys it was asked for."""

    def __init__(self, store: Any) -> None:
        self._store, self.asked = store, []

    def get(self, key: str) -> bytes:
        self.asked.append(key)
        return self._store.get(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def all_launch(team: Team, number: int) -> None:
    everyone = tuple(range(len(team.makers)))
    for launch in [Launched(maker, number, crew=everyone) for maker in team.makers]:
        launch.wait()


def test_the_longer_a_launch_waits_the_less_it_asks_and_only_for_who_has_not_launched() -> None:
    """In two seconds a look every 10 ms would be 200; it takes the time of whoever trains, and of the store's host."""
    counting = Counting(PrefixStore("a", (store := dist.HashStore())))
    with Team([counting, *(PrefixStore("a", store) for _ in range(2))]) as team:
        all_launch(team, 0)
        ahead = [Launched(team.makers[rank], 1, crew=(0, 1, 2)) for rank in (0, 1)]
        time.sleep(0.5)  # until worker 0 has seen that worker 1 is there too
        counting.asked.clear()
        time.sleep(2)
        assert set(counting.asked) == {"0/launched/place/2.0"}
        assert len(counting.asked) < 100
        assert not any(launch.begun.is_set() for launch in ahead)


def test_where_training_waits_it_is_looked_for_at_once(monkeypatch) -> None:
    monkeypatch.setattr(matching, "GROWTH", 1e6)
    monkeypatch.setattr(matching, "LONGEST", 600.0)
    counting = Counting(PrefixStore("a", (store := dist.HashStore())))
    with Team([counting, PrefixStore("a", store)]) as team:
        all_launch(team, 0)
        Launched(team.makers[0], 1, crew=(0, 1))
        time.sleep(0.2)
        for _ in range(3):
            counting.asked.clear()
            end = time.monotonic() + 20
            while not counting.asked and time.monotonic() < end:
                team.makers[0].hurry()
                time.sleep(0.001)
            assert counting.asked


def test_a_launch_ahead_waits_for_the_same_number(stores) -> None:
    with Team(stores(2)) as team:
        for number in range(3):
            both = [Launched(team.makers[r], number, crew=(0, 1)) for r in range(2)]
            assert [launch.wait().tag for launch in both] == [number] * 2
        ahead = Launched(team.makers[0], 3, crew=(0, 1))
        time.sleep(0.1)
        assert not ahead.begun.is_set()


def test_ready_workers_pair_up_and_both_sides_agree(stores) -> None:
    """Each waits some time of its own between launches: every match is seen by both, with the same tag."""
    workers, launches = 4, 12
    seen: list[list[tuple[int, Match]]] = [[] for _ in range(workers)]
    left = threading.Event()

    def train(rank: int, maker: Matchmaker) -> None:
        draw = random.Random(rank)
        for number in range(launches):
            launch = Launched(maker, number, neighbours=tuple(r for r in range(workers) if r != rank))
            while not launch.begun.wait(0.05):
                if left.is_set():  # the others are done: nobody is left to meet
                    return
            seen[rank].append((number, launch.match))
            time.sleep(draw.random() * 0.01)
        left.set()

    with Team(stores(workers)) as team:
        threads = [threading.Thread(target=train, args=(r, m)) for r, m in enumerate(team.makers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    met = {(rank, number): match for rank, of in enumerate(seen) for number, match in of}
    assert len(met) >= launches
    tags: dict[tuple[int, int], list[int]] = {}
    for (rank, number), match in met.items():
        ((peer, theirs),) = match.peers
        other = met.get((peer, theirs))
        assert other is None or other == Match(((rank, number),), match.tag)
        if other is None:
            assert left.is_set()
        tags.setdefault((rank, peer), []).append(match.tag)
    for pair, found in tags.items():
        assert found == list(range(len(found))), pair


def test_neighbours_only(stores) -> None:
    """On the chain 0 - 1 - 2 the ends never meet."""
    with Team(stores(3)) as team:
        ends = [Launched(team.makers[0], 0, neighbours=(1,)), Launched(team.makers[2], 0, neighbours=(1,))]
        time.sleep(0.2)
        assert not any(end.begun.is_set() for end in ends)
        middle = Launched(team.makers[1], 0, neighbours=(0, 2)).wait()
        peer = middle.peers[0][0]
        assert ends[peer // 2].wait() == Match(((1, 0),), 0)
        assert not ends[1 - peer // 2].begun.is_set()


def test_the_dead_are_left_out(stores) -> None:
    with Team(stores(3)) as team:
        known = [Launched(team.makers[r], 0, crew=(0, 1, 2)) for r in (0, 1)]
        team.makers[0].step(lambda: team.makers[0].crew.bury(2))
        assert [launch.wait().peers for launch in known] == [((1, 0),), ((0, 0),)]
        alone = Launched(team.makers[0], 1, neighbours=(2,))
        assert alone.wait().peers == ()


def test_who_is_silent_is_dead_after_the_timeout(stores) -> None:
    """Worker 2 has no matchmaker at work: it has gone."""
    made = stores(3)
    makers = [Matchmaker(made[rank], rank, 3, 2.0) for rank in range(2)]
    for maker in makers:
        maker.start()
    launches = [Launched(maker, 0, crew=(0, 1, 2)) for maker in makers]
    assert [launch.wait().peers for launch in launches] == [((1, 0),), ((0, 0),)]
    for maker in makers:
        maker.stop()


def test_while_all_hold_nobody_claims_and_what_is_counted_on_begins(stores) -> None:
    with Team(stores(2)) as team:
        for maker in team.makers:
            maker.hold()
        ready = [Launched(maker, 0, neighbours=(1 - r,)) for r, maker in enumerate(team.makers)]
        time.sleep(0.1)
        for maker in team.makers:
            maker.settle()
        assert not any(launch.begun.is_set() for launch in ready)
        for maker in team.makers:
            maker.go_on()
        assert [launch.wait().peers for launch in ready] == [((1, 0),), ((0, 0),)]
        known = [Launched(maker, 1, crew=(0, 1)) for maker in team.makers]
        for maker in team.makers:
            maker.hold()
            maker.step(
                maker.crew.beats
            )  # an answer of the store, as all have when they meet: what was told before is there
        for maker in team.makers:
            maker.settle()
        assert all(launch.begun.is_set() for launch in known)


def test_those_that_live_meet_and_agree_who_they_are(stores) -> None:
    with Team(stores(3)) as team:
        team.makers[1].step(lambda: team.makers[1].crew.bury(2))
        found: list[Any] = [None, None]

        def come(rank: int) -> None:
            maker = team.makers[rank]
            found[rank] = meet(maker.crew, maker.step, lambda: None)

        threads = [threading.Thread(target=come, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert found == [(0, 1), (0, 1)]
        late = team.makers[2]
        with pytest.raises(Exception, match="RX0624"):
            meet(late.crew, late.step, lambda: None)


@pytest.mark.parametrize("trains", [True, False])
def test_one_waits_for_those_that_train_and_not_for_ever_for_others(stores, trains: bool) -> None:
    """Three times the timeout and more, for one that trains."""
    with Team(stores(2), timeout=2.0) as team:
        waiting, other = team.makers

        def train() -> None:
            for _ in range(80):
                other.crew.steps += 1
                time.sleep(0.1)
            meet(other.crew, other.step, lambda: None)

        thread = threading.Thread(target=train if trains else lambda: None)
        thread.start()
        if trains:
            assert meet(waiting.crew, waiting.step, lambda: None) == (0, 1)
        else:
            with pytest.raises(Exception, match="RX0629: rank 0: rank 1 lives"):
                meet(waiting.crew, waiting.step, lambda: None)
        thread.join(20)


@pytest.mark.parametrize("seconds", [0.0, 3.0])
def test_one_that_dies_while_others_meet_is_left_out(stores, seconds: float) -> None:
    """Nobody has offered anything, so only who waits for it listens. It has trained, ends, and dies after a while."""
    with Team(stores(2), timeout=4.0) as team:
        waiting, other = team.makers
        other.crew.steps += 5
        dying = threading.Timer(seconds, other.stop)
        dying.start()
        assert meet(waiting.crew, waiting.step, lambda: None) == (0,)
        assert waiting.crew.dead == {1}
        dying.join()


def test_a_lost_store_ends_the_thread_and_says_so() -> None:
    limit = dt.timedelta(seconds=5)
    host = dist.TCPStore("127.0.0.1", 0, None, True, limit, wait_for_workers=False)
    client = dist.TCPStore("127.0.0.1", host.port, None, False, limit)
    maker = Matchmaker(PrefixStore("a", client), 1, 2, 20.0)
    maker.start()
    Launched(maker, 0, crew=(0, 1))
    time.sleep(0.1)
    assert maker.error is None
    del host
    end = time.monotonic() + 20
    while maker.error is None and time.monotonic() < end:
        time.sleep(0.05)
    assert isinstance(maker.error, RuntimeError)
    maker.stop()
