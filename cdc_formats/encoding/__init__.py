"""What the formats' encoders share: the envelope, and pairs of update images."""
