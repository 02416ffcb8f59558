/* sidebytes.c - where the bytes of a record lie, and reading a piece of them. */
#include "compare/sidebytes.h"

#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"
#include "record/read/run.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static bool is_native(const tap_run *run)
{
    return strcmp(tap_run_layout(run), "native") == 0;
}

bool tap__sidebytes_kept(const tap_run *run, const tap_record *record)
{
    if (record->value_type == TAP_VALUE_META)
        return false;
    return is_native(run) ? record->payload_bytes > 0 : record->file[0] != 0;
}

static tap_status shape_take(tap_sidebytes *bytes, const tap_tensor *tensor, tap_error *err)
{
    TAP_TRY(tap__shape_check(tensor, err));
    bytes->dtype = tensor->dtype;
    bytes->ndim = tensor->ndim;
    if (tensor->ndim)
        memcpy(bytes->shape, tensor->shape, 8 * (size_t)tensor->ndim);
    bytes->count = tap_tensor_count(tensor);
    bytes->element = tap_dtype_describe(tensor->dtype)->bytes;
    return TAP_OK;
}

/* Our own segments: the record says where. */
static tap_status open_native(tap_sidebytes *bytes, const tap_run *run, const tap_record *record, tap_error *err)
{
    int64_t length = (int64_t)record->payload_bytes;
    tap_tensor tensor = {.dtype = record->dtype, .ndim = record->ndim, .shape = record->shape};
    if (record->dtype == TAP_DTYPE_NONE) /* text and bytes have no element type */
        tensor = (tap_tensor){.dtype = TAP_U8, .ndim = 1, .shape = &length};
    TAP_TRY(shape_take(bytes, &tensor, err));
    if (tap_tensor_bytes(&tensor) != length)
        return tap_fail(err, TAP_E_CORRUPT, "%s of step %lld: %llu bytes do not fit its shape; run: tensortap verify",
                        record->name, (long long)record->step, (unsigned long long)record->payload_bytes);
    bytes->dir = run->dir;
    bytes->path = tap__path_join(run->dir->path, record->file);
    bytes->offset = record->offset;
    if (bytes->path)
        bytes->name = bytes->path + strlen(bytes->path) - strlen(record->file);
    return bytes->path ? TAP_OK : tap_fail_nomem(err);
}

static tap_status open_mapped(tap_sidebytes *bytes, tap_run *run, const tap_record *record, tap_error *err)
{
    tap_mapping_init(&bytes->mapping);
    TAP_TRY(tap_record_map(run, record, &bytes->mapping, err));
    tap_status status = shape_take(bytes, &bytes->mapping.tensor, err);
    if (status == TAP_OK && bytes->count)
        status = tap__walk_begin(&bytes->walk, &bytes->mapping.tensor, err);
    bytes->in_order = status == TAP_OK && bytes->count && !tap__walk_is_contiguous(&bytes->walk);
    if (status != TAP_OK)
        tap_mapping_release(&bytes->mapping);
    return status;
}

tap_status tap__sidebytes_open(tap_sidebytes *bytes, tap_run *run, const tap_record *record, tap_error *err)
{
    *bytes = (tap_sidebytes){.path = NULL};
    return is_native(run) ? open_native(bytes, run, record, err) : open_mapped(bytes, run, record, err);
}

void tap__sidebytes_close(tap_sidebytes *bytes)
{
    if (!bytes->path)
        tap_mapping_release(&bytes->mapping);
    tap__free(bytes->path);
    bytes->path = NULL;
}

void tap__sidefile_close(tap_sidefile *file)
{
    if (file->fd >= 0)
        close(file->fd);
    tap__free(file->path);
    *file = (tap_sidefile){-1, NULL};
}

static tap_status file_for(tap_sidefile *file, const tap_sidebytes *bytes, tap_error *err)
{
    const char *path = bytes->path;
    if (file->fd >= 0 && strcmp(file->path, path) == 0)
        return TAP_OK;
    tap__sidefile_close(file);
    file->path = tap__strdup(path);
    if (!file->path)
        return tap_fail_nomem(err);
    file->fd = tap__dir_file(bytes->dir, bytes->name, O_RDONLY);
    return file->fd >= 0 ? TAP_OK : tap_fail_errno(err, TAP_E_IO, "cannot open %s", path);
}

static tap_status read_file(const tap_sidebytes *bytes, tap_sidefile *file, uint64_t start, size_t len, void *dst,
                            tap_error *err)
{
    TAP_TRY(file_for(file, bytes, err));
    ssize_t got = tap__pread_all(file->fd, dst, len, (off_t)(bytes->offset + start));
    if (got < 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot read %s", bytes->path);
    if ((size_t)got < len)
        return tap_fail(err, TAP_E_TRUNCATED, "%s ends before the bytes of a record; run: tensortap verify", bytes->path);
    return TAP_OK;
}

/* A page of the mapping that cannot be read is EFAULT here, where a plain copy would be the end of the program. */
static tap_status read_mapping(const char *from, size_t len, char *dst, tap_error *err)
{
    for (size_t done = 0; done < len;) {
        struct iovec local = {dst + done, len - done};
        struct iovec remote = {(void *)(uintptr_t)(from + done), len - done};
        ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
        if (got < 0 && (errno == ENOSYS || errno == EPERM)) { /* a sandbox without this call */
            memcpy(dst + done, from + done, len - done);
            return TAP_OK;
        }
        if (got <= 0)
            return tap_fail(err, TAP_E_IO, "compare: the file of a record became shorter, or its disk fails");
        done += (size_t)got;
    }
    return TAP_OK;
}

tap_status tap__sidebytes_read(tap_sidebytes *bytes, tap_sidefile *file, int64_t first, int64_t count, void *dst,
                               tap_error *err)
{
    size_t start = (size_t)first * bytes->element, len = (size_t)count * bytes->element;
    if (bytes->path)
        return read_file(bytes, file, start, len, dst, err);
    if (!bytes->in_order)
        return read_mapping((const char *)bytes->mapping.tensor.data + start, len, dst, err);
    tap__walk_read(&bytes->walk, dst, count);
    return TAP_OK;
}
