"""Fitting a workload to a trace, so that what may not be shared can still be compared against."""

from kvsim.fit.arrivals import ArrivalFit, fit_arrivals
from kvsim.fit.marginals import MarginalFit, fit_marginal
from kvsim.fit.workload import Fit, fit_summary, fit_workload

__all__ = ["ArrivalFit", "Fit", "MarginalFit", "fit_arrivals", "fit_marginal", "fit_summary", "fit_workload"]
