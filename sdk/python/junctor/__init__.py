"""The Python SDK of junctor.

:class:`Client` and :class:`AsyncClient` call the capabilities of a server.
"""

from ._version import __version__
from .client import Approval, AsyncClient, CallOptions, Capability, Client, Event, Invoked, NodeInfo, Reply, Run, Task
from .errors import Error

__all__ = [
    "Approval", "AsyncClient", "CallOptions", "Capability", "Client", "Error", "Event", "Invoked", "NodeInfo", "Reply", "Run", "Task",
    "__version__",
]
