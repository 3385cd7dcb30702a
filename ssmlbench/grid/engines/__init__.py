"""Where the runs of a grid are made: on this machine, on Ray, on Slurm."""
