/* calibration.h: the file in which coll_calibrate keeps what it has measured of a machine. */
#ifndef COLLI_TUNING_CALIBRATION_H
#define COLLI_TUNING_CALIBRATION_H

#include <stdbool.h>

#include "libcoll/base/calibration.h"
#include "libcoll/base/log.h"
#include "libcoll/cost/corrections.h"

#define COLLI_CALIBRATION_VERSION 3

/* Where the numbers of a calibration come from, in words; "" for typical costs. */
typedef struct colli_calibration_origin {
  char path[512];
  char host[64];
  char date[32];
  int cores;
} colli_calibration_origin;

/*
 * Loads what COLL_CALIBRATION says: the file of that name; "none": typical costs; "": the file at
 * the usual place if it is there. A file that cannot be read or is malformed gives a warning and
 * typical costs. *corrections: malloc'ed, or NULL if the file has none. corrections and origin may
 * be NULL.
 */
void colli_calibration_load(const char *setting, const colli_log *log, colli_calibration *out,
                            colli_corrections **corrections, colli_calibration_origin *origin);

/*
 * Reads a file; false with a reason if it cannot be used. *corrections: as above. `corrections` and
 * `origin` may be NULL.
 */
bool colli_calibration_read(const char *path, colli_calibration *out,
                            colli_corrections **corrections, colli_calibration_origin *origin,
                            char *why, size_t why_bytes);

/*
 * Writes a file, whose folder is made if need be, in one piece: readers see the old one or the new
 * one. `corrections` may be NULL. 0, or an errno.
 */
int colli_calibration_write(const char *path, const colli_calibration *calibration,
                            const colli_corrections *corrections,
                            const colli_calibration_origin *origin);

/* The usual place: $XDG_CACHE_HOME/libcoll/calibration or ~/.cache/libcoll/calibration; false if
 * neither variable is set, or the path is too long. */
bool colli_calibration_path(char *path, size_t bytes);

#endif
