/* format.h - bytes <-> tensors. One row of the table in file.c for each file format, one source file (or two) for each
 * row; nothing here knows about recordings. A reader never trusts a number in a file: it is checked against the
 * file's real length before it is used, and what a reader allocates is bounded by that length. */
#ifndef TAP_FORMAT_FORMAT_H
#define TAP_FORMAT_FORMAT_H

#include "base/arena.h"
#include "base/dir.h"

/* One leaf. entry.tensor.data points into the file's bytes; tap_file_get makes a copy first when they cannot be used as
 * they lie there. */
typedef struct tap_item {
    tap_file_entry entry;
    uint64_t extent;   /* bytes from entry.tensor.data that belong to it; checked to be inside the file */
    uint8_t swap;      /* big-endian data: bytes of one number, reversed by tap_file_get; 0: as they are */
    bool owned;        /* data was allocated for this item (in the arena or by tap_file_get) */
} tap_item;

typedef struct tap_format tap_format;

/* Owns the mapping (not memory given to tap__file_open_memory), the items and everything they point to. */
struct tap_file {
    const tap_format *format;
    const char *path; /* for messages */
    const uint8_t *bytes;
    size_t len;
    bool mapped;
    tap_item *items;
    size_t count, capacity;
    tap_arena arena;
    void *scratch; /* the last copy, for a format that copies nearly everything */
};

/* What tap_file_write was asked for; every tensor was checked to be a valid view. */
typedef struct tap_write_request {
    tap_dir *dir;
    const char *name; /* below dir */
    const char *path; /* for messages; its last part is the archive's name */
    const tap_tensor *tensors;
    const char *const *names; /* may be NULL */
    size_t count;
    bool convert;
} tap_write_request;

struct tap_format {
    const char *name;
    bool (*detect)(const uint8_t *bytes, size_t len); /* a truncated beginning counts too */
    tap_status (*open)(tap_file *file, tap_error *err); /* fills items; file->bytes and len are set */
    tap_status (*write)(const tap_write_request *request, tap_error *err); /* NULL: cannot be written as a whole */
    bool unaligned; /* data lies anywhere: tap_file_get's copy is valid until its next call only */
};

extern const tap_format tap__format_npy, tap__format_pt, tap__format_safetensors, tap__format_print;

/* NULL when there is none of that name. */
const tap_format *tap__format_find(const char *name);

/* Reads from memory that outlives the file; name is used in messages. format NULL: told by content. */
tap_status tap__file_open_memory(const void *bytes, size_t len, const char *name, const tap_format *format,
                                 tap_file **out, tap_error *err);

/* tap_file_open and tap_file_write below a directory: links are not followed. */
tap_status tap__file_open_below(tap_dir *dir, const char *name, tap_file **out, tap_error *err);
tap_status tap__file_write_below(tap_dir *dir, const char *name, const char *format, const tap_tensor *tensors,
                                 const char *const *names, size_t count, bool convert, tap_error *err);

/* A new zeroed item at the end of file->items. */
tap_status tap__file_add(tap_file *file, tap_item **out, tap_error *err);
/* Memory that lives as long as the file; E_LIMIT when a small file asks for much. */
tap_status tap__file_alloc(tap_file *file, size_t size, void **out, tap_error *err);
tap_status tap__file_text(tap_file *file, const char *text, size_t len, const char **out, tap_error *err);
/* Gives the item's tensor its shape (copied) and row-major data at `offset` of the file; checks all of it: `promised`
 * by whom is said in the message. */
tap_status tap__file_place(tap_file *file, tap_item *item, tap_dtype dtype, int32_t ndim, const int64_t *shape,
                           uint64_t offset, uint64_t available, tap_error *err);

/* The type a format that lacks `dtype` holds it as: complex64 or float32. */
tap_dtype tap__format_widen(tap_dtype dtype);

#endif
