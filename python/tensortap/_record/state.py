"""What graphs are compiled against: Dynamo guards on these, so that turning recording on compiles the taps in."""

from __future__ import annotations

recording = False
source = True  # taps inside graphs say their file and line
sharded: type | None = None  # DTensor, once it is there
