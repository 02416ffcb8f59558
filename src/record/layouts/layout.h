/* layout.h - how files of a recording look. The native layout is the segment log; each layout of another tool is one
 * row of the table in layout.c and one file of functions. A layout has up to three halves:
 *
 *   name     in the producer, at save time: which file the value goes to (counters live here; NULL: no file)
 *   collect  in the writer: entries gathered into files of many records (msprobe's debug.json)
 *   read     the reader
 *
 * The bytes of one file are written by tap__layout_write_file: by the saving thread, so that the file is in place when
 * save returns, or by the writer when asynchronous. */
#ifndef TAP_RECORD_LAYOUT_H
#define TAP_RECORD_LAYOUT_H

#include "base/dir.h"
#include "base/strbuf.h"
#include "record/ring/ring.h"

/* The options a layout may look at; strings live as long as the recorder. */
typedef struct tap_layout_options {
    tap_dir *dir;            /* files are below it */
    const char *dir_shown;   /* dir as the user wrote it, for files that name it (msprobe's dump_data_dir); NULL: dir */
    int32_t rank, world_size, device_index, pid;
    int32_t child;           /* pid when this is a forked child's own recorder, else 0: it never shares a file */
    bool distributed;
    tap_checksum checksum;
    bool several_nodes;      /* ranks of more than one machine write below dir: names carry the rank */
    bool resume;             /* collect: a writer before this one wrote part of the same recording; go on with its files */
    unsigned keep;
    const char *framework;   /* NULL: "pytorch" */
    int64_t first_step;
} tap_layout_options;

/* One leaf on its way to a file. tensor.data is the caller's memory (or the ring's). */
typedef struct tap_leaf {
    const char *name;
    const char *path;        /* structured, as in entry.h; path_len bytes */
    size_t path_len;
    const tap_tensor *tensor; /* numbers too, as 0-d views, for layouts that write them; NULL: no bytes */
    tap_value_type value_type;
    tap_kind kind;
    unsigned flags;
    int64_t step;
    uint32_t call;
    const tap_save_info *info; /* never NULL */
} tap_leaf;

typedef struct tap_namer tap_namer;         /* counters of the producer; thread-safe */
typedef struct tap_collector tap_collector; /* state of the writer */

/* What a file says of a value beside what a record holds: verify holds the value's bytes against it. */
typedef struct tap_facts {
    const char *why;          /* state TORN: what is wrong; NULL: its file cannot be read */
    bool unknown;             /* the record stands for what a broken file held, and nobody knows how much that was */
    bool mean, norm;          /* of the statistics these are given, not only max and min */
    tap_checksum checksum_kind; /* NONE: there is no checksum */
    uint64_t checksum;
} tap_facts;

/* What a reader hands its records to; anything but TAP_OK ends the reading and is returned. */
typedef tap_status (*tap_record_fn)(void *user, const tap_record *record, const tap_facts *facts);

typedef struct tap_layout {
    const char *name;
    bool native;
    bool one_file_per_value;  /* a list of tensors goes to one file: name it once, then tap__layout_write_files */
    const char *file_format;  /* "npy", "pt"; NULL: no files of single tensors */

    /* Appends the file's path relative to options->dir. Every part was made safe by tap__name_escape. Leaves out empty
     * when this leaf has no file of its own. Called once per leaf, slots included, in order of saving, under the
     * namer's lock. */
    tap_status (*name_file)(tap_namer *namer, const tap_leaf *leaf, tap_strbuf *out, tap_error *err);

    tap_status (*collect_open)(const tap_layout_options *options, tap_collector **out, tap_error *err);
    /* payload: the entry's row-major bytes or NULL. Taking an entry again changes nothing, so a writer that takes over
     * may start before the place where the last one stopped. TAP_E_LIMIT: no room to keep it while the disk is full.
     *
     * Leaves that are not tensors: BOOL, INT, FLOAT come with their value as a 0-d bool, int64, float64 payload, or
     * without payload as min; COMPLEX as a 16-byte payload; STR as payload. TAP_META_TYPE_NAME replaces the usual type
     * name. A STR whose type name is "int" (too large for int64), "torch.Size" or "slice" holds JSON. */
    tap_status (*collect)(tap_collector *collector, const tap_entry *entry, const void *payload, tap_error *err);
    /* Writes what is due: now_ns is monotonic; force at step, flush and close. */
    tap_status (*collect_flush)(tap_collector *collector, uint64_t now_ns, bool force, tap_error *err);
    /* Is what the entry of number seq brought to *step in no file yet? step NULL: is anything? */
    bool (*collect_waits)(const tap_collector *collector, const int64_t *step, uint64_t seq);
    void (*collect_close)(tap_collector *collector);

    /* Does dir look like a recording of this layout, or its file `only` like a part of one? */
    bool (*detect)(tap_dir *dir, const char *only);
    /* Lists it: calls add for every record, by rank and then in order of saving. record->file is below dir: open it
     * again with tap__file_open_below and take the entry whose name is record->path, or the only one. What is broken is
     * a record too, with state TORN. Statistics are there where a file has them; debug.json has no counts, so nan, pos_inf and neg_inf are
     * 1 when max or min show that there are some, and mean and norm are NaN where it has null. */
    tap_status (*read)(tap_dir *dir, const char *only, tap_record_fn add, void *user, tap_error *err);
} tap_layout;

/* The layout's view of a ring's configuration; strings stay the ring's. */
tap_layout_options tap__layout_options(tap_dir *dir, const tap_ring_config *config);
/* The directory a forked child's files go to: beside its parent's below root, never the same. */
tap_status tap__layout_child_dir(tap_dir *root, int32_t rank, int32_t child, tap_dir **out, tap_error *err);

/* NULL when there is none of that name. tap__layout_at(i): NULL past the last; order of detection. */
const tap_layout *tap__layout_find(const char *name);
const tap_layout *tap__layout_at(size_t index);
/* "native, msprobe, ..." for messages. */
const char *tap__layout_names(void);

/* Writes one leaf's file (temporary name, rename, 0640, parents 0750): format and dtype conversions of the layout. */
tap_status tap__layout_write_file(const tap_layout *layout, tap_dir *dir, const char *relative,
                                  const tap_tensor *tensor, tap_error *err);
/* The same for a list of tensors in one file; only where one_file_per_value. */
tap_status tap__layout_write_files(const tap_layout *layout, tap_dir *dir, const char *relative,
                                   const tap_tensor *tensors, size_t count, tap_error *err);

#endif
