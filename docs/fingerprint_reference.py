#!/usr/bin/env python3
"""Canonical poke contexts and their fingerprints, as docs/fingerprint.md describes them.

    python3 docs/fingerprint_reference.py tests/data/fingerprint_vectors.jsonl

checks every vector of the file. Written from the description, not from the Rust code.
"""

import json
import re
import struct
import sys
from decimal import Decimal
from fractions import Fraction

VERSION = 1
KEY = b"stationmaster/fp"
MAX_DEPTH = 64
MAX_BYTES = 64 * 1024


class Refused(Exception):
    pass


def siphash24(key, data):
    mask = (1 << 64) - 1
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rotate(x, by):
        return ((x << by) | (x >> (64 - by))) & mask

    def rounds(count):
        for _ in range(count):
            v[0] = (v[0] + v[1]) & mask
            v[1] = rotate(v[1], 13) ^ v[0]
            v[0] = rotate(v[0], 32)
            v[2] = (v[2] + v[3]) & mask
            v[3] = rotate(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & mask
            v[3] = rotate(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & mask
            v[1] = rotate(v[1], 17) ^ v[2]
            v[2] = rotate(v[2], 32)

    whole = len(data) // 8 * 8
    last = int.from_bytes(data[whole:], "little") | (len(data) & 0xFF) << 56
    for word in [*struct.unpack(f"<{whole // 8}Q", data[:whole]), last]:
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def fingerprint(kind, canonical):
    kind, canonical = kind.encode(), canonical.encode()
    framed = bytes([VERSION]) + struct.pack("<Q", len(kind)) + kind + struct.pack("<Q", len(canonical)) + canonical
    return siphash24(KEY, framed)


class Literal(str):
    """A number as it is written."""


def ecmascript(double):
    sign, digits, exponent = Decimal(repr(abs(double))).normalize().as_tuple()
    digits = "".join(map(str, digits))
    point = len(digits) + exponent
    if len(digits) <= point <= 21:
        text = digits + "0" * (point - len(digits))
    elif 0 < point <= 21:
        text = digits[:point] + "." + digits[point:]
    elif -6 < point <= 0:
        text = "0." + "0" * -point + digits
    else:
        text = digits[0] + ("." + digits[1:] if len(digits) > 1 else "") + "e%+d" % (point - 1)
    return "-" + text if double < 0 else text


def number(literal):
    integer = not set(literal) & set(".eE")
    if integer and -(2**63) <= int(literal) < 2**64:
        return str(int(literal))
    double = float(literal)
    if double in (float("inf"), float("-inf")):
        raise Refused("number")
    if Decimal(literal) != Decimal(repr(double)):
        mantissa, _, exponent = re.sub("e", "E", literal).partition("E")
        whole, _, fraction = mantissa.partition(".")
        digits = (whole + fraction).rstrip("0")
        unit = Fraction(10) ** (int(exponent or 0) + len(whole) - len(digits))
        if integer or abs(Fraction(literal) - Fraction(double)) * 2 > unit:
            raise Refused("number")
    return "0" if double == 0 else ecmascript(double)


ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def string(text):
    if any(0xD800 <= ord(c) < 0xE000 for c in text):
        raise Refused("syntax")
    return '"' + "".join(ESCAPES.get(c) or ("\\u%04x" % ord(c) if c < " " else c) for c in text) + '"'


def write(value, depth):
    if isinstance(value, Literal):
        return number(value)
    if isinstance(value, str):
        return string(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if depth > MAX_DEPTH:
        raise Refused("too_deep")
    if isinstance(value, tuple):
        written = [(key, string(key) + ":" + write(member, depth + 1)) for key, member in value]
        if len({key for key, _ in written}) < len(written):
            raise Refused("duplicate_key")
        written.sort(key=lambda pair: pair[0].encode("utf-16-be"))
        return "{" + ",".join(text for _, text in written) + "}"
    return "[" + ",".join(write(element, depth + 1) for element in value) + "]"


def canonical(text):
    def not_finite(_):
        raise Refused("not_finite")

    try:
        value = json.loads(
            text, object_pairs_hook=tuple, parse_int=Literal, parse_float=Literal, parse_constant=not_finite
        )
    except (ValueError, RecursionError) as error:
        raise Refused("syntax") from error
    if not isinstance(value, tuple):
        raise Refused("not_an_object")
    written = write(value, 1)
    if len(written.encode()) > MAX_BYTES:
        raise Refused("too_large")
    return written


def main(path):
    # The vectors of the authors of SipHash: key 00..0f, messages of 0 and of 15 bytes.
    key = bytes(range(16))
    assert siphash24(key, b"") == 0x726FDB47DD0E0E31
    assert siphash24(key, bytes(range(15))) == 0xA129CA6149BE45E5
    rows = [json.loads(line) for line in open(path, encoding="utf-8")]
    for row in rows:
        try:
            text = canonical(row["json"])
        except Refused as refused:
            assert str(refused) == row.get("error"), (row, refused)
        else:
            assert text == row["canonical"], (row, text)
            assert canonical(text) == text, row
            assert "%016x" % fingerprint(row["kind"], text) == row["fingerprint"], row
    print(f"{len(rows)} vectors agree")


if __name__ == "__main__":
    main(sys.argv[1])
