"""What `relaxc demo` runs: the same training over a slow network, with and without relaxation."""

from relaxc.demo.session import run

__all__ = ["run"]
