"""Request traces: reading what people have, describing it, and writing it for other tools."""

from kvsim.traces.describing import describe
from kvsim.traces.formats import FORMATS
from kvsim.traces.mapping import Mapping, parse_mapping
from kvsim.traces.reading import read
from kvsim.traces.writing import write

__all__ = ["FORMATS", "Mapping", "describe", "parse_mapping", "read", "write"]
