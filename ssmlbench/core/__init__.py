"""The basics of every room: errors, the run spec, hyper-parameters, seeds, files, events."""
