"""The version of the package. A release replaces it by the server's."""

__version__ = "0.1.0.dev0"
