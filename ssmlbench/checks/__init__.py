"""The conformance suites that `ssmlbench check` and the tests run over every plugin."""
