/* calibration.h: the file in which coll_calibrate keeps the measured costs of a machine. */
#ifndef COLLI_TUNING_CALIBRATION_H
#define COLLI_TUNING_CALIBRATION_H

#include <stdbool.h>

#include "libcoll/base/calibration.h"
#include "libcoll/base/log.h"
#include "libcoll/cost/corrections.h"

#define COLLI_CALIBRATION_VERSION 4

/* Says where a calibration's numbers come from; "" for typical costs. */
typedef struct colli_calibration_origin {
  char path[512];
  char host[64];
  char date[32];
  int cores;
} colli_calibration_origin;

/*
 * Loads the file that COLL_CALIBRATION names. "none": typical costs; "": the file at the default
 * path, if it exists. If the file cannot be read or is malformed, it logs a warning and uses
 * typical costs. *corrections: malloc'ed, or NULL if the file has none. corrections and origin may
 * be NULL.
 */
void colli_calibration_load(const char *setting, const colli_log *log, colli_calibration *out,
                            colli_corrections **corrections, colli_calibration_origin *origin);

/*
 * Reads a file; false, with a reason, if it cannot be used. *corrections: as above. `corrections`
 * and `origin` may be NULL.
 */
bool colli_calibration_read(const char *path, colli_calibration *out,
                            colli_corrections **corrections, colli_calibration_origin *origin,
                            char *why, size_t why_bytes);

/*
 * Writes a file atomically, so that readers see the old or the new one; creates its folder if
 * necessary. `corrections` may be NULL. Returns 0 or an errno.
 */
int colli_calibration_write(const char *path, const colli_calibration *calibration,
                            const colli_corrections *corrections,
                            const colli_calibration_origin *origin);

/* The default path: $XDG_CACHE_HOME/libcoll/calibration or ~/.cache/libcoll/calibration; false if
 * neither variable is set, or the path is too long. */
bool colli_calibration_path(char *path, size_t bytes);

#endif
