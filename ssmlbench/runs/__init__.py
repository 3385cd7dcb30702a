"""One run: its request resolved, executed, and kept in its folder."""
