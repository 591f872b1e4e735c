"""What is left of an iteration behind the step may be done bucket by bucket, each where the next forward first reads
its weights: for programs that allow it, and plans that know where that is."""

from __future__ import annotations

from collections.abc import Mapping

from relaxc.manifest import Manifest, ProgramPlan


def lands_by_parts(program: ProgramPlan) -> bool:
    """Whether the tail only waits and computes, and the iteration after it begins with nothing, which would need all
    weights."""
    tails = [operation for path in program.paths for operation in path.stages.get("tail", ())]
    begins = any(path.stages.get("begin") for path in program.paths)
    waits = all(operation.kind in ("compute", "finish") for operation in tails)
    return bool(tails) and waits and not begins and not any(t.asynchronous for t in program.transfers)


def readers(manifest: Manifest) -> Mapping[str, str]:
    """By parameter the dotted name of the module whose forward first reads it, as the trace that the plan is fitted to
    has seen it. Empty without one, and where the model's own forward reads some parameter, or none was seen to."""
    buckets = manifest.fit.programs if manifest.fit is not None else ()
    if any(len(bucket.readers) != len(bucket.parameters) or not all(bucket.readers) for bucket in buckets):
        return {}
    return {name: module for b in buckets for name, module in zip(b.parameters, b.readers, strict=True)}
