"""What `ssmlbench doctor --gpu` looks at: methods, precision, several processes and speed on a device."""
