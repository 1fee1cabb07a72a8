/* units.h: reads speeds and times, as "2.5gbit" and "20ms". */
#ifndef COLLI_TUNING_UNITS_H
#define COLLI_TUNING_UNITS_H

#include <stdbool.h>

/* What a byte takes at 1 Mbit/s; ns a byte times Mbit/s is always this. */
#define COLLI_NS_PER_BYTE_AT_1_MBIT 8e3

/* Reads a speed at *text, in Mbit/s, and moves *text behind it; false if there is none, or one
 * that no link has. Units: kbit, mbit, gbit, tbit. */
bool colli_read_speed(const char **text, double *mbit);

/* The same for a time above 0 of up to two seconds, in ns. Units: us, ms, s. */
bool colli_read_time(const char **text, double *ns);

#endif
