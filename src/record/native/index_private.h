/* index_private.h - what the three files of the index share: the handle, its string tables and the row codec. */
#ifndef TAP_RECORD_INDEX_PRIVATE_H
#define TAP_RECORD_INDEX_PRIVATE_H

#include "base/newfile.h"
#include "base/strange.h"
#include "record/native/index.h"

#define TAP_INDEX_APPLICATION 0x54415049
#define TAP_INDEX_VERSION 1
#define TAP_ROW_MAX 1100 /* bytes: 93 numbers of at most 10, six of 8, a checksum */
#define TAP_NO_SEQ UINT64_MAX

typedef struct tap_string {
    char *text;         /* NUL after len bytes; NULL: not read yet */
    size_t len;
    uint64_t hash;
    /* of names, while writing */
    uint64_t declared;  /* seq of the DECLARED row, or TAP_NO_SEQ */
    uint64_t open_slots;
    unsigned slot_kinds; /* bits: kinds that ever had a slot */
    bool saved;
} tap_string;

/* Strings by id, and ids by string while writing. */
typedef struct tap_strings {
    tap_string *items;
    size_t count, cap;
    uint32_t *table; /* id + 1, open addressing, a power of two */
    size_t table_size;
} tap_strings;

typedef struct tap_segment_range {
    uint32_t segment;
    uint64_t first, last;
} tap_segment_range;

struct tap_index {
    sqlite3 *db;
    tap_newfile file;       /* being written; nothing in it when reading and in memory */
    char *path;             /* NULL in memory */
    bool writable;
    bool all_names;         /* every name was read from the file */
    tap_sql_limit limit;    /* for a file that is read */
    tap_strings names, texts;
    tap_segment_range *segments;
    size_t segment_count;
    tap_index_counts counts;
    sqlite3_stmt *insert, *update, *remove, *get, *site, *add_name, *add_text; /* writing */
    sqlite3_stmt *get_name, *get_text;                                         /* reading */
};

/* Returns the bytes written to out, which has TAP_ROW_MAX. */
size_t tap__row_encode(const tap_row *row, uint8_t *out);
/* seq, step and name are set by the caller before. false: damaged. */
bool tap__row_decode(tap_row *row, const uint8_t *bytes, size_t len);

/* Makes room for id; NULL without memory. */
tap_string *tap__strings_at(tap_strings *strings, size_t id);
void tap__strings_free(tap_strings *strings);

tap_status tap__index_fail(const tap_index *index, int code, const char *what, tap_error *err);
tap_status tap__index_prepare(tap_index *index, const char *sql, sqlite3_stmt **out, tap_error *err);

#endif
