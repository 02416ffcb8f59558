/* matchfile.h - the result of a comparison: an SQLite file with a row for each match (table "match", whose columns people
 * may query too) and what is known of the whole (table "info"). */
#ifndef TAP_COMPARE_MATCHFILE_H
#define TAP_COMPARE_MATCHFILE_H

#include "base/newfile.h"
#include "base/strange.h"
#include "tensortap/tensortap_compare.h"

enum { TAP_MATCHFILE_VERSION = 1 };

typedef struct tap_matchfile {
    sqlite3 *db;
    sqlite3_stmt *insert, *set_class, *set_info, *get_info, *get;
    char *path;          /* for messages; NULL: a temporary file */
    tap_newfile file;    /* while it is being written under another name */
    bool strange;        /* it was there already: anybody may have written it */
    tap_sql_limit limit;
    tap_match row;       /* what tap__matchfile_get gave last */
} tap_matchfile;

/* path NULL: a temporary file that goes with it. */
tap_status tap__matchfile_create(tap_matchfile *file, const char *path, tap_error *err);
tap_status tap__matchfile_open(tap_matchfile *file, const char *path, tap_error *err);
/* Everything is written: a file with a path gets its name. It can be read on. */
tap_status tap__matchfile_finish(tap_matchfile *file, tap_error *err);
void tap__matchfile_close(tap_matchfile *file);

/* place: of the match in causal order. The row's id is left in match->id. */
tap_status tap__matchfile_add(tap_matchfile *file, tap_match *match, uint64_t place, tap_error *err);
tap_status tap__matchfile_set_class(tap_matchfile *file, int64_t id, tap_match_class what, tap_error *err);
tap_status tap__matchfile_set_number(tap_matchfile *file, const char *key, int64_t number, tap_error *err);
tap_status tap__matchfile_set_real(tap_matchfile *file, const char *key, double number, tap_error *err);
tap_status tap__matchfile_set_text(tap_matchfile *file, const char *key, const char *text, tap_error *err);
/* 0 when there is none. */
int64_t tap__matchfile_number(tap_matchfile *file, const char *key);
double tap__matchfile_real(tap_matchfile *file, const char *key);
/* The caller's to free; NULL without memory, "" when there is none. */
char *tap__matchfile_text(tap_matchfile *file, const char *key);

tap_status tap__matchfile_prepare(tap_matchfile *file, const char *sql, sqlite3_stmt **out, tap_error *err);
tap_status tap__matchfile_fail(const tap_matchfile *file, int code, const char *what, tap_error *err);
/* Rows of "SELECT " TAP_MATCH_COLUMNS " FROM match ..." */
const char *tap__matchfile_columns(void);
void tap__matchfile_read(sqlite3_stmt *statement, tap_match *out);
/* One row, into file->row. TAP_E_NOTFOUND: there is none of that id. */
tap_status tap__matchfile_get(tap_matchfile *file, int64_t id, tap_error *err);

#endif
