"""Base classes of methods that share one shape."""
