"""Samples of changelog-json."""

from __future__ import annotations

from cdc_formats.topics.sampler import Sampler


class ChangelogSampler(Sampler):
    """The hooks of ``changelog-json``."""

    marks = ("data", "op")
    operation_path = ("op",)
