"""The training loop: batching, evaluation, saved state, averaged weights, device and precision."""
