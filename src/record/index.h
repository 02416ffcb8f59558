/* index.h - the SQLite index of one attempt: what a reader needs to list and find records without touching segments.
 * Written behind the data by the one writer, without locks and without a journal, under a temporary name; it gets its
 * name only when complete, and readers open it as immutable. Losing it loses nothing: it can be built again. */
#ifndef TAP_RECORD_INDEX_H
#define TAP_RECORD_INDEX_H

#include "record/attempt.h"

typedef struct tap_index tap_index;

/* Starts an empty index at <attempt>.sqlite.tmp. */
tap_status tap__index_create(const tap_attempt_files *files, tap_index **out, tap_error *err);
/* Adds one checked entry that lies at offset of a segment. Every type may come; what is not listed is ignored. A
 * TRAILER completes its BIG row. Many adds make one transaction. */
tap_status tap__index_add(tap_index *index, const tap_entry *entry, uint32_t segment, uint64_t offset, tap_error *err);
/* Forgets the rows of a segment that was deleted. */
tap_status tap__index_drop_segment(tap_index *index, uint32_t segment, tap_error *err);
/* Commits and puts it in place; frees index in any case. */
tap_status tap__index_finish(tap_index *index, tap_error *err);
/* Removes what was built; frees index. */
void tap__index_discard(tap_index *index);

/* Builds the index of a finished attempt from its segments (first_segment .. +segments). progress may be NULL. */
tap_status tap__index_rebuild(const tap_attempt_files *files, const tap_attempt_info *info, tap_progress_fn progress,
                              void *user, uint64_t *records, tap_error *err);

#endif
