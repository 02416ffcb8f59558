/* journal.h - the list of what could not be recorded, kept where a full disk cannot keep it out: attempt<A>.lost of a
 * native recording, .tensortap/ in a directory that holds the layout of another tool. */
#ifndef TAP_RECORD_JOURNAL_H
#define TAP_RECORD_JOURNAL_H

#include "base/dir.h"
#include "record/ring/entry.h"
#include "base/dir.h"
#include "record/ring/tally.h"

/* The file names what could not be recorded because the disk took nothing more. Its 64 KiB are taken when the
 * attempt starts and only overwritten after that. Two halves of 32 KiB are written in turn, so that one is always
 * whole; each is text: a first line "tensortap-lost 1 <turn> <bytes> <hash, 16 hex digits>", then <bytes> bytes of
 * JSON lines {"name", "step", "reason" (a number), "count", "bytes"}, the last perhaps {"more", "bytes"} for what had
 * no room, and blanks. The half with the higher turn whose hash is right counts. */
#define TAP_JOURNAL_BYTES (64u << 10)

typedef struct tap_journal tap_journal;
/* What a writer before this one left in the file is taken over. */
tap_status tap__journal_create(tap_dir *dir, const char *name, tap_journal **out, tap_error *err);
/* Adds up saves of one name, step and reason. Written at once when the last write is 20 ms ago, else by the next add or
 * tap__journal_sync: call that when a batch is done. */
tap_status tap__journal_add(tap_journal *journal, const char *name, int64_t step, tap_reason reason, uint64_t count,
                            uint64_t bytes);
tap_status tap__journal_sync(tap_journal *journal);
/* Forgets everything: LOST entries in a segment say it now. */
tap_status tap__journal_clear(tap_journal *journal);
/* Writes what is due, frees journal, and removes the file when nothing is in it. NULL is fine. */
void tap__journal_close(tap_journal *journal);

/* name is "" and step -1 for what had no room. */
typedef void (*tap_journal_fn)(void *user, const char *name, int64_t step, tap_reason reason, uint64_t count,
                               uint64_t bytes);
/* No file, or nothing in it: TAP_OK without a call. */
tap_status tap__journal_read(tap_dir *dir, const char *name, tap_journal_fn each, void *user, tap_error *err);

/* The recording has begun, its saves are counted in that tally ("": in none): until tap__journal_end was called, which a
 * program and a writer that are both killed never do, what the tally misses is lost. */
tap_status tap__journal_begin(tap_journal *journal, const char *tally);
tap_status tap__journal_end(tap_journal *journal);

/* The same for the layouts of other tools: <dir>/.tensortap/<who>/attempt0.lost. who begins with "rank<R>". */
tap_status tap__journal_create_beside(tap_dir *dir, const char *who, tap_journal **out, tap_error *err);
bool tap__journal_is_beside(tap_dir *dir);
/* *rank, where it is not NULL, is set before each call. What is missing without a name has reason KILLED; count 0: it is
 * not known how many. */
tap_status tap__journal_read_beside(tap_dir *dir, tap_journal_fn each, void *user, int32_t *rank, tap_error *err);
/* Writes what is missing into journals whose recording nobody will end, and removes those that say nothing. */
tap_status tap__journal_recover_beside(tap_dir *dir, tap_error *err);

#endif
