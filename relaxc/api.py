"""relaxc in Python: `compile` a spec, or `load` a plan; then `plan.attach(model, optimizer)`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from relaxc.attach.plan import Plan
    from relaxc.language.source import Source

# The compiler is imported inside `compile`: a built plan loads where lark and jinja2 are absent.


def compile(
    spec: str | Path, *, model: nn.Module | None = None, settings: Mapping[str, Any] | None = None,
    target: str | None = None,
) -> Plan:  # fmt: skip
    """Compile a spec in memory: a path, the name of a shipped spec ("bytegrad"), or the text itself if it has a line
    end or a space. With `model`, kernels are made for its dtypes only and the plan takes no other model. `target` is
    cpu, cuda or "cpu,cuda" (default: the device that the model is on); of others kernels are made at attach.

    Raise SpecError for mistakes in the spec, ModelError (RX04), BuildError (RX05), FileNotFoundError.
    """
    from relaxc import pipeline
    from relaxc.build.torch_flags import import_torch

    import_torch()
    from relaxc.attach.devices import targets_for
    from relaxc.attach.parameters import read_parameters
    from relaxc.attach.plan import open_plan
    from relaxc.build.targets import targets_of

    source = _source(spec)
    chosen = {k: str(v) for k, v in (settings or {}).items()}
    checked = pipeline.to_spec(source, chosen)
    read = None if model is None else read_parameters(model)
    targets = targets_of(target.replace(" ", "").split(",")) if target is not None else targets_for(read)
    parameters = None if read is None else read.parameters
    return open_plan(pipeline.build(checked, chosen, Path(source.name).name, parameters, targets=targets))


def load(folder: str | Path) -> Plan:
    """The plan that `relaxc compile -o folder` wrote. Raise BuildError (RX05) where it is damaged or another
    version's."""
    from relaxc.build.torch_flags import import_torch

    import_torch()
    from relaxc.attach.plan import load as load_plan

    return load_plan(folder)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a text is too long for a name
        return False


def _source(spec: str | Path) -> Source:
    from relaxc.language.source import Source
    from relaxc.resources import folder

    path = Path(spec)
    if isinstance(spec, str) and any(c in spec for c in " \n{") and not _is_file(path):
        return Source("<text>", spec)
    if not path.exists() and path.suffix == "" and len(path.parts) == 1:
        return Source.read(folder("specs") / f"{path.name}.relax")
    return Source.read(path)
