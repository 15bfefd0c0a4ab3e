"""Score policies over all boards; fail if two differ by more than 0.02: `uv run tests/compare_policies.py A B`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # microgrpo.py, when run as a script

import numpy as np
from support import score_on_all_boards

scores = [score_on_all_boards(dict(np.load(name)), repeats=4) for name in sys.argv[1:]]
for name, score in zip(sys.argv[1:], scores, strict=True):
    print(f"{score:.4f}  {Path(name).name}")
sys.exit(int(max(scores) - min(scores) > 0.02))
