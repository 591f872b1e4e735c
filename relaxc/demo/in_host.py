"""The first thing that runs in every process of a host: enter the namespaces, tie its life to its parent's, go on.

Started by path (``python -I -S in_host.py``), so it imports nothing but the standard library and starts in
milliseconds. A new process does this after ``exec`` and not in a ``preexec_fn``: a parent with threads may not run
Python after a fork.

    in_host.py hold PARENT FLAGS [FILE ...]     enter the namespaces in FILEs, make new ones (FLAGS: n, or Un for a user
                                                namespace too), say "ready", and live until standard input closes
    in_host.py run  PARENT [FILE ...] -- ARGS   enter the namespaces in FILEs (the user's first) and become ARGS
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _check(status: int, what: str) -> None:
    if status != 0:
        code = ctypes.get_errno()
        sys.exit(f"{what}: {os.strerror(code)}")


def die_with(parent: int) -> None:
    """Have the kernel end this process when its parent ends, SIGKILL included.

    To be called after the last change of credentials, which would clear it again.
    """
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != parent:  # it ended before we asked
        sys.exit("the process that started this one has ended")


def enter(path: str) -> None:
    with Path(path).open("rb") as namespace:
        _check(_libc.setns(namespace.fileno(), 0), f"enter {path}")


def become_root_of_a_user_namespace() -> None:
    """What ``unshare -Ur`` does: this user is root in there, and nobody else exists."""
    user, group = os.geteuid(), os.getegid()
    _check(_libc.unshare(CLONE_NEWUSER), "unshare user namespace")
    for name, line in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        Path(f"/proc/self/{name}").write_text(line)


def hold(parent: int, flags: str, namespaces: list[str]) -> None:
    for path in namespaces:
        enter(path)
    if "U" in flags:
        become_root_of_a_user_namespace()
    _check(_libc.unshare(CLONE_NEWNET), "unshare network namespace")
    die_with(parent)
    print("ready", flush=True)
    sys.stdin.read()


def run(parent: int, namespaces: list[str], command: list[str]) -> None:
    for path in namespaces:
        enter(path)
    die_with(parent)
    os.execvp(command[0], command)


def main(arguments: list[str]) -> None:
    verb, parent, *rest = arguments
    if verb == "hold":
        hold(int(parent), rest[0], rest[1:])
    else:
        cut = rest.index("--")
        run(int(parent), rest[:cut], rest[cut + 1 :])


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (OSError, KeyboardInterrupt) as error:
        sys.exit(str(error) or "interrupted")
