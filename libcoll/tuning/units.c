/* units.c: reads and prints speeds and times. */
#include "libcoll/tuning/units.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* What records of ranks may have (libcoll/wireup/bootstrap/record.c). */
#define LEAST_MBIT 1e-3
#define MOST_MBIT  1e9
#define LEAST_NS   1
#define MOST_NS    2e9 /* a round trip, of which a half is a cost */

/* A unit, in that of the result. */
typedef struct unit {
  const char *name;
  double size;
} unit;

static const unit speeds[] = {{"kbit", 1e-3}, {"mbit", 1}, {"gbit", 1e3}, {"tbit", 1e6}};
static const unit times[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};

#define COUNT(units) (sizeof(units) / sizeof((units)[0]))

/* Reads a decimal number at *text and moves *text behind it, or not if there is none. Not strtod(),
 * because that depends on the locale. */
static double read_number(const char **text) {
  double value = 0, size = 0; /* of the next digit behind the point; 0: before it */
  const char *at = *text;
  for (; (*at >= '0' && *at <= '9') || (*at == '.' && size == 0 && at > *text); at++) {
    if (*at == '.') {
      size = 0.1;
      continue;
    }
    value = size > 0 ? value + size * (*at - '0') : 10 * value + (*at - '0');
    size /= 10;
  }
  *text = at;
  return value;
}

/* Reads a number with one of `count` units, between two limits. */
static bool read_quantity(const char **text, const unit *units, size_t count, double least,
                          double most, double *out) {
  const char *at = *text;
  const double value = read_number(&at);
  for (size_t i = 0; at > *text && i < count; i++) {
    const size_t length = strlen(units[i].name);
    const double found = value * units[i].size;
    if (strncmp(at, units[i].name, length) != 0)
      continue;
    if (!(found >= least && found <= most))
      return false;
    *out = found;
    *text = at + length;
    return true;
  }
  return false;
}

bool colli_read_speed(const char **text, double *mbit) {
  return read_quantity(text, speeds, COUNT(speeds), LEAST_MBIT, MOST_MBIT, mbit);
}

bool colli_read_time(const char **text, double *ns) {
  return read_quantity(text, times, COUNT(times), LEAST_NS, MOST_NS, ns);
}

/* Prints a quantity in the largest of `count` units of which it has one; not with "%g", because
 * that depends on the locale. */
static void print_quantity(double value, const unit *units, size_t count, char *text,
                           size_t bytes) {
  size_t i = 0;
  while (i + 1 < count && value >= units[i + 1].size)
    i++;
  const double exact = value / units[i].size * 1000 + 0.5;
  const unsigned long long thousandths = exact < 1 ? 1 : (unsigned long long)exact;
  char digits[32];
  int length =
      snprintf(digits, sizeof(digits), "%llu.%03llu", thousandths / 1000, thousandths % 1000);
  while (digits[length - 1] == '0')
    length--;
  length -= digits[length - 1] == '.';
  snprintf(text, bytes, "%.*s%s", length, digits, units[i].name);
}

/* A value, or the limit that it exceeds. */
static double limit(double value, double least, double most) {
  return value < least ? least : value > most ? most : value;
}

void colli_print_speed(double mbit, char *text, size_t bytes) {
  print_quantity(limit(mbit, LEAST_MBIT, MOST_MBIT), speeds, COUNT(speeds), text, bytes);
}

void colli_print_time(double ns, char *text, size_t bytes) {
  print_quantity(limit(ns, LEAST_NS, MOST_NS), times, COUNT(times), text, bytes);
}
