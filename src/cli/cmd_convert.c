/* cmd_convert.c - MindSpore print files to npy files, as TroubleShooter's save_convert names them: a text
 * "_TS_SAVE_NAME:<name>" names the tensor after it, or the one written out in the text itself ("Tensor(shape=...)"). */
#include "filename.h"
#include "records.h"
#include "term.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MARK "_TS_SAVE_NAME:"

typedef struct conversion {
    const cli *args;
    char *name; /* of the tensor to come; NULL: none is named */
    long named, unnamed; /* numbers given so far */
    uint64_t written, unreadable, skipped;
} conversion;

/* ---------------------------------------------------------------------------------------------- tensors as text */

/* "Tensor(shape=[2 3], dtype=Float32, value=\n[[1 2 3] ...])" */
typedef struct text_tensor {
    tap_tensor tensor;
    int64_t shape[TAP_MAX_NDIM];
    void *bytes;
} text_tensor;

static bool parse_shape(text_tensor *out, const char *at, const char *end, int64_t *count)
{
    *count = 1;
    out->tensor.ndim = 0;
    while (at < end) {
        if (strchr("[](), ", *at)) {
            at++;
            continue;
        }
        char *next;
        long long size = strtoll(at, &next, 10);
        if (next == at || size < 0 || size > INT32_MAX || out->tensor.ndim == TAP_MAX_NDIM)
            return false;
        out->shape[out->tensor.ndim++] = size;
        *count *= size;
        if (*count > INT32_MAX) /* more than any text could hold */
            return false;
        at = next;
    }
    return true;
}

/* Whole numbers exactly, the rest as float64. */
static bool parse_values(const char *at, const char *end, bool whole, void *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        while (at < end && strchr("[], \t\r\n", *at))
            at++;
        char *next;
        int64_t number = 0;
        double real = 0;
        if (at >= end)
            return false;
        if (strncmp(at, "True", 4) == 0 || strncmp(at, "False", 5) == 0) {
            number = *at == 'T';
            real = (double)number;
            next = (char *)at + (*at == 'T' ? 4 : 5);
        } else if (whole) {
            number = *at == '-' ? strtoll(at, &next, 10) : (int64_t)strtoull(at, &next, 10);
        } else {
            real = strtod(at, &next);
        }
        if (next == at || next > end)
            return false;
        memcpy((char *)values + i * 8, whole ? (void *)&number : (void *)&real, 8);
        at = next;
    }
    while (at < end && strchr("[], \t\r\n", *at))
        at++;
    return at == end;
}

/* The low bytes of each int64, which is what a narrower integer is. */
static void narrow(uint8_t *dst, const int64_t *src, int64_t count, size_t bytes)
{
    for (int64_t i = 0; i < count; i++)
        memcpy(dst + (size_t)i * bytes, &src[i], bytes); /* little-endian: as all machines we build for */
}

static bool fill_tensor(text_tensor *out, const char *values, const char *end, int64_t count)
{
    const tap_dtype_info *info = tap_dtype_describe(out->tensor.dtype);
    bool whole = info->kind == 'I' || info->kind == 'U' || info->kind == 'B';
    if (info->kind == 'C')
        return false;
    void *wide = get_memory(NULL, (size_t)count * 8);
    out->bytes = get_memory(NULL, (size_t)count * 8);
    bool good = parse_values(values, end, whole, wide, count);
    if (good && whole) {
        narrow(out->bytes, wide, count, info->bytes);
    } else if (good) {
        tap_tensor from = {wide, TAP_F64, 1, &count, NULL};
        good = tap_tensor_convert(&from, out->tensor.dtype, out->bytes, NULL) == TAP_OK;
    }
    free(wide);
    out->tensor.data = out->bytes;
    return good;
}

/* Does the text hold a tensor? *readable: and could it be read? out->bytes is to be freed in any case. */
static bool text_tensor_find(const char *text, text_tensor *out, bool *readable)
{
    static const char SHAPE[] = "Tensor(shape=", DTYPE[] = ", dtype=", VALUE[] = ", value=";
    *out = (text_tensor){.bytes = NULL};
    *readable = false;
    const char *shape = strstr(text, SHAPE);
    const char *dtype = shape ? strstr(shape, DTYPE) : NULL, *value = dtype ? strstr(dtype, VALUE) : NULL;
    const char *end = value ? strchr(value, ')') : NULL;
    if (!end)
        return false;
    char *type = copy_text(dtype + strlen(DTYPE), (size_t)(value - dtype) - strlen(DTYPE));
    int64_t count;
    out->tensor.dtype = tap_dtype_find(type);
    free(type);
    bool sized = parse_shape(out, shape + strlen(SHAPE), dtype, &count);
    out->tensor.shape = out->shape;
    *readable = sized && out->tensor.dtype != TAP_DTYPE_NONE && fill_tensor(out, value + strlen(VALUE), end, count);
    return true;
}

/* -------------------------------------------------------------------------------------------------------- writing */

/* The type an npy file holds it as. */
static const char *npy_dtype_name(tap_dtype dtype)
{
    const tap_dtype_info *info = tap_dtype_describe(dtype);
    if (!info)
        return "unknown";
    return info->numpy ? info->name : info->kind == 'C' ? "complex64" : "float32";
}

static void report(const conversion *all, const char *path, const char *name, const tap_tensor *tensor)
{
    char shape[24 * TAP_MAX_NDIM];
    const tap_dtype_info *dtype = tap_dtype_describe(tensor->dtype);
    if (!all->args->json) {
        shape_text(shape, sizeof shape, tensor->shape, tensor->ndim);
        printf("%s  %s %s\n", text_shown(path), dtype->name, shape);
        return;
    }
    jsonout json = {0};
    json_open(&json, NULL, '{');
    json_text(&json, "written", path);
    json_text(&json, "name", name);
    json_text(&json, "dtype", dtype->name);
    shape_json(&json, "shape", tensor->shape, tensor->ndim);
    json_end(&json);
}

static int write_tensor(conversion *all, const char *name, long number, const tap_tensor *tensor)
{
    char part[64];
    struct stat st;
    tap_error err = {0};
    filename path = {0}, last = {0};
    filename_add_escaped(&last, *name ? name : "_");
    filename_shorten(&last, 200);
    filename_add(&path, all->args->argument[1]);
    filename_add(&path, "/");
    filename_add(&path, last.text);
    snprintf(part, sizeof part, "_%s_%ld.npy", npy_dtype_name(tensor->dtype), number);
    filename_add(&path, part);
    int status = EXIT_FINE;
    if (!all->args->value[OPT_FORCE] && lstat(path.text, &st) == 0)
        status = trouble(all->args, "%s is already there; choose another place, or --force to replace it",
                         text_shown(path.text));
    else if (tap_file_write(path.text, "npy", tensor, NULL, 1, true, &err) != TAP_OK)
        status = trouble_error(all->args, &err);
    else
        report(all, path.text, name, tensor);
    all->written += !status;
    free(path.text);
    free(last.text);
    return status;
}

/* A tensor: it takes the name that waits for it, or has none. */
static int take_tensor(conversion *all, const tap_tensor *tensor)
{
    if (all->name) {
        int status = write_tensor(all, all->name, all->named - 1, tensor);
        free(all->name);
        all->name = NULL;
        return status;
    }
    if (all->args->value[OPT_ALL])
        return write_tensor(all, "unnamed", all->unnamed++, tensor);
    all->skipped++;
    return EXIT_FINE;
}

static void name_unused(conversion *all)
{
    if (!all->name)
        return;
    trouble(all->args, "%s: no tensor follows its name", text_shown(all->name));
    all->unreadable++;
    free(all->name);
    all->name = NULL;
}

static int take_text(conversion *all, const char *text)
{
    text_tensor found;
    bool readable;
    if (strncmp(text, MARK, strlen(MARK)) == 0) {
        const char *name = text + strlen(MARK);
        name_unused(all);
        all->name = copy_text(name, strcspn(name, "\r\n"));
        all->named++;
    }
    int status = EXIT_FINE;
    if (text_tensor_find(text, &found, &readable)) {
        if (readable) {
            status = take_tensor(all, &found.tensor);
        } else {
            trouble(all->args, "%s: the tensor in its text cannot be read; its values may have been cut by the printer",
                    text_shown(all->name ? all->name : "-"));
            all->unreadable++;
            free(all->name);
            all->name = NULL;
        }
    }
    free(found.bytes);
    return status;
}

static int convert_file(conversion *all, tap_file *file)
{
    int status = EXIT_FINE;
    for (size_t i = 0; i < tap_file_count(file) && !status; i++) {
        tap_file_entry entry;
        tap_file_entry_init(&entry);
        tap_error err = {0};
        if (tap_file_get(file, i, &entry, &err) != TAP_OK)
            return trouble_error(all->args, &err);
        if (entry.value_type == TAP_VALUE_STR)
            status = take_text(all, entry.text);
        else if (entry.value_type == TAP_VALUE_TENSOR)
            status = take_tensor(all, &entry.tensor);
    }
    if (!status)
        name_unused(all);
    free(all->name);
    return status;
}

int cmd_convert(const cli *args)
{
    conversion all = {.args = args};
    tap_file *file;
    tap_error err = {0};
    if (tap_file_open(args->argument[0], &file, &err) != TAP_OK)
        return trouble_error(args, &err);
    int status;
    if (strcmp(tap_file_format(file), "print") != 0)
        status = trouble(args, "%s is a file of format %s, not a MindSpore print file; tensortap show %s prints it",
                         text_shown(args->argument[0]), tap_file_format(file), text_shown(args->argument[0]));
    else
        status = convert_file(&all, file);
    tap_file_close(file);
    if (status)
        return status;
    char count[TEXT_MAX];
    counted_text(count, all.written, N_("%llu file"), N_("%llu files"));
    if (!args->json)
        say(stdout, "wrote %s to %s\n", count, text_shown(args->argument[1]));
    if (all.skipped)
        say(stderr, "%llu left out: tensors without a name; --all writes them too\n",
            (unsigned long long)all.skipped);
    return all.written == 0 || all.unreadable ? EXIT_DIFFERENT : EXIT_FINE;
}
