"""A loop over files that goes on where it was killed: `resumable_iterate`.

python examples/plain/iterate.py        makes inbox/ with five letters, is killed in the third
python examples/plain/iterate.py        goes on with the third
python examples/plain/iterate.py        has nothing to do, until there are more files
caravanserai log letters                a waypoint for each letter

The letter in work comes once more, so what is done with one has to bear that: here it is written
to the end under another name, and then renamed.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # where trip.py is, which these examples share

from trip import die, dies_once

from caravanserai import resumable_iterate

INBOX, OUTBOX = Path("inbox"), Path("outbox")

if not INBOX.exists():
    INBOX.mkdir()
    for number in range(1, 6):
        (INBOX / f"letter-{number}.txt").write_text(f"Dear reader {number},\n")
OUTBOX.mkdir(exist_ok=True)

dies_once("letters")
for name in resumable_iterate(sorted(path.name for path in INBOX.iterdir()), run_id="letters"):
    print(name, flush=True)
    draft = OUTBOX / f"{name}.new"
    draft.write_text((INBOX / name).read_text().upper())
    if name == "letter-3.txt":
        die()
    draft.rename(OUTBOX / name)
print(f"{len(list(OUTBOX.glob('*.txt')))} letters are done.")
