"""What an interface has carried, from the kernel's own counters."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Traffic:
    """Bytes, headers of every layer included."""

    sent: int
    received: int

    def __sub__(self, earlier: "Traffic") -> "Traffic":
        return Traffic(self.sent - earlier.sent, self.received - earlier.received)


def parse(table: str, interface: str) -> Traffic:
    """Read the text of ``/proc/net/dev``: after the name, eight columns received and eight sent, bytes first."""
    for line in table.splitlines():
        name, colon, columns = line.partition(":")
        if colon and name.strip() == interface:
            numbers = columns.split()
            return Traffic(sent=int(numbers[8]), received=int(numbers[0]))
    raise LookupError(f"no interface {interface}")


def interface_traffic(interface: str, process: int | None = None) -> Traffic:
    """The counters in that process's network namespace (this one's by default).

    Not /sys/class/net: sysfs shows the namespace it was mounted in.
    """
    owner = "self" if process is None else str(process)
    return parse(Path(f"/proc/{owner}/net/dev").read_text(), interface)
