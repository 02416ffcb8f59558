/* save.h - a value on its way through the first and the second half of a save (job.h) at once, in the thread that saves it. */
#ifndef TAP_RECORD_SAVE_H
#define TAP_RECORD_SAVE_H

#include "base/strbuf.h"
#include "record/capture/job.h"

/* One leaf, whatever its size and the layout. */
tap_status tap__save_leaf(tap_job *job);
/* Its entry with payload bytes, which are read here. */
tap_status tap__save_entry(tap_job *job);
/* Layouts of other tools: the leaf's file and its entry. */
tap_status tap__save_compat(tap_job *job);
/* Names the leaf's file (its slot too, which keeps the name) and, unless the writer is to do it, writes it. tensors: all
 * that go into the one file. */
tap_status tap__save_file(tap_job *job, const tap_tensor *tensors, size_t count, bool list, tap_strbuf *path);
/* What follows a save that was kept. */
tap_status tap__save_end(tap_job *job, tap_status status);
/* The recorder is there and does not want it. */
tap_status tap__save_filtered(tap_recorder *rec);

/* An info that another header made, or nobody: the save again with one that is whole, or lost. value or tensor. */
tap_status tap__save_resized(tap_recorder *rec, const char *name, const tap_tensor *tensor, const tap_value *value,
                             const tap_save_info *info);
static inline bool tap__is_resized(const tap_recorder *rec, const tap_save_info *info)
{
    return rec && info && info->size != sizeof *info;
}

#endif
