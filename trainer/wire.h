/* wire.h: gradients compressed for the wire, with error feedback. */
#ifndef TRAINER_WIRE_H
#define TRAINER_WIRE_H

#include "trainer/base.h"

#include <stddef.h>

/* The forms of --wire; float32 stands for gradients as they are. */
enum { WIRE_FLOAT32, WIRE_FLOAT16, WIRE_BFLOAT16, WIRE_INT8, WIRE_TOPK };

typedef struct wire {
  int kind;
  float fraction; /* topk: the share of the numbers that is sent; at least one number is */
} wire;

/* Parses "int8" or "topk:0.05". */
bool wire_parse(wire *form, const char *text, fail *why);

/* The name of its kind, such as "topk". */
const char *wire_name(const wire *form);

/* Bytes of a packet of `count` numbers, at most 2^32; a multiple of the alignment that the next
 * packet needs. */
size_t wire_bytes(const wire *form, size_t count);

/*
 * Packs the numbers in `pending`, and leaves the rounding error there: what wire_add() will add
 * plus what stays is exactly the old value. Adding the error to the next gradients is error
 * feedback: F. Seide et al., 1-Bit Stochastic Gradient Descent, Interspeech 2014; S. P. Karimireddy
 * et al., Error Feedback Fixes SignSGD, ICML 2019; Y. Lin et al., Deep Gradient Compression, ICLR
 * 2018 (the largest numbers alone). float16 and bfloat16: each number is rounded to nearest; a
 * finite number stays finite. int8: each block of 256 numbers has a scale, 1/127 of the largest
 * magnitude, and codes from -127 to 127. topk: the numbers of the largest magnitudes with their
 * indices; of equal ones the first. Infinities and NaN are sent, so that all ranks see them, and
 * leave 0; with int8 all 256 numbers of the block become NaN.
 */
void wire_pack(const wire *form, size_t count, float *pending, void *packet);

/* sum[i] += the i-th number of a packet. A packet of float32 is the numbers themselves. False: the
 * packet is none, as an index in it is too high; the sum is then of no use. */
bool wire_add(const wire *form, size_t count, const void *packet, float *sum, fail *why);

#endif
