"""Workers: what declares triggers and runs them."""

from jmsclient.worker.worker import StopReport, Worker

__all__ = ["StopReport", "Worker"]
