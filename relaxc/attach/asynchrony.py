"""All asynchronous exchanges of one attach: how they come to rest, whatever the workers' steps, and go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from relaxc.attach.crew import meet
from relaxc.attach.door import Door
from relaxc.attach.flight import Flight, Stage
from relaxc.attach.groups import Groups, join_group
from relaxc.attach.lanes import Lane, store_lost
from relaxc.attach.matching import Matchmaker
from relaxc.attach.newcomer import Newcomer

if TYPE_CHECKING:
    from relaxc.attach.recording import Recorder


class Asynchrony:
    """`groups` are of those that live: with a group of their own for what all compare, where somebody died."""

    def __init__(self, lanes: Sequence[Lane], matchmaker: Matchmaker, groups: Groups, watch: Any) -> None:
        self.lanes, self.matchmaker = tuple(lanes), matchmaker
        self.groups = groups
        store = matchmaker.store
        self.door = Door(store, matchmaker, self.lanes, groups) if groups.workers > 1 else None
        self._all, self._watch = groups, watch
        self._crew = () if groups.rejoins else tuple((rank, 0) for rank in range(groups.workers))
        """Those that `groups.control` is of, each with its life."""
        self.recorder: Recorder | None = None
        for lane in self.lanes:
            lane.note = self._note

    def in_step(self, whether: bool) -> None:
        """Whether something else is exchanged that all wait for."""
        for lane in self.lanes:
            lane.in_step = whether

    def start(self) -> None:
        self.matchmaker.start()

    def stop(self) -> None:
        if self.door is not None:
            self.door.stop()
        self.matchmaker.stop()
        for lane in self.lanes:
            lane.operations.stop()

    def come_to_rest(self, forgets: bool = False) -> None:
        """Collective. Until go_on() nothing begins; what some worker counts on has arrived or is dropped, and all other
        launches wait. Waits for whoever lives, however far it has come in its loop. `forgets`: forget() follows."""
        maker = self.matchmaker
        maker.hold()
        self._meet()
        maker.settle()
        for lane in self.lanes:
            lane.wait()
        self._follow(self._meet(forgets))

    @property
    def wanted(self) -> bool:
        """Whether one that comes back waits for a copy of what this worker has."""
        return self.door is not None and self.door.wanted.is_set()

    def come_back(self, take: Callable[[bytes], None]) -> None:
        """As a worker that was started again, before start()."""
        Newcomer(self.matchmaker.store, self.matchmaker, self.lanes, self._all, take).come()

    def go_on(self) -> None:
        self.matchmaker.go_on()

    def forget(self) -> None:
        """At rest, all workers alike: nothing that was launched lands."""
        for lane in self.lanes:
            flight = lane.flight
            lane.forget(withdraw=flight is not None and flight.stage in (Stage.MADE, Stage.OFFERED))
        self.matchmaker.begin_anew()

    def _meet(self, forgets: bool = False) -> tuple[int, ...]:
        try:
            return meet(self.matchmaker.crew, self.matchmaker.step, self._waited, forgets)
        except RuntimeError as error:
            self._look()  # what the matchmaker's thread has found
            if type(error).__module__.startswith("torch"):
                raise store_lost(self._all.rank, "is gone") from error
            raise

    def _waited(self) -> None:
        self._watch.on_wait(0.0)
        self._look()

    def _look(self) -> None:
        for lane in self.lanes[:1]:
            lane.look()

    def _follow(self, crew: tuple[int, ...]) -> None:
        """A group for what all compare, where they are others than the last time: also where one has come back."""
        maker = self.matchmaker.crew
        lives = tuple((r, maker.lives_then[r]) for r in crew)
        if lives == self._crew:
            return
        self._crew, rank = lives, crew.index(self._all.rank)
        control = join_group(self._all.store, f"control/{maker.met}", rank, len(crew), self._all.timeout)
        self.groups = replace(self._all, control=control, rank=rank, workers=len(crew))

    # --- what is told of them

    def record(self, recorder: Recorder) -> None:
        """From now on. What has left before it is told of is told first."""
        for lane in self.lanes:
            recorder.introduce(lane)
            if lane.flight is not None:
                recorder.write("launch", lane, lane.flight, lane.flight.t)
        self.recorder = recorder

    def _note(self, event: str, lane: Lane, flight: Flight, t: int) -> None:
        if self.recorder is not None:
            self.recorder.write(event, lane, flight, t)

    def stats(self) -> dict[str, float | int]:
        counts = [lane.counts for lane in self.lanes]
        return {
            "launched": sum(c.launches for c in counts),
            "landed": sum(c.landed for c in counts),
            "dropped": sum(c.dropped for c in counts),
            "matching_seconds": sum(c.waiting_seconds for c in counts),
            "lost_workers": len(self.matchmaker.crew.dead),
        }

    @property
    def oldest(self) -> int:
        """The largest age, in iterations, of what has landed."""
        return max((lane.counts.staleness for lane in self.lanes), default=0)
