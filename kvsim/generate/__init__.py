"""Synthetic requests: named workloads, and the distributions, arrival processes and sessions that they are made of."""

from kvsim.generate.sessions import Sessions, Turn
from kvsim.generate.workload import Workload, generator, load_workload, parse_workload, workload_names

__all__ = ["Sessions", "Turn", "Workload", "generator", "load_workload", "parse_workload", "workload_names"]
