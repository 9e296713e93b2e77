"""Profile of a topic from a sample: format, tables, keys, positions and unreadable records.

It includes the call that reads the topic.

`profile_records` is pure; `cdc_formats.topics.kafka.profile_topic` reads the sample from Kafka.
"""

from .profile import profile_records
from .topic_profile import (
    BeforeImages,
    Candidate,
    CorruptRecord,
    Keys,
    Partition,
    Positions,
    Sizes,
    TableProfile,
    TopicProfile,
)

__all__ = [
    "BeforeImages",
    "Candidate",
    "CorruptRecord",
    "Keys",
    "Partition",
    "Positions",
    "Sizes",
    "TableProfile",
    "TopicProfile",
    "profile_records",
]
