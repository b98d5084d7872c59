"""Consumer groups of both protocols, and the offsets they commit."""
