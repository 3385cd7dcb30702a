"""How a number is made: regimes, what is observed, what stays sealed, metrics, decision rules."""
