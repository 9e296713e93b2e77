"""What is in a topic: the format of a sample of its records, its tables, keys, positions and faults, and the call that reads it.

`profile_records` is pure; `cdc_formats.kafka.profile_topic` samples a topic for it.
"""

from .detect import Candidate
from .facts import Keys, Partition, Positions, Sizes
from .profile import CorruptRecord, TopicProfile, profile_records
from .tables import BeforeImages, TableProfile

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
