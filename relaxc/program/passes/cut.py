"""What of a straight line is computed together: drafts, which become fragments, between what has to be waited for.

The line is walked in text order. A draft takes in all that comes until something is needed that it can't have: the
result of an exchange under way, a second code to send, a norm. Exchanges that need no more than what an iteration
begins with are sent first of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from relaxc.program.ir import Exchange
from relaxc.program.passes.items import Sent
from relaxc.program.passes.line import Assigned, Event, Keeps, Lands, Leaves, Line, Returned, Stepped
from relaxc.program.passes.normal import refuse
from relaxc.program.paths import Transfer
from relaxc.wire.routes import gathers


@dataclass(eq=False)
class Draft:
    """A fragment in the making. `stores` are (target, value); `keeps` values that later drafts need; `norms` the cells
    that it measures; `starts` the transfers that may leave behind it; `theirs` those of its slot.N and kept.N that
    belong to what lands."""

    stores: list[tuple[str, str]] = field(default_factory=list)
    keeps: list[str] = field(default_factory=list)
    sends: int | None = None
    value: str | None = None
    code: str | None = None
    receives: int | None = None
    near: str | None = None
    own: str | None = None
    """The code that this worker has sent, where what it receives is decoded of all messages, its own among them."""
    norms: list[str] = field(default_factory=list)
    measures: bool = False
    starts: list[int] = field(default_factory=list)
    theirs: set[str] = field(default_factory=set)

    @property
    def empty(self) -> bool:
        return not self.stores and not self.keeps and self.sends is None and self.receives is None

    @property
    def idle(self) -> bool:
        """Whether nothing comes out of it."""
        return not self.stores and not self.keeps and self.sends is None

    def outputs(self) -> list[str]:
        values = [value for _, value in self.stores] + self.keeps
        return values + [v for v in (self.value, self.near) if v is not None]


@dataclass(eq=False)
class Mark:
    """`kind`: start or finish of transfer `number`; begun, cut, step and tail stand between stages."""

    kind: str
    number: int = -1
    late: bool = False


Entry = Draft | Mark


def cut(line: Line, sent: list[Sent], transfers: tuple[Transfer, ...]) -> list[Entry]:
    return _Cutter(line, sent, transfers).run()


class _Cutter:
    def __init__(self, line: Line, sent: list[Sent], transfers: tuple[Transfer, ...]) -> None:
        self.line, self.sent, self.transfers = line, sent, transfers
        self.done: list[Entry] = []
        self.current: Draft | None = None
        self.started: set[int] = set()
        self.finished: set[int] = set()
        self.landed: set[int] = set()
        self.measured: set[str] = set()
        self.coded: dict[str, Draft] = {}
        self.events = list(_needed(line.events))
        self.senders: dict[str, Leaves] = {}
        for event in self.events:
            if isinstance(event, Leaves) and event.code is not None:
                self.senders.setdefault(event.code, event)
        self.applies = not line.steps and not any(isinstance(e, Returned) for e in self.events)
        """Whether the user's optimiser has had its turn."""
        self.tail = False
        self.at = 0
        """The event that is being taken in."""

    def run(self) -> list[Entry]:
        kept = self.begin()
        for at, event in enumerate(self.events):
            self.at = at
            if event not in kept:
                self.event(event)
        self.close()
        self.finish_all()
        return self.done

    def event(self, event: Event) -> None:
        match event:
            case Assigned(name=name, value=value):
                self.store(name, value)
            case Leaves():
                self.send(event)
            case Keeps(number=number, value=value):
                self.store(f"kept.{number}", value)
            case Stepped():
                self.close()
                self.done.append(Mark("step"))
                self.applies = True
            case Returned():
                self.close()
                self.done.append(Mark("cut"))
                self.applies = not self.line.steps

    # --- what needs nothing of this iteration

    def begin(self) -> list[Event]:
        """Send what is known at the start; return what has been kept along with it."""
        applies, self.applies = self.applies, False
        for event in self.events:
            if isinstance(event, Leaves) and self.is_known(event.value) and self.steady(event.number):
                self.send(event)
        self.close()
        kept = [e for e in self.events if isinstance(e, Keeps) and self.kept_at_begin(e)]
        if self.done:
            self.done.append(Mark("begun"))
        self.applies = applies
        return list(kept)

    def steady(self, number: int) -> bool:
        """A loss that is fed back, factors, what a relay holds and what a codec keeps are states: they change within
        their iteration."""
        exchange = self.transfers[number].exchange
        keeps = exchange.rank or (exchange.codec is not None and exchange.codec.states)
        return exchange.feedback == "none" and exchange.kind != "relay" and not keeps

    def kept_at_begin(self, event: Keeps) -> bool:
        if self.line.shapes[event.value] == "cell" or not self.is_known(event.value):
            return False
        wanted = self.memory_of(event.value)
        for entry in self.done:
            if isinstance(entry, Draft) and wanted <= {m for v in entry.outputs() for m in self.memory_of(v)}:
                entry.stores.append((f"kept.{event.number}", event.value))
                return True
        return False

    def memory_of(self, value: str) -> set[str]:
        return {v for v in self.line.closure(value) if v not in self.line.defined}

    def is_known(self, value: str) -> bool:
        """Whether `value` is made of weights, states and numbers as an iteration begins with them."""
        outside = all("@" not in v and "." not in v and v != "grad" for v in self.memory_of(value))
        numbers = self.line.number_closure(value)
        return outside and not any(n == "lr" or n.startswith(("optimizer.", "late.")) for n in numbers)

    # --- drafts

    def open(self) -> Draft:
        if self.current is None:
            self.current = Draft()
        return self.current

    def close(self) -> None:
        draft, self.current = self.current, None
        if draft is not None and not draft.empty:
            self.done.append(draft)
            self.done.extend(Mark("start", number) for number in draft.starts)

    def fit(self, value: str, target: str = "") -> Draft:
        """The draft in which `value` can be computed, and stored to `target`: what lands and what is launched share
        names, so they don't share a draft."""
        self.prepare(value)
        draft, theirs = self.open(), self.theirs(value)
        mine = {t for t, _ in draft.stores} | {target}
        if mine & (theirs | draft.theirs):
            self.close()
            draft = self.open()
        draft.theirs |= theirs
        return draft

    def theirs(self, value: str) -> set[str]:
        return {v.removeprefix("late.") for v in self.line.closure(value) if v.startswith(("late.kept.", "late.slot."))}

    def prepare(self, value: str) -> None:
        """Wait for, send and measure what `value` is made of."""
        made = list(self.line.closure(value))
        for code in sorted(v.removeprefix("coded.") for v in made if v.startswith("coded.")):
            self.send(self.sender(code))
        for number in sorted(_numbered(made, "exchange.")):
            self.finish(number)
        for number in sorted(_numbered(made, "late.slot.")):
            self.finish_late(number)
        for norm in sorted(v for v in made if v in self.line.norms):
            self.measure(norm)

    def sender(self, code: str) -> Leaves:
        if code not in self.senders:
            help = "decode it where it is exchanged, in the same block"
            raise refuse(
                "RX0343",
                "a code is decoded in iterations in which it is not exchanged",
                self.line.spans.get(code),
                help,
            )
        return self.senders[code]

    def store(self, target: str, value: str) -> None:
        if self.line.shapes[value] == "cell":
            self.prepare(value)
            self.measuring(value, target).stores.append((target, value))
        else:
            self.fit(value, target).stores.append((target, value))

    def send(self, event: Leaves) -> None:
        number, value = event.number, event.value
        if number in self.started:
            return
        transfer = self.transfers[number]
        if transfer.shape == "cell":
            self.send_cell(number, value)
            return
        draft = self.fit(value, f"slot.{number}")
        if transfer.leaves == "code" and (draft.sends is not None or draft.receives is not None):
            self.close()
            draft = self.fit(value, f"slot.{number}")
        if transfer.leaves == "code":
            draft.sends, draft.value, draft.code = number, value, event.code
            if event.code is not None:
                self.coded.setdefault(event.code, draft)
        if transfer.leaves == "slot" or needs_slot(transfer):
            draft.stores.append((f"slot.{number}", value))
        draft.starts.append(number)
        self.started.add(number)

    # --- cells

    def send_cell(self, number: int, value: str) -> None:
        self.prepare(value)
        self.measuring(value, f"slot.{number}").stores.append((f"slot.{number}", value))
        self.done.append(Mark("start", number))
        self.started.add(number)

    def measure(self, norm: str) -> None:
        if norm not in self.measured:
            self.measured.add(norm)
            self.measuring(norm).norms.append(norm)

    def measuring(self, value: str, target: str = "") -> Draft:
        """A draft for cells that can compute `value`, and store it to `target`: before the current one, unless that
        brings what it needs."""
        self.prepare_inside(value)
        made = set(self.line.closure(value))
        current = self.current
        if current is not None and (
            f"exchange.{current.receives}" in made
            or any(self.coded.get(v.removeprefix("coded.")) is current for v in made if v.startswith("coded."))
        ):
            self.close()
        last = self.done[-1] if self.done else None
        if not isinstance(last, Draft) or not last.measures or self.apart(last, value, target):
            last = Draft(measures=True)
            self.done.append(last)
        last.theirs |= self.theirs(value)
        return last

    def apart(self, draft: Draft, value: str, target: str) -> bool:
        """Whether a norm would be taken of a norm of the same draft, or names of two launches would meet."""
        nested = value in self.line.norms and set(self.line.closure(value)) & set(draft.norms) - {value}
        mine = {t for t, _ in draft.stores} | {target}
        return bool(nested or mine & (draft.theirs | self.theirs(value)))

    def prepare_inside(self, value: str) -> None:
        """As prepare, for the norms inside of a norm too."""
        e = self.line.norms.get(value)
        for inner in self.line.values(e) if e is not None else (value,):
            self.prepare(inner)

    # --- waiting

    def finish(self, number: int) -> None:
        if number in self.finished:
            return
        if number not in self.started:
            raise AssertionError(f"exchange {number} is read before it has left")
        self.send_ahead()
        self.close()
        self.wait(Mark("finish", number))
        self.finished.add(number)
        transfer = self.transfers[number]
        if transfer.lands == "code":
            sent = next(e for e in self.events if isinstance(e, Leaves) and e.number == number)
            near = f"slot.{number}" if needs_slot(transfer) else sent.value
            own = sent.code if gathers(transfer.exchange.kind, transfer.coded, transfer.exchange.route) else None
            self.current = Draft(receives=number, near=near if is_near(transfer.exchange) else None, own=own)

    def finish_late(self, number: int) -> None:
        if number not in self.landed and not self.sent[number].now:
            self.send_ahead()
            self.close()
            self.wait(Mark("finish", number, late=True))
            self.landed.add(number)

    def send_ahead(self) -> None:
        """Before anything is waited for, all that is known already leaves, up to where the user has a turn."""
        for event in self.events[self.at :]:
            if isinstance(event, Stepped | Returned):
                return
            if isinstance(event, Leaves) and self.is_there(event.value):
                self.send(event)

    def is_there(self, value: str) -> bool:
        made = list(self.line.closure(value))
        waits = set(_numbered(made, "exchange.")) - self.finished or set(_numbered(made, "late.slot.")) - self.landed
        return not waits and not any(v.startswith("coded.") or v in self.line.norms for v in made)

    def wait(self, mark: Mark) -> None:
        """The first wait behind the optimiser begins the tail. One of low rank takes all workers at once, and only in
        their steps are they known to be at the same place: the tail is when each of them needs weights."""
        if self.applies and not self.tail and not self.together():
            self.done.append(Mark("tail"))
            self.tail = True
        self.done.append(mark)

    def together(self) -> bool:
        """Whether some exchange of low rank has yet to be waited for."""
        sent = {event.number for event in self.events if isinstance(event, Leaves)}
        return any(self.transfers[number].exchange.rank for number in sent - self.finished)

    def finish_all(self) -> None:
        """What nobody has read is waited for all the same."""
        for event in self.events:
            for number in event.slots if isinstance(event, Lands) else ():
                self.finish_late(number)
        for number in sorted(self.started - self.finished):
            if self.sent[number].now or not self.sent[number].late:
                self.wait(Mark("finish", number))
                self.finished.add(number)


def is_near(exchange: Exchange) -> bool:
    """Whether what is received is decoded next to one's own value."""
    return exchange.codec is not None and exchange.codec.near is not None


def is_guarded(exchange: Exchange) -> bool:
    return exchange.codec is not None and exchange.codec.guard is not None


def needs_slot(transfer: Transfer) -> bool:
    """Whether what was put into a code has to be in a slot when messages arrive."""
    return is_near(transfer.exchange) and (transfer.lands == "slot" or is_guarded(transfer.exchange))


def _numbered(values: list[str], prefix: str) -> Iterator[int]:
    return (int(v.removeprefix(prefix)) for v in values if v.startswith(prefix) and v.removeprefix(prefix).isdigit())


def _needed(events: list[Event]) -> Iterator[Event]:
    """Without what is assigned again before anyone but the body itself could see it."""
    last: list[Event] = []
    later: set[str] = set()
    for event in reversed(events):
        match event:
            case Stepped():
                later -= {"weight", "grad"}
            case Returned():
                later -= {"grad"}
            case Assigned(name=name):
                if name in later:
                    continue
                later.add(name)
        last.append(event)
    return reversed(last)
