/* error.h: filling in the public error record. */
#ifndef COLLI_BASE_ERROR_H
#define COLLI_BASE_ERROR_H

#include "coll/coll.h"

/* Resets a record to "nothing failed". */
void colli_error_clear(coll_error *error);

/*
 * Clears the record, fills in status, operation (may be NULL) and a printf-like message, and
 * returns the status, so that a failing function can `return colli_error_set(...)`. A NULL record
 * is fine.
 */
coll_status colli_error_set(coll_error *error, coll_status status, const char *operation,
                            const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The same for a failed system call: adds its name, errno and the errno's text to the message. */
coll_status colli_error_sys(coll_error *error, coll_status status, const char *operation,
                            const char *syscall, int sys_errno, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/* Terminates the strings of a record that another process sent, and sets its size. */
void colli_error_terminate(coll_error *error);

/* Copies a record to a caller that knows `to->size` bytes of it. */
void colli_error_copy(coll_error *to, const coll_error *from);

#endif
