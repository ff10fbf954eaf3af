"""The broker in full against a reference model, with the conservation checker after each step (IF-7, IF-8; J-1 to J-13).

IF-1 to IF-15, IF-18, IF-20, IF-28, IF-31 to IF-35; T1 to T17; the pause table; the settlement table. With a store also what is
there again after the end of a process, clean or not (IF-11). The short profile is the same run each time.
JMSCLIENT_MODEL_EXAMPLES=N runs N examples of each machine, new ones each time; where one fails, Hypothesis prints the steps that
lead there and a blob that repeats them.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from .model_steps import Steps, StoredSteps

_ASKED = os.environ.get("JMSCLIENT_MODEL_EXAMPLES")


def profile(examples: int, steps: int) -> settings:
    return settings(
        max_examples=int(_ASKED) if _ASKED else examples,
        stateful_step_count=steps * 2 if _ASKED else steps,
        derandomize=_ASKED is None,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


Steps.TestCase.settings = profile(250, 40)
StoredSteps.TestCase.settings = profile(80, 25)
TestBrokerInMemoryAgainstModel = Steps.TestCase
TestBrokerWithAStoreAgainstModel = StoredSteps.TestCase
