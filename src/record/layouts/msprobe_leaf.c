/* msprobe_leaf.c - one saved leaf as msprobe's debug.json shows it: key order, number formats and which statistics are
 * null, as mindstudio-probe 26.1 and later. */
#include "record/layouts/checksum.h"
#include "record/layouts/msprobe.h"

#include "base/memory.h"
#include "base/io.h"
#include "base/status.h"
#include "format/format.h"

#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ----------------------------------------------------------------------------------------------------- statistics */

typedef enum stat_shape { STAT_NULL, STAT_BOOL, STAT_INT, STAT_UINT, STAT_FLOAT } stat_shape;

typedef struct stat {
    stat_shape shape;
    double f;
    int64_t i;
    uint64_t u;
} stat;

typedef struct stats {
    stat max, min, mean, norm;
} stats;

/* As torch rounds a result: to float32 first, then to the tensor's own type. */
static double round_to(tap_dtype dtype, double value)
{
    if (dtype == TAP_F64 || dtype == TAP_C128)
        return value;
    float single = (float)value;
    if (dtype != TAP_F16 && dtype != TAP_BF16)
        return (double)single;
    uint16_t half;
    float back = 0;
    tap_tensor from = {.data = &single, .dtype = TAP_F32}, to = {.data = &half, .dtype = dtype};
    if (tap_tensor_convert(&from, dtype, &half, NULL) != TAP_OK ||
        tap_tensor_convert(&to, TAP_F32, &back, NULL) != TAP_OK)
        return (double)single;
    return (double)back;
}

static stat stat_float(tap_dtype dtype, double value)
{
    return (stat){.shape = STAT_FLOAT, .f = round_to(dtype, value)};
}

/* min or max in the tensor's own kind of number; a NaN anywhere makes both NaN. */
static stat stat_extreme(const tap_dtype_info *info, const tap_entry *entry, tap_number number)
{
    switch (info->kind) {
    case 'B':
        return (stat){.shape = STAT_BOOL, .u = number.u};
    case 'U':
        return (stat){.shape = STAT_UINT, .u = number.u};
    case 'I':
        return (stat){.shape = STAT_INT, .i = number.i};
    default:
        return stat_float(info->dtype, entry->nan ? (double)NAN : number.f);
    }
}

static tap_stats entry_stats(const tap_entry *entry)
{
    return (tap_stats){entry->count, entry->nan, entry->pos_inf, entry->neg_inf, entry->zero,
                       entry->min, entry->max, entry->mean, entry->norm};
}

static bool has_statistics(const tap_entry *entry, const tap_dtype_info *info)
{
    return info && (entry->has & TAP_HAS_STATS) && entry->count && entry->value_type == TAP_VALUE_TENSOR &&
           (info->kind != 'F' || info->bytes > 1);
}

static stats stats_torch(const tap_entry *entry, const tap_dtype_info *info)
{
    stats s = {.max = {.shape = STAT_NULL}};
    if (!has_statistics(entry, info))
        return s;
    tap_stats all = entry_stats(entry);
    s.max = stat_extreme(info, entry, entry->max);
    s.min = stat_extreme(info, entry, entry->min);
    if (info->kind == 'C') {
        s.mean = stat_float(info->dtype, tap_stats_ieee_mean(&all));
    } else if (entry->ndim == 0 && info->kind != 'B') {
        s.mean = s.norm = s.max; /* the value itself, four times */
    } else if (info->kind == 'F' && info->dtype != TAP_F64) {
        s.mean = stat_float(info->dtype, tap_stats_ieee_mean(&all));
        s.norm = stat_float(info->dtype, tap_stats_ieee_norm(&all));
    }
    return s;
}

static double number_as_float(const tap_dtype_info *info, tap_number number)
{
    return info->kind == 'I' ? (double)number.i : info->kind == 'U' ? (double)number.u : number.f;
}

/* MindSpore's half of msprobe: integers and float64 are float32 first, complex numbers have a norm. */
static stats stats_mindspore(const tap_entry *entry, const tap_dtype_info *info)
{
    stats s = {.max = {.shape = STAT_NULL}};
    bool fp8 = info && info->kind == 'F' && info->bytes == 1; /* cast to float32 before anything else */
    if (!fp8 && !has_statistics(entry, info))
        return s;
    if (!(entry->has & TAP_HAS_STATS) || !entry->count || entry->value_type != TAP_VALUE_TENSOR)
        return s;
    if (info->kind == 'B' || (entry->ndim == 0 && info->kind != 'C')) {
        s.max = stat_extreme(info, entry, entry->max);
        s.min = stat_extreme(info, entry, entry->min);
        if (info->kind != 'B')
            s.mean = s.norm = s.max;
        return s;
    }
    tap_dtype dtype = info->kind == 'F' && !fp8 && info->dtype != TAP_F64 ? info->dtype : TAP_F32;
    if (info->dtype == TAP_C128)
        dtype = TAP_F64;
    tap_stats all = entry_stats(entry);
    double nan = (double)NAN;
    s.max = stat_float(dtype, entry->nan ? nan : number_as_float(info, entry->max));
    s.min = stat_float(dtype, entry->nan ? nan : number_as_float(info, entry->min));
    s.mean = stat_float(dtype, tap_stats_ieee_mean(&all));
    s.norm = stat_float(dtype, tap_stats_ieee_norm(&all));
    return s;
}

static void write_stat(tap_json *json, const char *key, stat value)
{
    tap__json_key(json, key);
    switch (value.shape) {
    case STAT_NULL:
        tap__json_null(json);
        break;
    case STAT_BOOL:
        tap__json_bool(json, value.u != 0);
        break;
    case STAT_INT:
        tap__json_int(json, value.i);
        break;
    case STAT_UINT:
        tap__json_uint(json, value.u);
        break;
    case STAT_FLOAT:
        tap__json_float(json, value.f);
        break;
    }
}

/* ------------------------------------------------------------------------------------------------------- checksum */

/* Of the file's bytes, where the payload did not come through the ring. */
static bool sum_of_file(const tap_layout_options *options, const tap_meta *meta, uint64_t *sum)
{
    char *relative = tap__strndup(meta->text[TAP_META_FILE], meta->len[TAP_META_FILE]);
    tap_file *file = NULL;
    tap_file_entry entry;
    tap_file_entry_init(&entry);
    bool ok = relative && tap__file_open_below(options->dir, relative, &file, NULL) == TAP_OK &&
              tap_file_get(file, 0, &entry, NULL) == TAP_OK;
    int64_t bytes = ok ? tap_tensor_bytes(&entry.tensor) : -1;
    ok = ok && bytes >= 0 && tap_tensor_is_contiguous(&entry.tensor);
    if (ok)
        *sum = tap__checksum_add(options->checksum, 0, entry.tensor.data, (size_t)bytes);
    if (file)
        tap_file_close(file);
    tap__free(relative);
    return ok;
}

/* MindSpore widens what numpy lacks before it looks at the bytes. */
static bool sum_of_payload(const tap_layout_options *options, const tap_entry *entry, const tap_meta *meta,
                           const void *payload, uint64_t *sum)
{
    tap_dtype dtype = (tap_dtype)entry->dtype, wide = tap__npy_dtype(dtype);
    if (!tap__msprobe_is_mindspore(options) || wide == dtype) {
        *sum = tap__checksum_add(options->checksum, 0, payload, entry->payload_bytes);
        return true;
    }
    tap_tensor tensor = {.data = (void *)(uintptr_t)payload, .dtype = dtype, .ndim = meta->ndim, .shape = meta->shape};
    tap_tensor widened = {.dtype = wide, .ndim = meta->ndim, .shape = meta->shape};
    int64_t bytes = tap_tensor_bytes(&widened);
    void *copy = bytes > 0 && tap_tensor_bytes(&tensor) == (int64_t)entry->payload_bytes ? tap__alloc((size_t)bytes)
                                                                                          : NULL;
    bool ok = copy && tap_tensor_convert(&tensor, wide, copy, NULL) == TAP_OK;
    if (ok)
        *sum = tap__checksum_add(options->checksum, 0, copy, (size_t)bytes);
    tap__free(copy);
    return ok;
}

static void write_checksum(tap_json *json, const tap_layout_options *options, const tap_entry *entry,
                           const tap_meta *meta, const void *payload)
{
    uint64_t sum = 0;
    bool ok = false;
    if (entry->value_type != TAP_VALUE_META) {
        tap_tensor tensor = {.dtype = (tap_dtype)entry->dtype, .ndim = meta->ndim, .shape = meta->shape};
        if (payload && entry->payload_bytes)
            ok = sum_of_payload(options, entry, meta, payload, &sum);
        else if (entry->has & TAP_HAS_CRC && !tap__msprobe_is_mindspore(options)) /* too large for the ring */
            ok = true, sum = entry->crc;
        else if (meta->text[TAP_META_FILE])
            ok = sum_of_file(options, meta, &sum);
        else
            ok = tap_tensor_count(&tensor) == 0;
    }
    char text[24];
    tap__checksum_show(options->checksum, sum, text);
    tap__json_key(json, "md5");
    if (ok)
        tap__json_str(json, text);
    else
        tap__json_null(json);
}

/* --------------------------------------------------------------------------------------------------------- leaves */

static void write_type(tap_json *json, const tap_meta *meta, const char *usual)
{
    tap__json_key(json, "type");
    if (meta->text[TAP_META_TYPE_NAME] && meta->len[TAP_META_TYPE_NAME])
        tap__json_strn(json, meta->text[TAP_META_TYPE_NAME], meta->len[TAP_META_TYPE_NAME]);
    else
        tap__json_str(json, usual);
}

/* JSON that came as text, written again with this file's indentation. */
static void write_json(tap_json *json, json_object *value, int depth)
{
    switch (depth > 16 ? json_type_null : json_object_get_type(value)) {
    case json_type_object:
        tap__json_open(json, '{');
        json_object_object_foreach(value, key, item)
        {
            tap__json_key(json, key);
            write_json(json, item, depth + 1);
        }
        tap__json_close(json, '}');
        break;
    case json_type_array:
        tap__json_open(json, '[');
        for (size_t i = 0; i < json_object_array_length(value); i++)
            write_json(json, json_object_array_get_idx(value, i), depth + 1);
        tap__json_close(json, ']');
        break;
    case json_type_int:
        tap__json_int(json, json_object_get_int64(value));
        break;
    case json_type_double:
        tap__json_float(json, json_object_get_double(value));
        break;
    case json_type_boolean:
        tap__json_bool(json, json_object_get_boolean(value));
        break;
    case json_type_string:
        tap__json_strn(json, json_object_get_string(value), (size_t)json_object_get_string_len(value));
        break;
    default:
        tap__json_null(json);
        break;
    }
}

/* NULL when it is not JSON. */
static json_object *parse_json(const char *text, size_t len)
{
    if (len > 1u << 20)
        return NULL;
    json_tokener *tokener = json_tokener_new_ex(16);
    json_object *value = tokener ? json_tokener_parse_ex(tokener, text, (int)len) : NULL;
    if (tokener)
        json_tokener_free(tokener);
    return value;
}

/* PLACEMENTS is an object whose members are added ({"device_mesh": [0, 1], "placements": [...]}), or plain text. */
static void write_placements(tap_json *json, const tap_meta *meta)
{
    const char *text = meta->text[TAP_META_PLACEMENTS];
    size_t len = meta->len[TAP_META_PLACEMENTS];
    if (!text || !len)
        return;
    json_object *value = text[0] == '{' ? parse_json(text, len) : NULL;
    if (json_object_is_type(value, json_type_object)) {
        json_object_object_foreach(value, key, item)
        {
            tap__json_key(json, key);
            write_json(json, item, 0);
        }
    } else {
        tap__json_key(json, "placements");
        tap__json_strn(json, text, len);
    }
    json_object_put(value);
}

static void write_tensor(tap_json *json, const tap_layout_options *options, const tap_entry *entry,
                         const tap_meta *meta, const void *payload)
{
    bool mindspore = tap__msprobe_is_mindspore(options);
    const tap_dtype_info *info = tap_dtype_describe((tap_dtype)entry->dtype);
    const char *dtype = !info ? "unknown" : mindspore && info->mindspore ? info->mindspore : info->torch;
    char text[64];
    snprintf(text, sizeof text, "%s%s", mindspore ? "" : "torch.", dtype);
    tap__json_open(json, '{');
    write_type(json, meta, mindspore ? "mindspore.Tensor" : "torch.Tensor");
    tap__json_key(json, "dtype");
    tap__json_str(json, text);
    tap__json_key(json, "shape");
    tap__json_open(json, '[');
    for (int32_t i = 0; i < meta->ndim; i++)
        tap__json_int(json, meta->shape[i]);
    tap__json_close(json, ']');
    if (options->checksum == TAP_CHECKSUM_XOR) {
        write_checksum(json, options, entry, meta, payload);
    } else {
        stats s = mindspore ? stats_mindspore(entry, info) : stats_torch(entry, info);
        write_stat(json, "Max", s.max);
        write_stat(json, "Min", s.min);
        write_stat(json, "Mean", s.mean);
        write_stat(json, "Norm", s.norm);
    }
    if (!mindspore) {
        tap__json_key(json, "requires_grad");
        tap__json_bool(json, entry->flags & TAP_SAVE_REQUIRES_GRAD);
    }
    write_placements(json, meta);
    if (meta->text[TAP_META_FILE] && entry->state != TAP_RECORD_STATS_ONLY) { /* else it could not be written */
        const char *file = meta->text[TAP_META_FILE], *end = file + meta->len[TAP_META_FILE], *base = end;
        while (base > file && base[-1] != '/')
            base--;
        tap__json_key(json, "data_name");
        tap__json_strn(json, base, (size_t)(end - base));
    }
    if (options->checksum == TAP_CHECKSUM_CRC32)
        write_checksum(json, options, entry, meta, payload);
    tap__json_close(json, '}');
}

/* The value of a number leaf: its payload, or the statistics of a recording that keeps no bytes. */
static void write_number(tap_json *json, const tap_entry *entry, const void *payload)
{
    tap_number number = entry->min;
    if (payload && entry->value_type == TAP_VALUE_BOOL && entry->payload_bytes >= 1)
        number.u = *(const unsigned char *)payload;
    else if (payload && entry->payload_bytes >= 8)
        memcpy(&number, payload, 8);
    if (entry->value_type == TAP_VALUE_BOOL)
        tap__json_bool(json, number.u != 0);
    else if (entry->value_type == TAP_VALUE_INT)
        tap__json_int(json, number.i);
    else
        tap__json_float(json, number.f);
}

/* Python's str(complex) between the two parts JSON lacks. */
static void write_complex(tap_json *json, const tap_entry *entry, const void *payload)
{
    double parts[2] = {entry->min.f, 0};
    if (payload && entry->payload_bytes >= 16)
        memcpy(parts, payload, 16);
    tap__json_open(json, '[');
    tap__json_float(json, parts[0]);
    tap__json_float(json, parts[1]);
    tap__json_close(json, ']');
}

/* A shape or a slice as an array, an integer beyond int64 by its digits. false: it is neither. */
static bool write_numbers(tap_json *json, const char *text, size_t len)
{
    if (len && text[0] == '[') {
        json_object *value = parse_json(text, len);
        if (!json_object_is_type(value, json_type_array)) {
            json_object_put(value);
            return false;
        }
        write_json(json, value, 0);
        json_object_put(value);
        return true;
    }
    size_t digits = len && text[0] == '-';
    for (size_t i = digits; i < len; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    if (len == digits)
        return false;
    tap__json_raw(json, text, len);
    return true;
}

static bool type_is(const tap_meta *meta, const char *name)
{
    size_t len = strlen(name);
    return meta->text[TAP_META_TYPE_NAME] && meta->len[TAP_META_TYPE_NAME] == len &&
           memcmp(meta->text[TAP_META_TYPE_NAME], name, len) == 0;
}

static void write_text(tap_json *json, const tap_entry *entry, const tap_meta *meta, const void *payload)
{
    size_t len = payload ? entry->payload_bytes : 0;
    const char *text = len ? payload : "";
    bool numbers = type_is(meta, "int") || type_is(meta, "torch.Size") || type_is(meta, "slice");
    if (!numbers || !write_numbers(json, text, len))
        tap__json_strn(json, text, len);
}

static void write_scalar(tap_json *json, const tap_entry *entry, const tap_meta *meta, const void *payload)
{
    static const char *const USUAL[] = {
        [TAP_VALUE_BOOL] = "bool", [TAP_VALUE_INT] = "int", [TAP_VALUE_FLOAT] = "float",
        [TAP_VALUE_COMPLEX] = "complex", [TAP_VALUE_STR] = "str", [TAP_VALUE_BYTES] = "bytes",
    };
    tap__json_open(json, '{');
    write_type(json, meta, USUAL[entry->value_type]);
    tap__json_key(json, "value");
    if (entry->value_type == TAP_VALUE_COMPLEX)
        write_complex(json, entry, payload);
    else if (entry->value_type == TAP_VALUE_STR || entry->value_type == TAP_VALUE_BYTES)
        write_text(json, entry, meta, payload);
    else
        write_number(json, entry, payload);
    tap__json_close(json, '}');
}

tap_status tap__msprobe_leaf(const tap_layout_options *options, const tap_entry *entry, const tap_meta *meta,
                             const void *payload, int depth, tap_strbuf *out, tap_error *err)
{
    tap_json json;
    tap__json_begin(&json, out, 1);
    json.depth = depth;
    json.after_key = true; /* no comma or line break before it: its place is the caller's */
    switch ((tap_value_type)entry->value_type) {
    case TAP_VALUE_TENSOR:
    case TAP_VALUE_META:
        write_tensor(&json, options, entry, meta, payload);
        break;
    case TAP_VALUE_BOOL:
    case TAP_VALUE_INT:
    case TAP_VALUE_FLOAT:
    case TAP_VALUE_COMPLEX:
    case TAP_VALUE_STR:
    case TAP_VALUE_BYTES:
        write_scalar(&json, entry, meta, payload);
        break;
    default:
        tap__json_null(&json);
        break;
    }
    return out->failed ? tap_fail_nomem(err) : TAP_OK;
}
