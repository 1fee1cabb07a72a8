#!/usr/bin/python3
"""Prints a Perfetto trace that libcoll wrote, a line for each packet, and fails if a packet is malformed, spans of
a track overlap, or a span ends that has not begun:

  track UUID PARENT NAME
  begin TIME RANK_TRACK NAME key=value ...
  end TIME RANK_TRACK NAME DURATION key=value ...
  instant TIME RANK_TRACK NAME key=value ...

usage: read_trace.py FILE"""
import sys


def number(data, at):
    """A number of 7 bits a byte at `at`, and where it ends."""
    value, shift = 0, 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """The fields of a message: lists of values by field number."""
    found, at = {}, 0
    while at < len(data):
        key, at = number(data, at)
        if key & 7 == 0:
            value, at = number(data, at)
        elif key & 7 == 2:
            length, at = number(data, at)
            value = data[at:at + length]
            assert len(value) == length, "a field ends behind its message"
            at += length
        else:
            raise AssertionError(f"field {key >> 3} has type {key & 7}")
        found.setdefault(key >> 3, []).append(value)
    return found


def number_texts(known, interned):
    """Learns the texts of a packet that later packets name by number."""
    for kind, entries in interned.items():
        for entry in map(fields, entries):
            known[kind, entry[1][0]] = entry[2][0].decode()


def text(known, kind, message, by_number, itself):
    """A text, which a message has itself or by its number; "" if it has none."""
    if by_number in message:
        return known[kind, message[by_number][0]]
    return message[itself][0].decode() if itself in message else ""


def notes(event, known):
    """The annotations of an event as text."""
    texts = []
    for annotation in map(fields, event.get(4, [])):
        if 3 in annotation:
            value = annotation[3][0]
        elif 4 in annotation:
            value = (annotation[4][0] ^ 1 << 63) - (1 << 63)  # may be negative
        else:
            value = text(known, 29, annotation, 17, 6)
        texts.append(f" {text(known, 3, annotation, 1, 10)}={value}")
    return "".join(texts)


def main():
    with open(sys.argv[1], "rb") as file:
        trace = fields(file.read())
    assert set(trace) == {1}, "something other than packets"
    parents, open_spans, texts = {}, {}, {}
    for packet in map(fields, trace[1]):
        flags = packet.get(13, [0])[0]
        if flags & 1:
            texts[packet[10][0]] = {}
        known = texts[packet[10][0]] if flags else None
        if 12 in packet:
            number_texts(known, fields(packet[12][0]))
        elif 60 in packet:
            track = fields(packet[60][0])
            parents[track[1][0]] = track.get(5, [0])[0]
            print("track", track[1][0], parents[track[1][0]], track[2][0].decode())
        elif 11 in packet:
            event, time = fields(packet[11][0]), packet[8][0]
            lane = event[11][0]
            rank = parents[lane] or lane
            name = text(known, 2, event, 10, 23)
            assert name == "" or text(known, 1, event, 3, 22) == "coll", "not of the category"
            if event[9][0] == 1:
                assert lane not in open_spans, "two spans overlap on one track"
                open_spans[lane] = (name, time)
                print("begin", time, rank, name + notes(event, known))
            elif event[9][0] == 2:
                name, begun = open_spans.pop(lane)
                assert time >= begun, "time runs backwards"
                print("end", time, rank, name, time - begun, notes(event, known))
            else:
                print("instant", time, rank, name + notes(event, known))
        else:
            assert 16383 in packet, "a packet of no known kind"
    for name, time in open_spans.values():
        print("unfinished", time, name)


main()
