"""Samples of AWS DMS's messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdc_formats.formats.dms import USUAL_PREFIX, DmsJson, before_image_names
from cdc_formats.topics.sampler import InspectedRecord, SampleCounts, Sampler


class DmsSampler(Sampler):
    """The hooks of ``dms-json``."""

    format: DmsJson
    marks = ("data", "metadata", "control")
    operation_path = ("metadata", "operation")

    @classmethod
    def detected_options(
        cls, records: Sequence[InspectedRecord], options: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the documentation's prefix of before-images if a row has columns with it."""
        rows = [each.value.fields.get("data") for each in records]
        prefixed = any(before_image_names(row) for row in rows if isinstance(row, dict))
        return (
            {"before_image_prefix": USUAL_PREFIX}
            if prefixed and "before_image_field" not in options
            else {}
        )

    def inferred_options(self, sample: SampleCounts) -> Mapping[str, tuple[Any, str]]:
        """Return the documentation's prefix of before-images if rows have columns with it."""
        if self.format.before_image_prefix is not None or not sample.with_added:
            return {}
        reason = (
            f"{sample.with_added} of {sample.rows} rows have columns with this prefix, the "
            "before-image, next to those without it"
        )
        return {"before_image_prefix": (USUAL_PREFIX, reason)}
