"""Everything that is fuzzed, by a name.

tests/fuzz/corpus has a folder of this name for contents that are tried each time.
"""

from __future__ import annotations

from tests.fuzz.attack import Target
from tests.fuzz.file_parts import FILE_PARTS
from tests.fuzz.own_files import OWN_FILES
from tests.fuzz.raw_files import RAW_FILES
from tests.fuzz.user_files import USER_FILES

TARGETS: dict[str, Target] = {**USER_FILES, **RAW_FILES, **FILE_PARTS, **OWN_FILES}
