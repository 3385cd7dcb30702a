"""Many runs: a request becomes a list of specs, and an engine makes those that are not finished.

`Dispatch` chooses the engine and shares the machine; engines/ has one file an engine.
"""

from __future__ import annotations

from ssmlbench.grid.dispatch import Dispatch
from ssmlbench.grid.engines.base import GridPlan, Submission
from ssmlbench.grid.request import GridRequest, expand
from ssmlbench.grid.run_one import Summary, run_one

__all__ = ["Dispatch", "GridPlan", "GridRequest", "Submission", "Summary", "expand", "run_one"]
