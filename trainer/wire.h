/* wire.h: gradients compressed for the wire, with error feedback. */
#ifndef TRAINER_WIRE_H
#define TRAINER_WIRE_H

#include "trainer/fail.h"

#include <stddef.h>

/* The forms of --wire; float32 stands for gradients as they are. */
enum { WIRE_FLOAT32, WIRE_FLOAT16, WIRE_BFLOAT16, WIRE_INT8, WIRE_TOPK };

typedef struct wire {
  int kind;
  float fraction; /* topk: the share of the numbers that is sent; at least one is */
} wire;

/* Parses "int8" or "topk:0.05". */
bool wire_parse(wire *form, const char *text, fail *why);

/* The name of its kind, such as "topk". */
const char *wire_name(const wire *form);

/* Bytes of a packet of `count` numbers, at most 2^32; a multiple of the alignment that the next
 * packet needs. */
size_t wire_bytes(const wire *form, size_t count);

/*
 * Makes a packet of the numbers in `pending`, and leaves there what the packet lacks of them: what
 * wire_add() will add and what stays have exactly the old sum. Adding the rest to the next
 * gradients is error feedback:
 *   F. Seide et al., 1-Bit Stochastic Gradient Descent, Interspeech 2014;
 *   S. P. Karimireddy et al., Error Feedback Fixes SignSGD, ICML 2019;
 *   Y. Lin et al., Deep Gradient Compression, ICLR 2018 (the largest numbers alone).
 * float16 and bfloat16: each number rounded to the nearest, or to the largest that is finite. int8:
 * multiples, from -127 to 127, of a 127th of the largest number of each 256. topk: the numbers of
 * the largest magnitude with their places, the first ones where they are equal.
 * Infinities and NaN are sent, so that all ranks see them, and leave 0; with int8 all 256 numbers
 * become NaN.
 */
void wire_pack(const wire *form, size_t count, float *pending, void *packet);

/* Adds the numbers of a packet to sums; a packet of float32 is the numbers themselves. */
void wire_add(const wire *form, size_t count, const void *packet, float *sum);

#endif
