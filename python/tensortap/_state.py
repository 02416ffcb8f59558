"""What graphs are compiled against: Dynamo guards on these, so that turning recording on compiles the taps in."""

from __future__ import annotations

recording = False
