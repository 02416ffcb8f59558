/* zip.h - the zip archives torch uses: stored records aligned to 64 bytes, zip64 where sizes need it. The reader also
 * takes deflated records, as other zip programs make them. */
#ifndef TAP_FORMAT_ZIP_H
#define TAP_FORMAT_ZIP_H

#include "base/strbuf.h"
#include "base/arena.h"
#include "format/payload.h"

/* ------------------------------------------------------------------------------------------------------- reading */

typedef struct tap_zip_record {
    const char *name; /* in the archive's bytes, not terminated */
    uint16_t name_len, method;
    uint64_t header;  /* offset of the local header */
    uint64_t packed, size;
    const uint8_t *inflated; /* set by tap__zip_data for a deflated record */
} tap_zip_record;

/* Points into bytes; records are allocated in arena, sorted by name. */
typedef struct tap_zip {
    const uint8_t *bytes;
    uint64_t len;
    const char *path; /* for messages */
    tap_arena *arena;
    tap_zip_record *records;
    size_t count;
} tap_zip;

tap_status tap__zip_open(tap_zip *zip, const uint8_t *bytes, uint64_t len, const char *path, tap_arena *arena,
                         tap_error *err);
/* NULL when there is none of that name. */
tap_zip_record *tap__zip_find(const tap_zip *zip, const char *name, size_t len);
/* The record's bytes: inside the archive, or inflated into the arena. */
tap_status tap__zip_data(const tap_zip *zip, tap_zip_record *record, const uint8_t **out, tap_error *err);

/* ------------------------------------------------------------------------------------------------------- writing */

/* Collects small things and writes them in one call; byte for byte what torch's writer makes. */
typedef struct tap_zipwriter {
    tap_payload payload;
    const char *prefix;     /* of every record's name: "<archive>/" is put before it */
    tap_strbuf pending;     /* not yet written */
    tap_strbuf central;     /* the directory at the end */
    uint64_t written, count;
    uint64_t names_hash, crc_sum; /* for the serialization id */
} tap_zipwriter;

tap_status tap__zipwriter_begin(tap_zipwriter *zip, int fd, const char *path, const char *prefix, tap_error *err);
tap_status tap__zipwriter_add(tap_zipwriter *zip, const char *name, const void *bytes, size_t len, tap_error *err);
tap_status tap__zipwriter_tensor(tap_zipwriter *zip, const char *name, const tap_tensor *tensor, tap_error *err);
tap_status tap__zipwriter_finish(tap_zipwriter *zip, tap_error *err);
void tap__zipwriter_free(tap_zipwriter *zip);

#endif
