"""The parts of a method: contract, pools, losses, pseudo-labels, heads, families of methods."""
