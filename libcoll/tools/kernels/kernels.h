/* kernels.h: coll_kernels measures the reduction kernels against the memory bandwidth. */
#ifndef COLLI_TOOLS_KERNELS_KERNELS_H
#define COLLI_TOOLS_KERNELS_KERNELS_H

#include <stddef.h>

#include "libcoll/exec/reduce.h"

#define KERNELS_SIZES  8 /* at most */
#define KERNELS_LIMITS 2 /* loops to compare a form with, at most */
#define KERNELS_ALL    -1

/* How a kernel is called. */
typedef enum kernels_form {
  FORM_ONE,     /* one output */
  FORM_TWO,     /* two outputs */
  FORM_IN,      /* the output is the left input */
  FORM_STREAM,  /* one output, nontemporal stores */
  FORM_AVERAGE, /* divide in place */
  FORM_SCALE,   /* multiply by a factor */
  FORM_COUNT
} kernels_form;

/* The command line; KERNELS_ALL for options not given. */
typedef struct kernels_options {
  size_t sizes[KERNELS_SIZES]; /* bytes of the result */
  int nsizes;
  int isa, type, op, form;
  double ms;       /* how long each number is measured */
  const char *csv; /* file, or NULL */
} kernels_options;

/* Buffers of the largest size. */
typedef struct kernels_memory {
  void *a, *b, *to, *to2;
} kernels_memory;

/* A loop that moves as many bytes as a form does; bytes is a multiple of 256. */
typedef void (*kernels_limit)(void *to, void *to2, const void *a, const void *b, size_t bytes);

/* What is measured. */
typedef struct kernels_work {
  const kernels_memory *memory;
  const colli_kernels *kernels;
  kernels_form form;
  coll_type type;
  coll_op op;
  size_t bytes; /* of the result */
} kernels_work;

/* The measurement, in GB/s of result: the best of several samples. */
typedef struct kernels_rate {
  double kernel, limit;
} kernels_rate;

/* The KERNELS_LIMITS loops for a form; NULL where there are fewer. */
const kernels_limit *kernels_limits(colli_isa isa, kernels_form form);

/* Whether there is such a kernel. */
int kernels_exists(const kernels_work *work);

/* Measures a kernel and its limits, alternating, for about `ms` milliseconds each. */
kernels_rate kernels_measure(const kernels_work *work, double ms);

/* Names; NULL beyond the last. */
const char *kernels_type_name(int type);
const char *kernels_op_name(int op);
const char *kernels_form_name(int form);

/* Reads the command line, or ends the program. */
kernels_options kernels_read_options(int argc, char **argv);

#endif
