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


def notes(event):
    """The annotations of an event as text."""
    texts = []
    for annotation in map(fields, event.get(4, [])):
        value = annotation[6][0].decode() if 6 in annotation else annotation[3][0]
        texts.append(f" {annotation[10][0].decode()}={value}")
    return "".join(texts)


def main():
    with open(sys.argv[1], "rb") as file:
        trace = fields(file.read())
    assert set(trace) == {1}, "something other than packets"
    parents, open_spans = {}, {}
    for packet in map(fields, trace[1]):
        if 60 in packet:
            track = fields(packet[60][0])
            parents[track[1][0]] = track.get(5, [0])[0]
            print("track", track[1][0], parents[track[1][0]], track[2][0].decode())
        elif 11 in packet:
            event, time = fields(packet[11][0]), packet[8][0]
            lane = event[11][0]
            rank = parents[lane] or lane
            name = event[23][0].decode() if 23 in event else ""
            if event[9][0] == 1:
                assert lane not in open_spans, "two spans overlap on one track"
                open_spans[lane] = (name, time)
                print("begin", time, rank, name + notes(event))
            elif event[9][0] == 2:
                name, begun = open_spans.pop(lane)
                assert time >= begun, "time runs backwards"
                print("end", time, rank, name, time - begun, notes(event))
            else:
                print("instant", time, rank, name + notes(event))
        else:
            assert 16383 in packet, "a packet of no known kind"
    for name, time in open_spans.values():
        print("unfinished", time, name)


main()
