"""Many runs: a request becomes a list of specs, and an engine makes the unfinished ones."""
