/* finite.h: finds NaN and infinity in memory. */
#ifndef COLLI_EXEC_FINITE_H
#define COLLI_EXEC_FINITE_H

#include <stdbool.h>
#include <stddef.h>

/* Whether elements of this type can be NaN (or have a value that can). */
bool colli_may_be_nan(int type);

/* Looks for the first element that is NaN or infinite: true, with *index, if there is one. The type
 * may be one that cannot. */
bool colli_find_nonfinite(int type, const void *data, size_t count, size_t *index);

/* "nan", "inf" or "-inf": what such an element is. */
const char *colli_nonfinite_text(int type, const void *data, size_t index);

#endif
