/* getext.c - tensors that MindSpore's graph engine printed as text. */
#include "format/printfile.h"

#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

enum { TOKEN_MAX = 64 };

static const char *find(const char *at, const char *end, const char *what)
{
    return at && at <= end ? memmem(at, (size_t)(end - at), what, strlen(what)) : NULL;
}

bool tap__getext_find(const char *text, size_t len, tap_getext *out)
{
    static const char HEAD[] = "Tensor(shape=", DTYPE[] = ", dtype=", VALUE[] = ", value=";
    const char *end = text + len;
    out->begin = find(text, end, HEAD);
    out->shape = out->begin ? out->begin + strlen(HEAD) : NULL;
    out->shape_end = find(out->shape, end, DTYPE);
    out->dtype = out->shape_end ? out->shape_end + strlen(DTYPE) : NULL;
    out->dtype_end = find(out->dtype, end, VALUE);
    out->value = out->dtype_end ? out->dtype_end + strlen(VALUE) : NULL;
    out->value_end = find(out->value, end, ")");
    out->end = out->value_end ? out->value_end + 1 : NULL;
    return out->end != NULL;
}

/* The next word between blanks, commas and brackets; 0: no more, -1: too long to be a number. */
static int next_token(const char **at, const char *end, char *token)
{
    static const char BETWEEN[] = " \t\r\n,[]";
    while (*at < end && **at && strchr(BETWEEN, **at))
        ++*at;
    int len = 0;
    while (*at < end && !(**at && strchr(BETWEEN, **at))) {
        if (len == TOKEN_MAX - 1)
            return -1;
        token[len++] = *(*at)++;
    }
    token[len] = 0;
    return len;
}

static bool read_signed(const char *token, int64_t min, int64_t max, int64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoll(token, &end, 10);
    return end != token && !*end && !errno && *out >= min && *out <= max;
}

static bool read_unsigned(const char *token, uint64_t max, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(token, &end, 10);
    return end != token && !*end && !errno && *token != '-' && *out <= max;
}

static int read_shape(const tap_getext *text, int64_t *shape)
{
    char token[TOKEN_MAX];
    const char *at = text->shape;
    int ndim = 0, len;
    while ((len = next_token(&at, text->shape_end, token)) > 0)
        if (ndim == TAP_MAX_NDIM || !read_signed(token, 0, INT64_MAX, &shape[ndim++]))
            return -1;
    return len < 0 ? -1 : ndim;
}

static tap_dtype read_dtype(const tap_getext *text)
{
    size_t len = (size_t)(text->dtype_end - text->dtype);
    for (int i = 1; i < TAP_DTYPE_END; i++) {
        const tap_dtype_info *row = tap_dtype_describe((tap_dtype)i);
        if (row->kind != 'C' && row->mindspore && strlen(row->mindspore) == len &&
            memcmp(row->mindspore, text->dtype, len) == 0)
            return row->dtype;
    }
    return TAP_DTYPE_NONE;
}

/* One integer or bool of info's type at dst; little-endian machines only, as everywhere. */
static bool store_integer(const char *token, const tap_dtype_info *info, void *dst)
{
    int bits = info->bytes * 8;
    if (info->kind == 'I') {
        int64_t max = INT64_MAX >> (64 - bits), value;
        if (!read_signed(token, -max - 1, max, &value))
            return false;
        memcpy(dst, &value, info->bytes);
        return true;
    }
    uint64_t value;
    if (info->kind == 'B' && (strcmp(token, "True") == 0 || strcmp(token, "False") == 0))
        value = token[0] == 'T';
    else if (!read_unsigned(token, info->kind == 'B' ? 1 : UINT64_MAX >> (64 - bits), &value))
        return false;
    memcpy(dst, &value, info->bytes);
    return true;
}

/* All values, exactly count of them; floats as float64. */
static bool read_values(const tap_getext *text, const tap_dtype_info *info, int64_t count, locale_t plain, char *dst)
{
    char token[TOKEN_MAX];
    const char *at = text->value;
    for (int64_t i = 0; i < count; i++) {
        if (next_token(&at, text->value_end, token) <= 0)
            return false;
        if (info->kind == 'F') {
            char *end;
            double number = strtod_l(token, &end, plain);
            if (end == token || *end)
                return false;
            memcpy(dst + i * 8, &number, 8);
        } else if (!store_integer(token, info, dst + i * info->bytes)) {
            return false;
        }
    }
    return next_token(&at, text->value_end, token) == 0;
}

static tap_status read_floats(const tap_getext *text, const tap_tensor *tensor, bool *good, tap_error *err)
{
    int64_t count = tap_tensor_count(tensor);
    double *numbers = tap__alloc((size_t)count * sizeof *numbers);
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    tap_status status = numbers && plain ? TAP_OK : tap_fail_nomem(err);
    *good = status == TAP_OK && read_values(text, tap_dtype_describe(tensor->dtype), count, plain, (char *)numbers);
    if (*good) {
        const tap_tensor wide = {.data = numbers, .dtype = TAP_F64, .ndim = 1, .shape = &count};
        status = tap_tensor_convert(&wide, tensor->dtype, tensor->data, err);
    }
    if (plain)
        freelocale(plain);
    tap__free(numbers);
    return status;
}

tap_status tap__getext_read(tap_file *file, const tap_getext *text, tap_tensor *out, bool *good, tap_error *err)
{
    int64_t shape[TAP_MAX_NDIM];
    *good = false;
    *out = (tap_tensor){.dtype = read_dtype(text), .ndim = read_shape(text, shape), .shape = shape};
    int64_t count = tap_tensor_count(out);
    /* a value has at least one digit and one blank after it: what claims more is no tensor and gets no memory */
    if (count < 0 || count > (text->value_end - text->value + 1) / 2 + 1)
        return TAP_OK;
    void *kept, *data;
    size_t shape_bytes = (size_t)out->ndim * sizeof *shape;
    TAP_TRY(tap__file_alloc(file, shape_bytes, &kept, err));
    TAP_TRY(tap__file_alloc(file, (size_t)tap_tensor_bytes(out), &data, err));
    if (shape_bytes)
        memcpy(kept, shape, shape_bytes);
    out->shape = kept;
    out->data = data;
    const tap_dtype_info *info = tap_dtype_describe(out->dtype);
    if (info->kind == 'F')
        return read_floats(text, out, good, err);
    *good = read_values(text, info, count, (locale_t)0, data);
    return TAP_OK;
}
