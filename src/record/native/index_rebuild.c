/* index_rebuild.c - the index of finished attempts, made again from their segments. */
#include "record/native/index.h"

#include "base/memory.h"
#include "base/sized.h"
#include "record/native/scan.h"

#include <string.h>
#include <sys/stat.h>

enum { REPORT_EVERY = 4096 }; /* entries between two calls of progress */

typedef struct progress {
    tap_progress_fn fn;
    void *user;
    uint64_t done, total; /* bytes of segments that are through */
} progress;

static uint64_t segment_bytes(const tap_attempt_files *files, uint32_t segment)
{
    char name[TAP_ATTEMPT_NAME];
    struct stat st;
    return tap__dir_stat(files->root, tap__segment_name(files, segment, name), &st) == 0 ? (uint64_t)st.st_size : 0;
}

static uint64_t attempt_bytes(const tap_attempt_files *files)
{
    uint32_t *list;
    size_t count;
    uint64_t total = 0;
    if (tap__segment_list(files, &list, &count, NULL) != TAP_OK)
        return 0;
    for (size_t i = 0; i < count; i++)
        total += segment_bytes(files, list[i]);
    tap__free(list);
    return total;
}

static tap_status stopped(const progress *p, uint64_t now, tap_error *err)
{
    if (!p->fn || p->fn(p->user, p->done + now < p->total ? p->done + now : p->total, p->total))
        return TAP_OK;
    return tap_fail(err, TAP_E_TIMEOUT, "stopped before the end; the old index is still in place");
}

static tap_status add_all(tap_scan *scan, tap_index *index, progress *p, tap_error *err)
{
    uint64_t before = 0; /* bytes of the segments passed */
    for (uint64_t n = 0;; n++) {
        const tap_entry *entry;
        uint32_t segment = scan->segment, found;
        uint64_t offset, bytes = scan->file_bytes;
        bool cut;
        tap_status status = tap__scan_next(scan, &entry, &found, &offset, &cut, err);
        if (status == TAP_END)
            return TAP_OK;
        TAP_TRY(status);
        if (found != segment)
            before += bytes;
        TAP_TRY(tap__index_add_cut(index, entry, found, offset, cut, err));
        if (n % REPORT_EVERY == 0)
            TAP_TRY(stopped(p, before + offset, err));
    }
}

static tap_status rebuild(const tap_attempt_files *files, const tap_attempt_info *info, progress *p, uint64_t *records,
                          tap_error *err)
{
    tap_index *index;
    TAP_TRY(tap__index_create(files, &index, err));
    tap_scan scan;
    tap_status status = tap__scan_open(&scan, files, info, err);
    if (status == TAP_OK)
        status = add_all(&scan, index, p, err);
    tap__scan_close(&scan);
    if (status != TAP_OK) {
        tap__index_close(index);
        return status;
    }
    tap_index_counts counts;
    tap__index_counts(index, &counts);
    if (records)
        *records += counts.records;
    return tap__index_finish(index, err);
}

tap_status tap__index_rebuild(const tap_attempt_files *files, const tap_attempt_info *info, tap_progress_fn fn,
                              void *user, uint64_t *records, tap_error *err)
{
    progress p = {fn, user, 0, fn ? attempt_bytes(files) : 0};
    if (records)
        *records = 0;
    return rebuild(files, info, &p, records, err);
}

static tap_status index_one(const tap_attempt_files *files, progress *p, uint64_t *records, tap_error *err)
{
    tap_attempt_info info;
    uint64_t bytes = p->fn ? attempt_bytes(files) : 0;
    if (tap__attempt_read(files, &info, NULL) != TAP_OK || !info.ended[0])
        return TAP_OK; /* not finished: read from the segments until it is */
    TAP_TRY(rebuild(files, &info, p, records, err));
    p->done += bytes;
    if (info.indexed)
        return TAP_OK;
    info.indexed = true;
    return tap__attempt_write(files, &info, err);
}

tap_status tap_run_index(const char *dir, tap_progress_fn fn, void *user, uint64_t *records, tap_error *err)
{
    TAP_NEED(err, dir);
    if (records)
        *records = 0;
    tap_dir *root;
    tap_attempt_list list = {0, NULL};
    TAP_TRY(tap__dir_open(dir, false, &root, err));
    tap_status status = tap__run_check(root, err);
    if (status == TAP_OK)
        status = tap__attempt_list(root, &list, err);
    progress p = {fn, user, 0, 0};
    for (size_t i = 0; i < list.count && fn; i++)
        p.total += attempt_bytes(&list.items[i]);
    for (size_t i = 0; i < list.count && status == TAP_OK; i++)
        status = index_one(&list.items[i], &p, records, err);
    tap__attempt_list_free(&list);
    tap__dir_close(root);
    return status;
}
