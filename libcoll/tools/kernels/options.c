/* options.c: coll_kernels' command line, and the names in it. */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "libcoll/base/names.h"

#define USAGE_STATUS 2
#define UNIT         4096       /* sizes are multiples of it */
#define MOST_BYTES   (1u << 30) /* of a buffer */

static const char help[] =
    "Usage: coll_kernels [options]\n"
    "\n"
    "Measures the reduction kernels of each instruction set that this processor has, as a\n"
    "percentage of a limit: hand-written loops of float32 additions that move as many bytes with\n"
    "the same instruction set. They use ordinary stores, as the kernels do; for the form "
    "\"stream\"\n"
    "the limit is the faster of ordinary and nontemporal stores.\n"
    "\n"
    "      --isa NAME       portable, avx2, avx512, neon (default: all)\n"
    "      --type NAME      int8 .. uint64, float16, bfloat16, float32, ... (default: all)\n"
    "      --op NAME        sum, prod, min, max, band, ... (default: all)\n"
    "      --form NAME      one: one output; two: two outputs; in: in place; stream: nontemporal\n"
    "                       stores; average: divide by the number of ranks; scale: multiply by a\n"
    "                       factor (default: one with every operation, the others with sum)\n"
    "      --sizes S,S,...  bytes of the result; suffixes K, M (default 8K,256K,4M,64M)\n"
    "      --ms MS          time for each measurement (default 3)\n"
    "      --csv FILE       also write the results there, in GB/s of result\n"
    "  -h, --help           this text\n";

/* The name of a type; NULL past the last one. */
const char *kernels_type_name(int type) {
  return type >= 0 && type < COLL_TYPE_COUNT ? colli_type_name(type) : NULL;
}

/* The name of an operation; NULL past the last one. */
const char *kernels_op_name(int op) {
  return op >= 0 && op < COLL_OP_COUNT ? colli_op_name(op) : NULL;
}

/* The name of a form of kernel; NULL past the last one. */
const char *kernels_form_name(int form) {
  static const char *const names[FORM_COUNT] = {"one", "two", "in", "stream", "average", "scale"};
  return form >= 0 && form < FORM_COUNT ? names[form] : NULL;
}

/* The name of an instruction set that this build knows. */
static const char *isa_name(int isa) {
  return isa < COLLI_ISA_COUNT ? colli_isa_name((colli_isa)isa) : NULL;
}

/* Ends the program because of bad usage. */
static void refuse_value(const char *option, const char *value) {
  fprintf(stderr, "coll_kernels: --%s does not take '%s' (see coll_kernels --help)\n", option,
          value);
  exit(USAGE_STATUS);
}

/* The number of a name. */
static int find_name(const char *option, const char *value, const char *(*name_of)(int)) {
  for (int i = 0; name_of(i); i++)
    if (strcmp(name_of(i), value) == 0)
      return i;
  refuse_value(option, value);
  return KERNELS_ALL;
}

/* Reads "8K,256K,4M". */
static void read_sizes(kernels_options *o, const char *text) {
  const char *at = text;
  char *end;
  for (o->nsizes = 0;; at = end + 1) {
    double size = strtod(at, &end);
    bool number = end != at;
    if (*end == 'K' || *end == 'M')
      size *= *end++ == 'K' ? 1 << 10 : 1 << 20;
    if (!number || (*end && *end != ',') || !(size >= UNIT) || size > MOST_BYTES ||
        o->nsizes == KERNELS_SIZES)
      refuse_value("sizes", text);
    o->sizes[o->nsizes++] = (size_t)size / UNIT * UNIT;
    if (!*end)
      return;
  }
}

kernels_options kernels_read_options(int argc, char **argv) {
  static const struct option longs[] = {{"isa", required_argument, NULL, 'i'},
                                        {"type", required_argument, NULL, 't'},
                                        {"op", required_argument, NULL, 'o'},
                                        {"form", required_argument, NULL, 'f'},
                                        {"sizes", required_argument, NULL, 's'},
                                        {"ms", required_argument, NULL, 'm'},
                                        {"csv", required_argument, NULL, 'c'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
  kernels_options o = {
      .isa = KERNELS_ALL, .type = KERNELS_ALL, .op = KERNELS_ALL, .form = KERNELS_ALL, .ms = 3};
  read_sizes(&o, "8K,256K,4M,64M");
  int option;
  char *end;
  while ((option = getopt_long(argc, argv, "h", longs, NULL)) != -1)
    switch (option) {
    case 'i':
      o.isa = find_name("isa", optarg, isa_name);
      break;
    case 't':
      o.type = find_name("type", optarg, kernels_type_name);
      break;
    case 'o':
      o.op = find_name("op", optarg, kernels_op_name);
      break;
    case 'f':
      o.form = find_name("form", optarg, kernels_form_name);
      break;
    case 's':
      read_sizes(&o, optarg);
      break;
    case 'm':
      o.ms = strtod(optarg, &end);
      if (end == optarg || *end || !(o.ms > 0) || o.ms > 10000)
        refuse_value("ms", optarg);
      break;
    case 'c':
      o.csv = optarg;
      break;
    case 'h':
      fputs(help, stdout);
      exit(0);
    default:
      exit(USAGE_STATUS); /* getopt_long has printed why */
    }
  if (optind < argc) {
    fprintf(stderr, "coll_kernels: unknown argument '%s' (see --help)\n", argv[optind]);
    exit(USAGE_STATUS);
  }
  return o;
}
