/* check_crc32c.h: CRC32C (Castagnoli), with the processor's instruction where it has one. */
#ifndef COLLI_TRANSPORTS_CHECK_CRC32C_H
#define COLLI_TRANSPORTS_CHECK_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The CRC32C of bytes that follow others, whose CRC32C is `crc`; 0 for the first ones. */
typedef uint32_t (*check_crc32c_fn)(uint32_t crc, const void *data, size_t bytes);

/* The fastest implementation for this processor, or (for tests) the portable one. */
check_crc32c_fn check_crc32c(bool portable);

#endif
