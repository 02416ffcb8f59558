/* attempt.h - where the files of a native recording lie and who may write them. One rank of one run of a job is an
 * attempt; its files never belong to two processes.
 *
 *     <dir>/run.json                        {"tensortap": 1, "layout": "native", ...}, written once
 *     <dir>/rank<R>/attempt<A>.json         put in place only where none is: owning it is owning the attempt;
 *                                           rewritten at the end
 *     <dir>/rank<R>/attempt<A>-<NNNNNN>.tap segments
 *     <dir>/rank<R>/attempt<A>.sqlite       the index, put in place when the attempt is finished
 *     <dir>/rank<R>/attempt<A>.lost         what a full disk kept from being recorded; space taken at the start
 *     <dir>/rank<R>/attempt<A>.ring         a ring kept as a file, gone when drained
 *     <dir>/rank<R>/child<pid>/attempt<A>   the same for a forked child; A is its parent's where that is free
 */
#ifndef TAP_RECORD_ATTEMPT_H
#define TAP_RECORD_ATTEMPT_H

#include "base/dir.h"
#include "record/ring/entry.h"
#include "record/ring/tally.h"

typedef struct tap_attempt_files {
    tap_dir *root;         /* <dir>; not owned. NULL: none was taken */
    char dir[32];          /* "rank<R>" or "rank<R>/child<pid>", below it */
    int32_t rank, attempt, child;
} tap_attempt_files;

tap_attempt_files tap__attempt_files(tap_dir *root, int32_t rank, int32_t attempt, int32_t child);
/* Names below root, in a buffer of TAP_ATTEMPT_NAME bytes, which is returned. suffix: ".json", ".sqlite", ".lost",
 * ".ring". */
enum { TAP_ATTEMPT_NAME = 80 };
const char *tap__attempt_name(const tap_attempt_files *files, const char *suffix, char *name);
const char *tap__segment_name(const tap_attempt_files *files, uint32_t segment, char *name);

/* What attempt<A>.json holds. */
typedef struct tap_attempt_info {
    int32_t pid, world_size;
    char host[64];
    char job[128];           /* what makes restarts of one job recognisable; "" when unknown */
    char ranks[128];         /* the ranks that were to be recorded, as tap_options.ranks; "" all, "?" too long to keep */
    uint64_t started_ns, ended_ns;
    char ended[16];          /* "" while live; "closed", "killed", "recovered" */
    uint64_t entries;        /* seq of the last entry + 1 */
    uint64_t records, bytes; /* DATA and BIG entries; payload bytes */
    uint64_t filtered, stats_only, dropped, torn;
    uint64_t not_named;      /* saves that are neither there nor named as lost */
    bool unknown;            /* how many of those there are is not known: whoever knew was killed */
    char tally[TAP_TALLY_NAME]; /* the page that knows it while the attempt has no end; "" when there is none */
    uint32_t first_segment, segments;  /* files first_segment .. first_segment + segments - 1 exist */
    bool indexed;            /* the .sqlite file is complete */
} tap_attempt_info;

/* Takes a new attempt for rank in dir (making run.json and rank<R>), or child<pid> below it when child is not 0
 * (always as APPEND). pid, host, job and started_ns of info are filled in where they are empty. TAP_E_EXISTS says who
 * holds it and what to choose, TAP_E_BUSY that REPLACE would delete a recording at work. */
tap_status tap__attempt_take(tap_dir *dir, int32_t rank, int32_t child, tap_open_mode mode, tap_attempt_info *info,
                             tap_attempt_files *out, tap_error *err);
/* Gives back an attempt that was taken and in which nothing was recorded: its files go, the description last. */
void tap__attempt_give_back(const tap_attempt_files *files);
/* Puts a new attempt<A>.json in place of the old one; where the disk is full it is overwritten instead. */
tap_status tap__attempt_write(const tap_attempt_files *files, const tap_attempt_info *info, tap_error *err);
tap_status tap__attempt_read(const tap_attempt_files *files, tap_attempt_info *info, tap_error *err);
/* The text of an attempt<A>.json; for tap__attempt_read and the fuzzer. */
tap_status tap__attempt_parse(const char *text, size_t len, tap_attempt_info *info, tap_error *err);

/* Is dir's run.json one that this version reads? TAP_E_NOTFOUND when there is none. */
tap_status tap__run_check(tap_dir *dir, tap_error *err);

/* Lists every attempt below dir, children too, ordered by rank, attempt, child. An attempt is there when its .json or
 * one of its segments is. tap__attempt_list_free frees. */
typedef struct tap_attempt_list {
    size_t count;
    tap_attempt_files *items;
} tap_attempt_list;
tap_status tap__attempt_list(tap_dir *dir, tap_attempt_list *out, tap_error *err);
void tap__attempt_list_free(tap_attempt_list *list);

/* Numbers of the segments that exist, ascending; tap__free by the caller. */
tap_status tap__segment_list(const tap_attempt_files *files, uint32_t **out, size_t *count, tap_error *err);

/* "rank0", "attempt12.json" or "attempt12-000003.tap": the number after prefix, and what follows it. */
bool tap__name_number(const char *name, const char *prefix, int32_t *number, const char **rest);

/* Is a writer at work on it? The writer holds an exclusive flock on its newest segment (or on the .json before there is
 * one) and takes the next one's before it lets go; asking takes a shared lock for a moment, so the writer waits for
 * its lock rather than trying. An attempt without segments counts as live for its first seconds, and one whose program
 * lives without a writer until it has another. */
bool tap__attempt_is_live(const tap_attempt_files *files, const tap_attempt_info *info);

#endif
