/* file.c - tensor files: the table of formats, the mapping, the items a reader found, and the public tap_file calls. */
#include "format/format.h"

#include "base/io.h"
#include "base/memory.h"
#include "base/sized.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* In order of detection: print files have no magic and come last. */
static const tap_format *const FORMATS[] = {&tap__format_npy, &tap__format_pt, &tap__format_safetensors,
                                            &tap__format_print};
enum { FORMAT_COUNT = sizeof FORMATS / sizeof FORMATS[0], MAX_ITEMS = 1 << 26 };

const tap_format *tap__format_find(const char *name)
{
    for (size_t i = 0; i < FORMAT_COUNT; i++)
        if (strcmp(FORMATS[i]->name, name) == 0)
            return FORMATS[i];
    return NULL;
}

tap_dtype tap__format_widen(tap_dtype dtype)
{
    return tap_dtype_describe(dtype)->kind == 'C' ? TAP_C64 : TAP_F32;
}

static tap_status format_detect(const tap_file *file, const tap_format **out, tap_error *err)
{
    static const uint8_t TORCH_LEGACY[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46};
    if (file->len == 0)
        return tap_fail(err, TAP_E_TRUNCATED, "%s: the file is empty; the writer was killed, run: tensortap verify DIR",
                        file->path);
    for (size_t i = 0; i < FORMAT_COUNT; i++)
        if (FORMATS[i]->detect(file->bytes, file->len)) {
            *out = FORMATS[i];
            return TAP_OK;
        }
    if (file->len >= sizeof TORCH_LEGACY && memcmp(file->bytes, TORCH_LEGACY, sizeof TORCH_LEGACY) == 0)
        return tap_fail(err, TAP_E_UNSUPPORTED, "%s: the file has torch's format from before 1.6; convert it with "
                        "torch.save(torch.load(path), path)", file->path);
    return tap_fail(err, TAP_E_FORMAT, "%s: not a tensor file: neither npy, torch zip archive, safetensors nor "
                    "MindSpore print file; check that the path names the right file", file->path);
}

/* Takes over bytes: on failure they are unmapped too. */
static tap_status file_open_bytes(const uint8_t *bytes, size_t len, bool mapped, const char *path,
                                  const tap_format *format, tap_file **out, tap_error *err)
{
    tap_file *file = tap__calloc(1, sizeof *file);
    if (!file) {
        if (mapped)
            munmap((void *)(uintptr_t)bytes, len);
        return tap_fail_nomem(err);
    }
    file->bytes = bytes;
    file->len = len;
    file->mapped = mapped;
    file->path = path;
    tap__arena_init(&file->arena, len);
    tap_status status = tap__file_text(file, path, strlen(path), &file->path, err);
    if (status == TAP_OK && !format)
        status = format_detect(file, &format, err);
    file->format = format;
    if (status == TAP_OK)
        status = format->open(file, err);
    if (status != TAP_OK) {
        tap_file_close(file);
        return status;
    }
    *out = file;
    return TAP_OK;
}

tap_status tap__file_open_memory(const void *bytes, size_t len, const char *name, const tap_format *format,
                                 tap_file **out, tap_error *err)
{
    *out = NULL;
    return file_open_bytes(bytes, len, false, name, format, out, err);
}

static tap_status map_file(int fd, const char *path, const uint8_t **bytes, size_t *len, tap_error *err)
{
    struct stat st;
    *bytes = NULL;
    *len = 0;
    if (fstat(fd, &st) != 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot look at %s", path);
    if (!S_ISREG(st.st_mode))
        return tap_fail(err, TAP_E_FORMAT, "%s is not a plain file", path);
    if (st.st_size == 0)
        return TAP_OK;
    if ((uint64_t)st.st_size > SIZE_MAX)
        return tap_fail(err, TAP_E_LIMIT, "%s is larger than this machine's address space", path);
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
        return tap_fail_errno(err, TAP_E_IO, "cannot map %s", path);
    *bytes = map;
    *len = (size_t)st.st_size;
    return TAP_OK;
}

/* Takes over fd. */
static tap_status file_open_fd(int fd, const char *path, tap_file **out, tap_error *err)
{
    if (fd < 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot open %s", path);
    const uint8_t *bytes;
    size_t len;
    tap_status status = map_file(fd, path, &bytes, &len, err);
    close(fd);
    if (status != TAP_OK)
        return status;
    return file_open_bytes(bytes, len, len > 0, path, NULL, out, err);
}

tap_status tap_file_open(const char *path, tap_file **out, tap_error *err)
{
    TAP_NEED(err, out);
    *out = NULL;
    TAP_NEED(err, path);
    /* O_NONBLOCK: a named pipe is refused by map_file, not waited for */
    return file_open_fd(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), path, out, err);
}

tap_status tap__file_open_below(tap_dir *dir, const char *name, tap_file **out, tap_error *err)
{
    *out = NULL;
    char *path = tap__path_join(dir->path, name);
    if (!path)
        return tap_fail_nomem(err);
    tap_status status = file_open_fd(tap__dir_file(dir, name, O_RDONLY), path, out, err);
    tap__free(path);
    return status;
}

void tap_file_close(tap_file *file)
{
    if (!file)
        return;
    if (file->mapped)
        munmap((void *)(uintptr_t)file->bytes, file->len);
    tap__arena_free(&file->arena);
    tap__free(file->scratch);
    tap__free(file->items);
    tap__free(file);
}

const char *tap_file_format(const tap_file *file)
{
    return file ? file->format->name : NULL;
}

size_t tap_file_count(const tap_file *file)
{
    return file ? file->count : 0;
}

static void reverse_numbers(uint8_t *bytes, size_t len, size_t unit)
{
    for (size_t at = 0; at + unit <= len; at += unit)
        for (size_t i = 0; i < unit / 2; i++) {
            uint8_t held = bytes[at + i];
            bytes[at + i] = bytes[at + unit - 1 - i];
            bytes[at + unit - 1 - i] = held;
        }
}

/* A copy with the machine's byte order and alignment. */
static tap_status item_copy(tap_file *file, tap_item *item, tap_tensor *tensor, tap_error *err)
{
    void *copy;
    if (file->format->unaligned) {
        copy = tap__resize(file->scratch, item->extent, 1);
        if (!copy)
            return tap_fail_nomem(err);
        file->scratch = copy;
    } else {
        TAP_TRY(tap__file_alloc(file, item->extent, &copy, err));
    }
    memcpy(copy, tensor->data, item->extent);
    if (item->swap)
        reverse_numbers(copy, item->extent, item->swap);
    tensor->data = copy;
    if (!file->format->unaligned) {
        item->entry.tensor.data = copy;
        item->owned = true;
    }
    return TAP_OK;
}

tap_status tap_file_get(tap_file *file, size_t index, tap_file_entry *out, tap_error *err)
{
    TAP_NEED(err, file);
    TAP_NEED_SIZED(err, tap_file_entry, out);
    if (index >= file->count)
        return tap_fail(err, TAP_E_NOTFOUND, "%s: has no entry %zu, only %zu", file->path, index, file->count);
    tap_item *item = &file->items[index];
    tap_file_entry entry = item->entry;
    if (entry.value_type == TAP_VALUE_TENSOR && !item->owned && item->extent) {
        const tap_dtype_info *info = tap_dtype_describe(entry.tensor.dtype);
        size_t unit = info->kind == 'C' ? info->bytes / 2u : info->bytes;
        if (item->swap || (uintptr_t)entry.tensor.data % unit)
            TAP_TRY(item_copy(file, item, &entry.tensor, err));
    }
    tap__sized_give(out, &entry);
    return TAP_OK;
}

tap_status tap__file_add(tap_file *file, tap_item **out, tap_error *err)
{
    if (file->count == MAX_ITEMS)
        return tap_fail(err, TAP_E_LIMIT, "%s: holds more than %d values; the file is damaged or hostile", file->path,
                        MAX_ITEMS);
    if (file->count == file->capacity) {
        size_t capacity = file->capacity ? file->capacity * 2 : 1;
        tap_item *grown = tap__resize(file->items, capacity, sizeof *grown);
        if (!grown)
            return tap_fail_nomem(err);
        file->items = grown;
        file->capacity = capacity;
    }
    *out = &file->items[file->count++];
    **out = (tap_item){.entry = {.name = "", .text = ""}};
    return TAP_OK;
}

tap_status tap__file_alloc(tap_file *file, size_t size, void **out, tap_error *err)
{
    *out = tap__arena_alloc(&file->arena, size);
    return *out ? TAP_OK : tap__arena_fail(&file->arena, size, file->path, err);
}

tap_status tap__file_text(tap_file *file, const char *text, size_t len, const char **out, tap_error *err)
{
    void *copy;
    TAP_TRY(tap__file_alloc(file, len + 1, &copy, err));
    memcpy(copy, text, len);
    ((char *)copy)[len] = 0;
    *out = copy;
    return TAP_OK;
}

tap_status tap__file_place(tap_file *file, tap_item *item, tap_dtype dtype, int32_t ndim, const int64_t *shape,
                           uint64_t offset, uint64_t available, tap_error *err)
{
    void *copy;
    TAP_TRY(tap__file_alloc(file, (size_t)ndim * sizeof *shape, &copy, err));
    if (ndim)
        memcpy(copy, shape, (size_t)ndim * sizeof *shape);
    tap_tensor *tensor = &item->entry.tensor;
    *tensor = (tap_tensor){.dtype = dtype, .ndim = ndim, .shape = copy};
    int64_t bytes = tap_tensor_bytes(tensor);
    if (bytes < 0)
        return tap_fail(err, TAP_E_LIMIT, "%s: a shape is negative or larger than any memory; the file is damaged",
                        file->path);
    if (offset > file->len || available > file->len - offset || (uint64_t)bytes > available)
        return tap_fail(err, TAP_E_TRUNCATED, "%s: truncated: header promises %lld bytes, file has %llu; the writer "
                        "was killed, run: tensortap verify DIR", file->path, (long long)bytes,
                        (unsigned long long)available);
    tensor->data = (void *)(uintptr_t)(file->bytes + offset);
    item->entry.offset = offset;
    item->extent = (uint64_t)bytes;
    return TAP_OK;
}

static tap_status check_tensors(const tap_write_request *request, tap_error *err)
{
    for (size_t i = 0; i < request->count; i++) {
        const tap_tensor *tensor = &request->tensors[i];
        int64_t count = tap_tensor_count(tensor);
        if (count < 0 || (count > 0 && !tensor->data))
            return tap_fail(err, TAP_E_INVALID, "cannot write %s: tensor %zu is not valid (dtype %d, %d dimensions%s)",
                            request->path, i, (int)tensor->dtype, (int)tensor->ndim, tensor->data ? "" : ", no data");
    }
    return TAP_OK;
}

static tap_status file_write(const tap_write_request *request, const char *format, tap_error *err)
{
    const tap_format *found = tap__format_find(format);
    if (!found || !found->write)
        return tap_fail(err, TAP_E_INVALID, "cannot write %s: format \"%s\" is not one of npy, pt, safetensors",
                        request->path, format);
    TAP_TRY(check_tensors(request, err));
    return found->write(request, err);
}

tap_status tap_file_write(const char *path, const char *format, const tap_tensor *tensors, const char *const *names,
                          size_t count, bool convert, tap_error *err)
{
    TAP_NEED(err, path);
    TAP_NEED(err, format);
    TAP_NEED(err, tensors);
    tap_write_request request = {.path = path, .tensors = tensors, .names = names, .count = count, .convert = convert};
    TAP_TRY(tap__dir_of_file(path, true, &request.dir, &request.name, err));
    tap_status status = file_write(&request, format, err);
    tap__dir_close(request.dir);
    return status;
}

tap_status tap__file_write_below(tap_dir *dir, const char *name, const char *format, const tap_tensor *tensors,
                                 const char *const *names, size_t count, bool convert, tap_error *err)
{
    char *path = tap__path_join(dir->path, name);
    if (!path)
        return tap_fail_nomem(err);
    const tap_write_request request = {dir, name, path, tensors, names, count, convert};
    tap_status status = file_write(&request, format, err);
    tap__free(path);
    return status;
}
