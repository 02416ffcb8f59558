/* source_native.c - our own recordings: each attempt is a source. Its rows come from the finished index, or from a scan
 * of the segments into an index in memory; its bytes are mapped from the segments. */
#include "record/read/source_native.h"

#include "base/memory.h"
#include "base/status.h"
#include "record/read/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* --------------------------------------------------------------------------------------------------------- looking */

void tap__native_look(tap_native *native)
{
    tap_source *source = &native->source;
    /* liveness first: when no writer is there before we read, what we read is all there is */
    source->live = tap__attempt_is_live(&native->files, &source->info);
    native->info_status = tap__attempt_read(&native->files, &source->info, NULL);
    if (source->info.ended[0])
        source->live = false;
    source->indexed = source->info.indexed && !source->live;
}

static tap_source *native_new(const tap_attempt_files *files)
{
    tap_native *native = tap__calloc(1, sizeof *native);
    if (!native)
        return NULL;
    native->scan.fd = -1;
    char text[96];
    if (files->child)
        snprintf(text, sizeof text, "rank%d/child%d/attempt%d", files->rank, files->child, files->attempt);
    else
        snprintf(text, sizeof text, "rank%d/attempt%d", files->rank, files->attempt);
    native->source.relative = tap__strdup(text);
    if (!native->source.relative) {
        tap__free(native);
        return NULL;
    }
    native->source.rank = files->rank;
    native->source.attempt = files->attempt;
    native->source.child = files->child;
    native->files = *files;
    /* what the description says decides whether its writer can be alive, so it is read before and after */
    tap__attempt_read(&native->files, &native->source.info, NULL);
    tap__native_look(native);
    return &native->source;
}

static int order(const tap_source *a, const tap_attempt_files *b)
{
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->attempt != b->attempt)
        return a->attempt < b->attempt ? -1 : 1;
    return a->child == b->child ? 0 : a->child < b->child ? -1 : 1;
}

static tap_status look(tap_run *run, tap_error *err)
{
    tap_attempt_list list;
    TAP_TRY(tap__attempt_list(run->dir, &list, err));
    tap_source **merged = tap__calloc(run->count + list.count + 1, sizeof *merged);
    if (!merged) {
        tap__attempt_list_free(&list);
        return tap_fail_nomem(err);
    }
    size_t old = 0, count = 0;
    tap_status status = TAP_OK;
    for (size_t i = 0; i < list.count && status == TAP_OK; i++) {
        if (run->only_rank >= 0 && list.items[i].rank != run->only_rank)
            continue;
        while (old < run->count && order(run->sources[old], &list.items[i]) < 0)
            merged[count++] = run->sources[old++]; /* gone from disk or not: it stays known */
        if (old < run->count && order(run->sources[old], &list.items[i]) == 0)
            merged[count++] = run->sources[old++];
        else if ((merged[count] = native_new(&list.items[i])))
            count++;
        else
            status = tap_fail_nomem(err);
    }
    while (old < run->count)
        merged[count++] = run->sources[old++];
    tap__free(run->sources);
    run->sources = merged;
    run->count = count;
    tap__attempt_list_free(&list);
    return status;
}

/* -------------------------------------------------------------------------------------------------------- indexes */

static tap_status catch_up(tap_native *native, tap_error *err)
{
    if (!native->scanning)
        return TAP_OK;
    native->scan.growing = native->source.live;
    for (;;) {
        const tap_entry *entry;
        uint32_t segment;
        uint64_t offset;
        bool cut;
        tap_status status = tap__scan_next(&native->scan, &entry, &segment, &offset, &cut, err);
        if (status == TAP_END)
            return TAP_OK;
        TAP_TRY(status);
        TAP_TRY(tap__index_add_cut(native->source.index, entry, segment, offset, cut, err));
    }
}

static tap_status scan_all(tap_native *native, tap_error *err)
{
    tap_source *source = &native->source;
    TAP_TRY(tap__index_create_memory(&source->index, err));
    source->in_memory = true;
    tap_status status = tap__scan_open(&native->scan, &native->files, &source->info, err);
    if (status == TAP_OK) {
        native->scanning = true;
        status = catch_up(native, err);
    }
    if (status != TAP_OK) {
        tap__scan_close(&native->scan);
        native->scanning = false;
        tap__index_close(source->index);
        source->index = NULL;
    }
    return status;
}

static tap_status open_index(tap_run *run, tap_source *source, tap_error *err)
{
    tap_native *native = (tap_native *)source;
    if (source->index)
        return TAP_OK;
    source->in_memory = false;
    if (source->indexed) {
        tap_status status = tap__index_open(&native->files, &source->index, err);
        if (status == TAP_OK)
            run->open_files++;
        if (status == TAP_OK || status == TAP_E_NOMEM)
            return status;
    }
    return scan_all(native, err);
}

static tap_status rebuild(tap_run *run, tap_source *source, tap_error *err)
{
    tap_native *native = (tap_native *)source;
    TAP_TRY(tap__run_retire(run, source, err));
    if (native->scanning)
        tap__scan_close(&native->scan);
    native->scanning = false;
    return scan_all(native, err);
}

static tap_status refresh(tap_run *run, tap_source *source, tap_error *err)
{
    tap_native *native = (tap_native *)source;
    bool was_live = source->live;
    if (source->info.ended[0] && !was_live)
        return TAP_OK;
    tap__native_look(native);
    if (!source->index)
        return open_index(run, source, err);
    if (source->live && !was_live) /* a new writer took it over and may write over what looked final */
        return rebuild(run, source, err);
    return catch_up(native, err);
}

static void close_source(tap_source *source)
{
    tap_native *native = (tap_native *)source;
    if (native->scanning)
        tap__scan_close(&native->scan);
}

/* -------------------------------------------------------------------------------------------------------- records */

static int32_t rank_of(const tap_source *source, const tap_row *row)
{
    (void)row;
    return source->rank;
}

static tap_status place(const tap_source *source, const tap_row *row, tap_place *out, tap_error *err)
{
    size_t len;
    TAP_TRY(tap__index_text(source->index, row->text[TAP_ROW_PATH], &out->path, &len, err));
    if (len) {
        if (len + 1 > out->path_cap) {
            char *grown = tap__resize(out->path_text, len + 1, 1);
            if (!grown)
                return tap_fail_nomem(err);
            out->path_text = grown;
            out->path_cap = len + 1;
        }
        tap__path_show(out->path, len, out->path_text, out->path_cap);
        out->path = out->path_text;
    }
    snprintf(out->file_text, sizeof out->file_text, "%s-%06u.tap", source->relative, (unsigned)row->segment);
    out->file = out->file_text;
    return TAP_OK;
}

static tap_status map_range(tap_dir *dir, const tap_record *record, int fd, tap_mapped *out, tap_error *err)
{
    struct stat st;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), start = record->offset / page * page, end = 0;
    if (fstat(fd, &st) != 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot look at %s/%s", dir->path, record->file);
    if (__builtin_add_overflow(record->offset, record->payload_bytes, &end) || end > (uint64_t)st.st_size)
        return tap_fail(err, TAP_E_TRUNCATED, "%s/%s ends before the bytes of %s; run: tensortap verify", dir->path,
                        record->file, record->name);
    void *base = mmap(NULL, (size_t)(end - start), PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, (off_t)start);
    if (base == MAP_FAILED)
        return tap_fail_errno(err, TAP_E_IO, "cannot map %s/%s", dir->path, record->file);
    out->base = base;
    out->base_bytes = (size_t)(end - start);
    out->tensor.data = (char *)base + (record->offset - start);
    return TAP_OK;
}

static tap_status map(tap_dir *dir, const tap_record *record, tap_mapped *out, tap_error *err)
{
    TAP_TRY(tap__mapped_describe(record, out, err));
    if (tap_tensor_bytes(&out->tensor) == 0)
        return TAP_OK;
    int fd = tap__dir_file(dir, record->file ? record->file : "", O_RDONLY);
    if (fd < 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot open %s/%s", dir->path, record->file ? record->file : "");
    tap_status status = map_range(dir, record, fd, out, err);
    close(fd);
    return status;
}

const tap_source_type tap__source_native = {
    .look = look, .open = open_index, .refresh = refresh, .rebuild = rebuild, .rank = rank_of,
    .place = place, .map = map, .verify = tap__verify_native, .close = close_source,
};
