"""JMS-style consumers for Python. The public names; see the documentation for what each promises."""

from jmsclient.buffer import BufferCounters
from jmsclient.conversion import Byte, Float, Int, Short
from jmsclient.destination import (
    Queue,
    ReadAheadAllowed,
    ReadAheadClosePolicy,
    TemporaryQueue,
    TemporaryTopic,
    Topic,
)
from jmsclient.errors import (
    CloseTimeout,
    ConfigurationError,
    ConnectionLostError,
    DestinationPausedError,
    HistoryUnavailableError,
    IllegalStateError,
    InvalidDestinationError,
    InvalidSelectorError,
    JmsClientError,
    LeaseLostError,
    MessageFormatError,
    MessageNotWriteableError,
    RequestTimeoutError,
    ResourceAllocationError,
    SendError,
    TransactionInDoubtError,
    TransactionRolledBackError,
    TransientError,
    UnsupportedFeatureError,
)
from jmsclient.intake import CloseReport
from jmsclient.jms.browser import QueueBrowser
from jmsclient.jms.connection import Connection, connect
from jmsclient.jms.consumer import MessageConsumer
from jmsclient.jms.producer import MessageProducer
from jmsclient.jms.session import Session
from jmsclient.jms.totals import ReadAheadTotals
from jmsclient.message import Message, MessageKind
from jmsclient.options import AcknowledgeMode, ConnectionOptions, ConsumerOptions, DefaultReadAhead, TriggerOptions, WorkerOptions
from jmsclient.transport.administration import (
    Administration,
    DestinationStatistics,
    ManagementResult,
    MessageInfo,
    PendingByKind,
)
from jmsclient.transport.capabilities import Capabilities
from jmsclient.trigger.decision import AskResolver, Decision, Duplicate, InDoubt, InProgress, New, Status, classify
from jmsclient.trigger.delivery import Delivery, ResolverRequest
from jmsclient.worker import StopReport, Worker

__all__ = [
    "AcknowledgeMode",
    "Administration",
    "AskResolver",
    "BufferCounters",
    "Byte",
    "Capabilities",
    "CloseReport",
    "CloseTimeout",
    "ConfigurationError",
    "Connection",
    "ConnectionLostError",
    "ConnectionOptions",
    "ConsumerOptions",
    "Decision",
    "DefaultReadAhead",
    "Delivery",
    "DestinationPausedError",
    "DestinationStatistics",
    "Duplicate",
    "Float",
    "HistoryUnavailableError",
    "IllegalStateError",
    "InDoubt",
    "InProgress",
    "Int",
    "InvalidDestinationError",
    "InvalidSelectorError",
    "JmsClientError",
    "LeaseLostError",
    "ManagementResult",
    "Message",
    "MessageConsumer",
    "MessageFormatError",
    "MessageInfo",
    "MessageKind",
    "MessageNotWriteableError",
    "MessageProducer",
    "New",
    "PendingByKind",
    "Queue",
    "QueueBrowser",
    "ReadAheadAllowed",
    "ReadAheadClosePolicy",
    "ReadAheadTotals",
    "RequestTimeoutError",
    "ResolverRequest",
    "ResourceAllocationError",
    "SendError",
    "Session",
    "Short",
    "Status",
    "StopReport",
    "TemporaryQueue",
    "TemporaryTopic",
    "Topic",
    "TransactionInDoubtError",
    "TransactionRolledBackError",
    "TransientError",
    "TriggerOptions",
    "UnsupportedFeatureError",
    "Worker",
    "WorkerOptions",
    "classify",
    "connect",
]
