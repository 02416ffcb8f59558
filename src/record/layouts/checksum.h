/* checksum.h - the sums that msprobe's files carry under "md5": CRC-32, or all 8-byte words xored. Not the hash that
 * guards a recording (tensor/hash.h). */
#ifndef TAP_RECORD_CHECKSUM_H
#define TAP_RECORD_CHECKSUM_H

#include "tensortap/tensortap.h"

/* Goes on with `sum`, which starts at 0. len is a multiple of 8 in every call but the last. */
uint64_t tap__checksum_add(tap_checksum kind, uint64_t sum, const void *bytes, size_t len);
/* Of a whole tensor's row-major elements, without room for a copy of them; 0 where it cannot be read. */
uint64_t tap__checksum_tensor(tap_checksum kind, const tap_tensor *tensor);
/* As the files show it; room for 24 bytes. */
void tap__checksum_show(tap_checksum kind, uint64_t sum, char *out);

#endif
