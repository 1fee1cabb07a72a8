/* units.h: reads and prints speeds and times, as "2.5gbit" and "20ms". */
#ifndef COLLI_TUNING_UNITS_H
#define COLLI_TUNING_UNITS_H

#include <stdbool.h>
#include <stddef.h>

/* What a byte takes at 1 Mbit/s; ns a byte times Mbit/s is always this. */
#define COLLI_NS_PER_BYTE_AT_1_MBIT 8e3

/* Reads a speed at *text, in Mbit/s, and moves *text behind it; false if there is none, or one
 * that no link has. Units: kbit, mbit, gbit, tbit. */
bool colli_read_speed(const char **text, double *mbit);

/* The same for a time of 1 ns to two seconds, in ns. Units: us, ms, s. */
bool colli_read_time(const char **text, double *ns);

/* Prints what these read, within their limits, to a thousandth of a unit. */
void colli_print_speed(double mbit, char *text, size_t bytes);
void colli_print_time(double ns, char *text, size_t bytes);

#endif
