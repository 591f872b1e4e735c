"""What every path must keep. A failure is a bug of relaxc, never the user's."""

from __future__ import annotations

from dataclasses import dataclass, field

from relaxc.program.ir import Apply, Optimizer, Reduce, within
from relaxc.program.paths import FINITE, STORED, Fragment, Guard, Operation, Path, PathBody, Paths, expressions
from relaxc.program.reads import reads
from relaxc.program.verify import VerifyError

OPERANDS = ("kept.", "slot.")


def verify_paths(paths: Paths) -> Paths:
    """Return `paths`, or raise VerifyError."""
    for body in paths.bodies:
        for fragment in body.fragments:
            _fragment(body, fragment)
        for path in (*body.paths, *body.landings):
            _Walk(body, path).run()
    return paths


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise VerifyError(what)


def operands(fragment: Fragment) -> set[str]:
    """The kept.N and slot.N that it reads."""
    return {n for e in expressions(fragment) for n in reads(e) if n.startswith(OPERANDS)}


def _fragment(body: PathBody, fragment: Fragment) -> None:
    _require(fragment.sends is None or fragment.receives is None, "a fragment sends and receives")
    _require((fragment.sends is None) == (fragment.value is None), "a fragment sends nothing, or a value nowhere")
    seen: set[str] = set()
    for let in fragment.lets:
        _require(let.name not in seen, f"let {let.name} twice in a fragment")
        later = {other.name for other in fragment.lets} - seen
        _require(not later & reads(let.value), f"let {let.name} reads a later one")
        seen.add(let.name)
    targets = [store.target for store in fragment.stores]
    _require(len(set(targets)) == len(targets), "a fragment stores twice to one target")
    _require(not set(fragment.late) & set(targets), "a fragment mixes two launches under one name")
    _require(set(fragment.late) <= operands(fragment), "what is late is not read")
    for store in fragment.stores:
        _require(_known(body, store.target), f"a store to unknown {store.target}")
        _require(_shape(body, store.target) == "cell" or not fragment.measures, "a tensor is stored while measuring")
        _require(
            _shape(body, store.target) == "tensor" or fragment.measures, "a cell is stored by no measuring fragment"
        )
    found = {n for e in expressions(fragment) for n in reads(e)}
    _require("arrived" not in found or fragment.receives is not None, "nothing arrives")
    _require("coded" not in found or fragment.sends is not None, "no code is sent")
    _require("own_coded" not in found or fragment.receives is not None, "an own code where nothing arrives")
    measured = any(isinstance(p, Reduce) for e in expressions(fragment) for p in within(e))
    _require(fragment.measures or not measured, "a norm in a fragment that does not measure")


def _known(body: PathBody, name: str) -> bool:
    if name.startswith("kept."):
        return int(name.removeprefix("kept.")) < len(body.kept)
    if name.startswith("slot."):
        return int(name.removeprefix("slot.")) < len(body.transfers)
    return name in ("weight", "grad") or any(s.name == name and s.shape != "number" for s in body.states)


def _shape(body: PathBody, name: str) -> str:
    if name.startswith("kept."):
        return body.kept[int(name.removeprefix("kept."))].shape
    if name.startswith("slot."):
        return body.transfers[int(name.removeprefix("slot."))].shape
    return next((s.shape for s in body.states if s.name == name), "tensor")


@dataclass
class _Walk:
    """One path from begin to tail."""

    body: PathBody
    path: Path
    started: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)
    late: set[int] = field(default_factory=set)
    sent: set[int] = field(default_factory=set)
    written: set[str] = field(default_factory=set)

    def run(self) -> None:
        for stage, operations in self.path.stages:
            for operation in operations:
                getattr(self, f"_{operation.kind}")(stage, operation)
        for number in self.started - self.finished:
            _require(self.body.transfers[number].after >= 0, f"transfer {number} is never waited for")
        self._numbers()

    def _compute(self, stage: str, operation: Operation) -> None:
        fragment = self.body.fragments[operation.number]
        for name in operands(fragment) - set(fragment.late):
            number = int(name[5:])
            there = name in self.written if name.startswith("kept.") else number in self.finished
            _require(there, f"{name} is read before it is there")
        for name in set(fragment.late):
            number = int(name[5:])
            kept = name.startswith("kept.")
            after = self.body.kept[number].after if kept else self.body.transfers[number].after
            _require(self._lands(after), f"{name} is read where nothing lands")
            _require(kept or number in self.late or number not in self._late_only(), f"{name} has not landed")
        if fragment.receives is not None:
            _require(fragment.receives in self.finished, "a fragment decodes what has not arrived")
        if fragment.sends is not None:
            _require(fragment.sends not in self.sent, "a transfer is encoded twice")
            self.sent.add(fragment.sends)
        targets = {store.target for store in fragment.stores}
        self.written |= targets
        found = {n for e in expressions(fragment) for n in reads(e)}
        _require(stage != "tail" or "grad" not in found, "the tail reads grad")
        _require(stage != "begin" or all(t.startswith(OPERANDS) for t in targets), "a state changes in begin")

    def _late_only(self) -> set[int]:
        return {n for _, o in self.path.stages for p in o if p.kind == "finish" and p.late for n in [p.number]}

    def _lands(self, after: int) -> bool:
        guards = [step for step in self.body.control if isinstance(step, Guard)]
        return any(
            g.kind == "land" and g.block == after and truth for g, truth in zip(guards, self.path.guards, strict=True)
        )

    def _start(self, stage: str, operation: Operation) -> None:
        number = operation.number
        transfer = self.body.transfers[number]
        _require(number not in self.started, f"transfer {number} starts twice")
        coded = transfer.leaves == "code"
        _require(number in self.sent if coded else f"slot.{number}" in self.written, f"transfer {number} sends nothing")
        self.started.add(number)

    def _finish(self, stage: str, operation: Operation) -> None:
        done = self.late if operation.late else self.finished
        _require(operation.number not in done, f"transfer {operation.number} is waited for twice")
        _require(operation.late or operation.number in self.started, f"transfer {operation.number} was not started")
        done.add(operation.number)

    def _numbers(self) -> None:
        names = [name for name, _ in self.path.numbers]
        _require(len(set(names)) == len(names), "a number is defined twice")
        defined = set(names)
        for state, name in self.path.states:
            _require(name in defined, f"number state {state} has no last value")
        for name, e in self.path.numbers:
            _require(not any(isinstance(p, Reduce) for p in within(e)), f"{name} is no number")
            _require(not any(isinstance(p, Optimizer) and p.tensor for p in within(e)), f"{name} is no number")
            _require(not any(isinstance(p, Apply) and p.function in (STORED, FINITE) for p in within(e)), name)
