"""The parts of `ssmlbench doctor --gpu`: methods, precision, several processes and speed on a device."""
