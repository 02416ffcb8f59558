/* payload.h - a tensor's row-major bytes into a file: straight from its memory when they lie there as wanted, else
 * gathered or converted in blocks. */
#ifndef TAP_FORMAT_PAYLOAD_H
#define TAP_FORMAT_PAYLOAD_H

#include "tensortap/tensortap.h"

typedef struct tap_payload {
    int fd;
    const char *path; /* for messages */
    bool crc_wanted;
    uint32_t crc;     /* CRC-32 of what was written, starting from the value found here */
} tap_payload;

/* Writes head, then the tensor as `dtype`; a small tensor and its head go in one call. */
tap_status tap__payload_write(tap_payload *payload, const void *head, size_t head_len, const tap_tensor *tensor,
                              tap_dtype dtype, tap_error *err);
/* Bytes tap__payload_write puts after head; -1 when they do not fit int64. */
int64_t tap__payload_bytes(const tap_tensor *tensor, tap_dtype dtype);
/* The shape as `dtype`: a packed type unpacks into its last dimension (a scalar into two values). Returns ndim;
 * shape needs TAP_MAX_NDIM. */
int32_t tap__payload_shape(const tap_tensor *tensor, tap_dtype dtype, int64_t *shape);

#endif
