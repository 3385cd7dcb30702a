"""One run: resolving its spec, executing it, its folder and its result."""
