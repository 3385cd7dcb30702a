"""Many runs: what is asked becomes a list of specs, and an engine makes those that are not made.

Three engines take the same specs: worker processes here, a Ray cluster, or Slurm.
"""

from __future__ import annotations

from ssmlbench.grid.asked import Asked, expand
from ssmlbench.grid.attempt import Report, Summary, run_one
from ssmlbench.grid.local import run_all

__all__ = ["Asked", "Report", "Summary", "expand", "run_all", "run_one"]
