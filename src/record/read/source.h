/* source.h - where the rows of an opened recording come from. There are two kinds of sources: the segments of our own
 * recordings with their index (source_native.c), one for each attempt, and the files of another tool's layout or a
 * single file (source_files.c), one for all of it. What is opened, queried, mapped and verified knows no more of a
 * recording than this; the same on the other side of the disk is ring/sink.h.
 *
 *     look      which sources are there, and what is known of each without reading its rows
 *     open      makes the index of one: rows are always read through an index, a file's or one in memory
 *     refresh   what came since
 *     rebuild   the index turned out to be damaged: another one, from what it was made of
 *     rank      of a row
 *     place     what a row says of where its value lies: path, file
 *     map       the bytes of a record
 *     verify    what was asked for against what is there
 *     close     frees a source */
#ifndef TAP_RECORD_SOURCE_H
#define TAP_RECORD_SOURCE_H

#include "record/native/attempt.h"
#include "record/native/index.h"

enum { TAP_RANK_OF_ROW = -1 };

/* What every source begins with. */
typedef struct tap_source {
    int32_t rank, attempt, child; /* rank TAP_RANK_OF_ROW: each row has its own */
    tap_attempt_info info;        /* as far as it is known */
    bool live;                    /* a writer is at work on it */
    bool indexed;                 /* an index lies ready on disk: nothing is gained by opening it early */
    char *relative;               /* "rank0/attempt0"; "" */
    tap_index *index;             /* NULL: not opened yet */
    bool in_memory;               /* index grows and stays; else it is a file that can be opened again */
    int users;                    /* cursors reading index */
} tap_source;

/* Where a row's value lies; what points, points into the index or into the place. */
typedef struct tap_place {
    const char *path, *file;
    char *path_text;              /* private */
    size_t path_cap;              /* private */
    char file_text[128];          /* private */
} tap_place;

/* The bytes of a record and what keeps them there. It stays where it is: tensor.shape may point into it. */
typedef struct tap_mapped {
    tap_tensor tensor;
    int64_t shape[TAP_MAX_NDIM];
    void *base;                   /* mapped; memory of ours when base_bytes is 0 */
    size_t base_bytes;
    tap_file *file;
} tap_mapped;

struct tap_verifier;

typedef struct tap_source_type {
    /* Adds sources to run that are not known yet; those known stay. */
    tap_status (*look)(tap_run *run, tap_error *err);
    tap_status (*open)(tap_run *run, tap_source *source, tap_error *err);
    tap_status (*refresh)(tap_run *run, tap_source *source, tap_error *err);
    tap_status (*rebuild)(tap_run *run, tap_source *source, tap_error *err);
    int32_t (*rank)(const tap_source *source, const tap_row *row);
    /* place is zeroed before its first use; tap__free its path_text after the last. */
    tap_status (*place)(const tap_source *source, const tap_row *row, tap_place *place, tap_error *err);
    /* out is zeroed. */
    tap_status (*map)(tap_dir *dir, const tap_record *record, tap_mapped *out, tap_error *err);
    /* Reports every problem of run; looks again at what is on disk. */
    tap_status (*verify)(struct tap_verifier *verifier);
    void (*close)(tap_source *source);
} tap_source_type;

extern const tap_source_type tap__source_native, tap__source_files;

/* tap_record_map of a record that a reader of ours made; out is initialised. */
tap_status tap__record_map(tap_run *run, const tap_record *record, tap_mapping *out, tap_error *err);
/* Describes the tensor of a record whose bytes lie as they were saved, when they are as many as its shape says. */
tap_status tap__mapped_describe(const tap_record *record, tap_mapped *out, tap_error *err);

#endif
