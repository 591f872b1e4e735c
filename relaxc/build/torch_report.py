"""What `relaxc doctor` wants to know of torch, printed as JSON: `python -m relaxc.build.torch_report`.

In a process of its own, since importing torch takes seconds and a broken torch may take the process down.
"""

from __future__ import annotations

import json

from relaxc.build.runtime import built_runtime
from relaxc.build.torch_flags import import_torch


def torch_report() -> dict[str, str | bool | None]:
    """Raises BuildError RX0502 where torch is absent or does not load."""
    torch = import_torch()
    distributed = torch.distributed
    usable = distributed.is_available()
    runtime = built_runtime() if usable else None
    return {
        "version": torch.__version__,
        "c10d": usable,
        "gloo": usable and distributed.is_gloo_available(),
        "nccl": usable and distributed.is_nccl_available(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "runtime": str(runtime) if runtime else None,
    }


if __name__ == "__main__":
    print(json.dumps(torch_report()))
