#!/usr/bin/python3
"""Counts the frames that pass an interface, both ways, until standard input ends.

usage: count_frames.py INTERFACE BYTES

Prints "ready", and at the end how many frames were longer than BYTES (without the checksum), and how many there were.
The kernel counts, so that none is missed."""
import ctypes
import socket
import struct
import sys

SO_ATTACH_FILTER, SOL_PACKET, PACKET_STATISTICS, ETH_P_ALL = 26, 263, 6, 3
LOAD_LENGTH, JUMP_GREATER, RETURN = 0x80, 0x25, 0x06


def open_counter(interface, longer_than):
    """A socket that gets the frames that are longer than so many bytes."""
    steps = [(LOAD_LENGTH, 0, 0, 0), (JUMP_GREATER, 0, 1, longer_than), (RETURN, 0, 0, 1), (RETURN, 0, 0, 0)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    counter = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    counter.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", len(steps), ctypes.addressof(code)))
    counter.bind((interface, ETH_P_ALL))
    return counter


def count(counter):
    """How many it got; those for which it had no room are among them."""
    return struct.unpack("II", counter.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[0]


counters = [open_counter(sys.argv[1], int(sys.argv[2])), open_counter(sys.argv[1], 0)]
print("ready", flush=True)
sys.stdin.read()
print(*map(count, counters))
