"""The protocol: regimes, observed labels, the sealed truth, metrics, decision rules."""
