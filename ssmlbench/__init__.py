"""ssmlbench: one honest benchmark for semi-supervised multi-label learning.

The engine is imported module by module (`from ssmlbench.method import Method`), so that the command
line answers without loading torch.
"""

__version__ = "0.1.0"
