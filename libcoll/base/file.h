/* file.h: files that settings name. */
#ifndef COLLI_BASE_FILE_H
#define COLLI_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/*
 * Opens a file for reading, if it is a regular one of at most `most` bytes: a FIFO would block the
 * caller, and a device may never end. Returns its descriptor; or -1, with the reason in `why`, for
 * "FILE cannot be used: ...".
 */
int colli_file_open(const char *path, size_t most, char *why, size_t why_bytes);

/* The same as a stream, or NULL. */
FILE *colli_file_stream(const char *path, size_t most, char *why, size_t why_bytes);

/*
 * Begins to write a file that replaces `path` at once when it is complete: a stream to a new file
 * in the same folder, whose name nobody can foresee. draft: at least strlen(path) + 18 bytes, for
 * its name. NULL with errno.
 */
FILE *colli_file_draft(const char *path, char *draft, size_t bytes);

/* Ends it. Returns 0, or the errno of the first failure; then nothing has changed. */
int colli_file_publish(FILE *file, const char *draft, const char *path);

#endif
