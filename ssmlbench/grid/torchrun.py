"""Support for torchrun: of the copies of a command, the first one makes the runs, the others end.

The run itself starts the processes that share it, after its labels are sealed; torchrun only sets their
number.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from ssmlbench.core.errors import UserError
from ssmlbench.core.whole_numbers import whole_number


@dataclass(frozen=True)
class Copies:
    """The copies of this command that torchrun has started."""

    count: int = 1  # on all machines
    here: int = 1  # on this machine
    number: int = 0  # the rank of this copy

    @property
    def leads(self) -> bool:
        """Whether this copy makes the runs."""
        return self.number == 0

    @classmethod
    def of_environment(cls) -> Copies:
        """Read from torchrun's environment variables; one copy without torchrun."""
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            return cls()
        names = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK")
        count, here, number = (whole_number(os.environ.get(name, "")) for name in names)
        if count is None or here is None or number is None:
            raise UserError(f"torchrun: {', '.join(names)} must be numbers in its environment")
        return cls(count, here, number)

    def devices(self, gpus: int) -> int:
        """The number of devices that share each run. gpus: the value of --gpus, 1 by default."""
        if self.count == 1:
            return gpus
        if self.here != self.count:
            raise UserError(
                f"torchrun has started {self.count} copies of this command on several machines; the "
                "devices of a run are on one: type --nnodes 1, or see --engine"
            )
        if gpus not in (1, self.count):
            raise UserError(
                f"--gpus {gpus}: torchrun has started {self.count} copies of this command; leave "
                "--gpus out"
            )
        return self.count

    def check(self, gpus: int) -> None:
        """Raise a UserError if every copy would make every run. gpus: that share each run."""
        if self.count > 1 and not (self.leads and gpus == self.count):
            raise UserError(
                f"torchrun has started {self.count} copies of this program, each of which would make "
                f"every run; start it once, with gpus={self.count}"
            )
