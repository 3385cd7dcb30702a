"""Random edits of a good file, for hypothesis; and the words that a fuzzer may put in."""

from __future__ import annotations

from hypothesis import strategies as st

Edit = tuple[str, float, bytes]

TOKENS = [
    b"\0", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b'"', b"'", b"\\", b"[", b"]" * 9, b"{", b"}", b",",
    b"\n", b"\r", b"?", b"-1", b"1e999", b"nan", b"\\ud800", b"9" * 30, b"[" * 3000, b"@data\n", b":",
    b"null", "\u202e".encode(), b"\x1b[31m", b"@attribute x {\n", b"-C -9", b"\t", b" ", b"_", b"%",
    b"9" * 5000, b"999999999:1 ", b"[[", b"=[" * 600, b'{"a":' * 1500, b"true", b"../", b"<!ENTITY a 'b'>",
    b"&a;", b"1979-05-27T07:32:00Z", b'"\\u0000"', b"'''", b"{}", b"[]", b'"checksum":"0",',
]  # fmt: skip
KINDS = ["insert", "delete", "replace", "cut", "double"]

edits: st.SearchStrategy[list[Edit]] = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.floats(0, 1),
        st.sampled_from(TOKENS) | st.binary(min_size=1, max_size=6),
    ),
    min_size=1,
    max_size=6,
)


def edited(content: bytes, changes: list[Edit]) -> bytes:
    """The content after the edits, one by one."""
    for kind, place, token in changes:
        at = int(place * len(content))
        if kind == "insert":
            content = content[:at] + token + content[at:]
        elif kind == "delete":
            content = content[:at] + content[at + len(token) :]
        elif kind == "replace":
            content = content[:at] + token + content[at + len(token) :]
        elif kind == "cut":
            content = content[:at]
        else:
            content = content[:at] + content[max(0, at - 20) : at] + content[at:]
    return content
