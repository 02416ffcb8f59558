/* layout.h - how files of a recording look. The native layout is the segment log; each seed layout is one row of the
 * table in layout.c and one file of functions. A layout has up to three halves:
 *
 *   name     in the producer, at save time: which file the value goes to (counters live here; NULL: no file)
 *   collect  in the writer: entries gathered into files of many records (msprobe's debug.json)
 *   open     the reader
 *
 * The bytes of one file are written by tap__layout_write_file: by the saving thread, so that the file is in place when
 * save returns, or by the writer when asynchronous. */
#ifndef TAP_RECORD_LAYOUT_H
#define TAP_RECORD_LAYOUT_H

#include "base/strbuf.h"
#include "record/entry.h"

/* The options a layout may look at; strings live as long as the recorder. */
typedef struct tap_layout_options {
    const char *dir;
    int32_t rank, world_size, device_index, pid;
    bool distributed, checksum;
    unsigned keep;
    const char *framework;
    int64_t first_step;
} tap_layout_options;

/* One leaf on its way to a file. tensor.data is the caller's memory (or the ring's). */
typedef struct tap_leaf {
    const char *name;
    const char *path;        /* structured, as in entry.h; path_len bytes */
    size_t path_len;
    const tap_tensor *tensor;
    tap_value_type value_type;
    tap_kind kind;
    unsigned flags;
    int64_t step;
    uint32_t call;
    const tap_save_info *info; /* never NULL */
} tap_leaf;

typedef struct tap_namer tap_namer;         /* counters of the producer; thread-safe */
typedef struct tap_collector tap_collector; /* state of the writer */
typedef struct tap_layout_run tap_layout_run; /* an opened recording */

typedef struct tap_layout {
    const char *name;
    bool native;
    const char *file_format;  /* "npy", "pt"; NULL: no files of single tensors */

    /* Appends the file's path relative to options->dir. Every part was made safe by tap__name_escape. Leaves out empty
     * when this leaf has no file of its own. Called once per leaf, in order of saving, under the namer's lock. */
    tap_status (*name_file)(tap_namer *namer, const tap_leaf *leaf, tap_strbuf *out, tap_error *err);

    tap_status (*collect_open)(const tap_layout_options *options, tap_collector **out, tap_error *err);
    /* payload: the entry's row-major bytes or NULL. */
    tap_status (*collect)(tap_collector *collector, const tap_entry *entry, const void *payload, tap_error *err);
    /* Writes what is due: now_ns is monotonic; force at step, flush and close. */
    tap_status (*collect_flush)(tap_collector *collector, uint64_t now_ns, bool force, tap_error *err);
    void (*collect_close)(tap_collector *collector);

    /* Does path look like a recording of this layout? */
    bool (*detect)(const char *path);
    /* Lists it: calls add for every record, in order. record->file is relative to path; map opens it again. */
    tap_status (*read)(const char *path, tap_status (*add)(void *user, const tap_record *record), void *user,
                       tap_error *err);
} tap_layout;

/* NULL when there is none of that name. tap__layout_at(i): NULL past the last; order of detection. */
const tap_layout *tap__layout_find(const char *name);
const tap_layout *tap__layout_at(size_t index);
/* "native, msprobe, ..." for messages. */
const char *tap__layout_names(void);

tap_status tap__namer_create(const tap_layout *layout, const tap_layout_options *options, tap_namer **out,
                             tap_error *err);
/* Locks, names, unlocks. */
tap_status tap__namer_name(tap_namer *namer, const tap_leaf *leaf, tap_strbuf *out, tap_error *err);
void tap__namer_free(tap_namer *namer);

/* Writes one leaf's file (temporary name, rename, 0640, parents 0750): format and dtype conversions of the layout. */
tap_status tap__layout_write_file(const tap_layout *layout, const char *dir, const char *relative,
                                  const tap_tensor *tensor, tap_error *err);

/* Makes a name usable as one component of a path: "/", control bytes, bytes that are not UTF-8, and "." and ".." are
 * written %XX, "%" too where it would read as such; more than max_bytes are cut and end in "~" and 16 hex digits of
 * the whole name's hash. Never fails for content. One place names files: everything that reaches a path goes here. */
void tap__name_escape(tap_strbuf *out, const char *name, size_t len, size_t max_bytes);

#endif
