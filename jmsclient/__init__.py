"""JMS-style consumers for Python. The public names; see the documentation for what each promises."""
