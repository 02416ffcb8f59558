/* tally.h - how many saves returned and how many of them are accounted for: in the files, or listed there as lost. The
 * numbers outlive the program and its writer, so that what both took with them can be counted: they are a page of
 * shared memory with a name (/dev/shm/tensortap-<16 hex digits>), which the description of the recording holds. It is in
 * memory, not in the run directory: there somebody could cut the file and so end the program, and a slow disk could
 * stall a save. Where no such page can be had the numbers lie in the ring and end with it. */
#ifndef TAP_RECORD_TALLY_H
#define TAP_RECORD_TALLY_H

#include "base/dir.h"

#include <stdatomic.h>

#define TAP_TALLY_MAGIC 0x31594C4C41544154ull /* "TATALLY1" */
enum { TAP_TALLY_BYTES = 4096, TAP_TALLY_NAME = 40 };

/* What the writer had accounted for when it had taken the entries before seq. */
typedef struct tap_tally_mark {
    uint64_t seq, accounted;
} tap_tally_mark;

/* A save counts in `saved` before its entry is committed, so that there are never more accounted for than there were. */
typedef struct tap_tally {
    uint64_t magic;
    char name[TAP_TALLY_NAME];
    _Alignas(64) _Atomic uint64_t saved, saved_bytes, filtered, stats_only;
    _Atomic uint64_t dropped;                    /* by the program: never in the ring */
    _Atomic uint64_t named;                      /* that the program itself put in place, or listed in its journal */
    _Alignas(64) _Atomic uint64_t lost;          /* by the writer: in `saved` too, or only their bytes */
    _Atomic uint64_t ahead;                      /* saves behind the mark that are in files already */
    _Atomic uint32_t mark_valid;                 /* which of the two */
    tap_tally_mark mark[2];
    _Atomic uint64_t file_seq;                   /* the entry whose file the writer is putting in place, + 1; 0: none */
    uint64_t file_ns;                            /* when it was saved */
    char file[1024];                             /* relative to the recording */
} tap_tally;
_Static_assert(sizeof(tap_tally) <= TAP_TALLY_BYTES, "a tally is one page");

/* A name that nobody has yet. */
void tap__tally_name(char *name);
/* Makes and maps the page called name; *fd is its file. NULL: it cannot be had. */
tap_tally *tap__tally_create(const char *name, int *fd);
/* Maps the one open at fd; NULL when that is none. */
tap_tally *tap__tally_map(int fd);
/* A page without a name, for this process and its children. */
tap_tally *tap__tally_private(void);
void tap__tally_unmap(tap_tally *tally);

/* The writer's side. */
void tap__tally_account(tap_tally *tally, uint64_t seq, uint64_t accounted);
/* From here on the writer puts the entry's file in place. */
void tap__tally_file(tap_tally *tally, uint64_t seq, uint64_t saved_ns, const char *file);
/* How many files below dir are in place that no mark knows of: 0 or 1. */
uint64_t tap__tally_finished(const tap_tally *tally, tap_dir *dir);
/* Saves that returned and are in no file, given that the newest mark holds `more` too little. */
uint64_t tap__tally_missing(const tap_tally *tally, uint64_t more);

/* What is left of both: a copy of the page called name. False: there is none here, how many are missing is not known. */
bool tap__tally_read(const char *name, tap_tally *out);
/* The newest mark. */
tap_tally_mark tap__tally_marked(const tap_tally *tally);
/* Does a program or a writer still work with it? */
bool tap__tally_in_use(const char *name);
/* Marks this process as one that does. */
void tap__tally_hold(int fd);
void tap__tally_remove(const char *name);

#endif
