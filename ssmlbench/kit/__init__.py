"""What a method is written with: the contract, pools, losses, pseudo-labels, heads, families of methods."""
