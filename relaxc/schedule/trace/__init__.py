"""When a model's gradients are there and its weights are needed: the model is run, so only this part of the schedule
knows torch."""

from relaxc.schedule.trace.profiling import trace
from relaxc.schedule.trace.sample import Sample, as_sample, parse_sample

__all__ = ["Sample", "as_sample", "parse_sample", "trace"]
