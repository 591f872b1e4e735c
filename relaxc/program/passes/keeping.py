"""Makes every draft able to compute what it puts out: what it can't read again from memory, an earlier one keeps for
it.

A value is read again where memory still holds it, and computed again from what memory holds; only the rest goes through
kept.N. A state whose old value would have to be kept because it was stored early is stored late instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from relaxc.program.passes.cut import Draft, Entry, Mark
from relaxc.program.passes.line import RETURNED, STEPPED, Line
from relaxc.program.paths import Transfer

Held = dict[str, str]
"""The operand that holds a value."""


class Memory:
    """What memory holds before each entry of a schedule."""

    def __init__(self, line: Line, transfers: tuple[Transfer, ...], entries: list[Entry]) -> None:
        self.line, self.transfers, self.entries = line, transfers, entries

    def before(self, at: int) -> Held:
        """By value, before entry `at`."""
        memory: dict[str, str] = {}
        lost: set[str] = set()
        held: Held = {}
        for entry in self.entries[:at]:
            if isinstance(entry, Draft):
                memory.update((t, v) for t, v in entry.stores if not t.startswith(("kept.", "slot.")))
                held.update((v, f"keep {v}") for v in entry.keeps)
            else:
                self.pass_mark(entry, memory, lost, held)
        held.update((value, name) for name, value in memory.items() if name not in lost)
        held.update(
            (n, n) for n in self.initial() if n not in memory and n not in lost and f"{n}{STEPPED}" not in memory
        )
        waited = {f"late.slot.{e.number}" for e in self.entries if isinstance(e, Mark) and e.late}
        there = (n for n in self.line.shapes if n.startswith(("late.kept.", "late.slot.")) and n not in waited)
        held.update((n, n.removeprefix("late.")) for n in there)
        return held

    def initial(self) -> Iterator[str]:
        """Values that go by the name of the memory that holds them at first."""
        for name in self.line.shapes:
            plain = name not in self.line.defined and "@" not in name and "." not in name
            if plain or (name.startswith("optimizer.") and not name.endswith(STEPPED)):
                yield name

    def pass_mark(self, mark: Mark, memory: dict[str, str], lost: set[str], held: Held) -> None:
        match mark.kind:
            case "step":
                memory["weight"] = f"weight{STEPPED}"
                for name in self.line.shapes:
                    if name.startswith("optimizer."):
                        memory[name.removesuffix(STEPPED)] = f"{name.removesuffix(STEPPED)}{STEPPED}"
            case "cut":
                memory["grad"] = f"grad{RETURNED}"
            case "tail":
                lost.add("grad")
            case "finish" if mark.late:
                held[f"late.slot.{mark.number}"] = f"slot.{mark.number}"
            case "finish" if self.transfers[mark.number].lands == "slot":
                held[f"exchange.{mark.number}"] = f"slot.{mark.number}"

    def of(self, draft: Draft) -> Held:
        """What `draft` can read without computing: no slot or kept value of two launches under one name."""
        return self.readable(draft, self.before(self.entries.index(draft)))

    def readable(self, draft: Draft, held: Held) -> Held:
        stored = {t for t, _ in draft.stores}
        found = {
            value: operand
            for value, operand in held.items()
            if not (value.startswith("late.") and operand in stored)
            and not (value.startswith("exchange.") and operand in draft.theirs)
        }
        if draft.receives is not None:
            found[f"exchange.{draft.receives}"] = "arrived"
        if draft.near is not None and draft.near.startswith("slot."):
            found[draft.near] = draft.near
        if draft.own is not None:
            found[f"coded.{draft.own}"] = "own_coded"
        if draft.code is not None:
            found[f"coded.{draft.code}"] = "coded"
        return found


class Keeper:
    def __init__(self, line: Line, transfers: tuple[Transfer, ...], entries: list[Entry]) -> None:
        self.line, self.entries = line, entries
        self.memory = Memory(line, transfers, entries)

    def run(self) -> None:
        """Raise AssertionError where a value is lost for good."""
        drafts = [entry for entry in self.entries if isinstance(entry, Draft)]
        for draft in drafts:
            for value in draft.outputs():
                self.need(draft, value)

    def need(self, draft: Draft, value: str) -> None:
        """Keep one value rather than several that it is made of."""
        missing = self.missing(draft, value, self.memory.of(draft))
        if not missing or self.keep(draft, missing[0] if len(missing) == 1 else value):
            return
        if len(missing) == 1:
            raise AssertionError(f"{missing[0]} is lost before it is used")
        for inner in sorted(self.line.values(self.line.defined.get(value) or self.line.norms[value])):
            self.need(draft, inner)

    def missing(self, draft: Draft, value: str, held: Held) -> list[str]:
        """What `value` is made of and `draft` neither holds nor can compute, in a fixed order."""
        found: set[str] = set()
        seen, open_ = {value}, [value]
        while open_:
            name = open_.pop()
            if name in held:
                continue
            e = self.line.defined.get(name) or (self.line.norms.get(name) if name in draft.norms else None)
            if e is None:
                found.add(name)
            else:
                new = self.line.values(e) - seen
                seen |= new
                open_ += new
        return sorted(found)

    def earlier(self, draft: Draft) -> Iterator[Draft]:
        """From the last."""
        at = self.entries.index(draft)
        return (entry for entry in reversed(self.entries[:at]) if isinstance(entry, Draft))

    def may_keep(self, draft: Draft, value: str) -> bool:
        return draft.measures == (self.line.shapes[value] == "cell")

    def keep(self, draft: Draft, value: str) -> bool:
        """Keep `value` in the last draft before `draft` that can compute it, or in one made for it, if there is a
        place."""
        for earlier in self.earlier(draft):
            if value in earlier.norms:
                earlier.keeps.append(value)
                self.need(earlier, value)
                return True
            if self.may_keep(earlier, value) and not self.missing(earlier, value, self.memory.of(earlier)):
                earlier.keeps.append(value)
                return True
        for at in range(self.entries.index(draft), -1, -1):
            made = Draft(keeps=[value], measures=self.line.shapes[value] == "cell")
            if not self.missing(made, value, self.memory.readable(made, self.memory.before(at))):
                self.entries.insert(at, made)
                return True
        return False


def keep(line: Line, transfers: tuple[Transfer, ...], entries: list[Entry]) -> list[Entry]:
    """The schedule with what has to be kept, as little as is found by storing states later."""
    best = _kept(line, transfers, entries)
    for _ in range(len(line.defined) + 1):
        better = next((t for t in _tries(line, transfers, entries, best) if _cost(t[1]) < _cost(best)), None)
        if better is None:
            return best
        entries, best = better
    return best


def _cost(entries: list[Entry]) -> int:
    return sum(len(entry.keeps) for entry in entries if isinstance(entry, Draft))


def _kept(line: Line, transfers: tuple[Transfer, ...], entries: list[Entry]) -> list[Entry]:
    copied = [_copy(entry) for entry in entries]
    Keeper(line, transfers, copied).run()
    return [e for e in copied if not isinstance(e, Draft) or not e.idle]


def _copy(entry: Entry) -> Entry:
    if isinstance(entry, Mark):
        return entry
    return replace(entry, stores=list(entry.stores), keeps=list(entry.keeps), norms=list(entry.norms))


def _tries(
    line: Line, transfers: tuple[Transfer, ...], entries: list[Entry], kept: list[Entry]
) -> Iterator[tuple[list[Entry], list[Entry]]]:
    """Schedules with one store moved back, for each state whose old value is kept."""
    leaves = {v for e in kept if isinstance(e, Draft) for v in e.keeps}
    for at, entry in enumerate(entries):
        for target, value in entry.stores if isinstance(entry, Draft) else ():
            if target in leaves and target not in ("weight", "grad"):
                for later in _behind(entries, at, line.shapes[value] == "cell"):
                    moved = _moved(entries, at, later, (target, value))
                    yield moved, _kept(line, transfers, moved)


def _behind(entries: list[Entry], at: int, cell: bool) -> Iterator[int]:
    for later in range(at + 1, len(entries)):
        entry = entries[later]
        if isinstance(entry, Draft) and entry.measures == cell:
            yield later


def _moved(entries: list[Entry], at: int, to: int, store: tuple[str, str]) -> list[Entry]:
    copied = [_copy(entry) for entry in entries]
    source, target = copied[at], copied[to]
    assert isinstance(source, Draft) and isinstance(target, Draft)
    source.stores.remove(store)
    target.stores.append(store)
    return copied
