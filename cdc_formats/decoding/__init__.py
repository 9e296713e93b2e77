"""What the formats' decoders share: JSON, rows, before-images, metadata, control events."""
