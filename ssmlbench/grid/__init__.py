"""Many runs: what is asked becomes a list of specs, and an engine makes those that are not made.

Three engines take the same specs: worker processes here, a Ray cluster, or Slurm.
"""

from __future__ import annotations

from ssmlbench.grid.engines.local import run_all
from ssmlbench.grid.request import GridRequest, expand
from ssmlbench.grid.run_one import Summary, run_one

__all__ = ["GridRequest", "Summary", "expand", "run_all", "run_one"]
