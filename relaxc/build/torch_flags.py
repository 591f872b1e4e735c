"""How this torch wants extensions compiled, asked from torch itself.

Not torch.utils.cpp_extension: importing that needs setuptools, which an environment with torch may lack.
"""

from __future__ import annotations

import platform
import re
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from relaxc.build import cache
from relaxc.errors import BuildError

MODULE = "relaxc_runtime"
"""Name of the extension module that the runtime's binding defines."""
LIBRARIES = ("torch", "torch_cpu", "torch_python", "c10")


@dataclass(frozen=True, slots=True)
class TorchFlags:
    """`version` is torch's own; `binary` names all that a compiled runtime must agree with, whoever compiled it."""

    version: str
    binary: str
    defines: tuple[str, ...]
    includes: tuple[str, ...]
    link: tuple[str, ...]


def import_torch() -> ModuleType:
    """Raises BuildError RX0502 where torch is absent or does not load."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise BuildError("RX0502", f"torch is not installed (no module {error.name})", "pip install torch") from error
    except (ImportError, OSError) as error:
        raise BuildError("RX0502", f"torch does not load: {error}", "pip install --force-reinstall torch") from error
    return torch


def torch_flags() -> TorchFlags:
    torch = import_torch()
    root = Path(torch.__path__[0])
    abi = int(torch.compiled_with_cxx11_abi())
    git, python = str(torch.version.git_version), str(sysconfig.get_config_var("SOABI"))
    return TorchFlags(
        version=torch.__version__,
        binary=cache.key_of([torch.__version__, git, python, platform.machine(), str(abi)]),
        defines=(
            f"-std={_standard(torch.__config__.show())}",
            f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
            f"-DTORCH_EXTENSION_NAME={MODULE}",
            "-DTORCH_API_INCLUDE_EXTENSION_H",
        ),
        includes=tuple(f"-isystem{root / 'include' / sub}" for sub in ("", "torch/csrc/api/include")),
        link=(f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}", *(f"-l{name}" for name in LIBRARIES)),
    )


def _standard(configuration: str) -> str:
    """The C++ standard that torch was built with: its headers need that one."""
    found = re.search(r"C\+\+ Version: 20(\d\d)", configuration)
    return f"c++{found[1]}" if found else "c++17"


def python_include() -> str:
    """Raises BuildError RX0506 where Python's own headers are missing."""
    folder = Path(sysconfig.get_path("include"))
    if (folder / "Python.h").is_file():
        return f"-isystem{folder}"
    version = sysconfig.get_python_version()
    message = f"the headers of Python {version} are missing: there is no Python.h in {folder}"
    raise BuildError("RX0506", message, "install them (on Debian: apt-get install python3-dev)")
