"""What every room needs: errors, the run spec, hyper-parameters, seeds, files, events."""
