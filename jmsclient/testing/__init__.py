"""What tests of programs and of backends need: a clock moved by hand, a broker for one test, a backend that is told what to do.

The conformance suite is in `jmsclient.testing.conformance`, which imports pytest; nothing here does.
"""

from jmsclient.testing.broker import TestBroker
from jmsclient.testing.manual_clock import ManualClock
from jmsclient.testing.scripted import ScriptedBackend
from jmsclient.testing.scripted_state import DeadLetter, Settlement

__all__ = ["DeadLetter", "ManualClock", "ScriptedBackend", "Settlement", "TestBroker"]
