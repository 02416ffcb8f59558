/* file_oracle.h - what must hold for every file a reader accepts. Shared by the format targets. */
#ifndef TAP_FUZZ_FILE_ORACLE_H
#define TAP_FUZZ_FILE_ORACLE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/format.h"

#define ORACLE(holds)                                                                                                \
    do {                                                                                                             \
        if (!(holds)) {                                                                                              \
            fprintf(stderr, "oracle: %s, line %d\n", #holds, __LINE__);                                              \
            abort();                                                                                                 \
        }                                                                                                            \
    } while (0)

static volatile unsigned char oracle_sink;

/* The address sanitizer sees a byte outside of the input or a copy. */
static inline void oracle_touch(const tap_tensor *tensor)
{
    int64_t count = tap_tensor_count(tensor), first = 0, last = 0;
    ORACLE(count >= 0 && tensor->ndim >= 0 && tensor->ndim <= TAP_MAX_NDIM);
    if (count == 0)
        return;
    size_t bytes = tap_dtype_describe(tensor->dtype)->bytes;
    for (int i = 0; i < tensor->ndim && tensor->strides; i++) {
        int64_t reach = (tensor->shape[i] - 1) * tensor->strides[i];
        *(reach < 0 ? &first : &last) += reach;
    }
    if (!tensor->strides)
        last = count - 1;
    const unsigned char *data = tensor->data;
    oracle_sink = data[first * (int64_t)bytes];
    oracle_sink = data[last * (int64_t)bytes + (int64_t)bytes - 1];
    if (count <= 4096) { /* every byte, through the library's own walk */
        void *copy = malloc((size_t)count * bytes);
        tap_error err;
        ORACLE(tap_tensor_scan(tensor, TAP_SCAN_HASH, copy, NULL, &(uint64_t){0}, &err) == TAP_OK);
        free(copy);
    }
}

/* A failure says why; a success can be read to its last byte, twice with the same result. */
static inline void oracle_file(const uint8_t *bytes, size_t len, const tap_format *format)
{
    tap_file *file;
    tap_error err = {.status = TAP_OK};
    tap_status status = tap__file_open_memory(bytes, len, "fuzzed", format, &file, &err);
    if (status != TAP_OK) {
        ORACLE(!file && err.status == status && err.message[0] && strlen(err.message) < sizeof err.message);
        return;
    }
    for (size_t i = 0; i < tap_file_count(file); i++) {
        tap_file_entry entry, again;
        tap_file_entry_init(&entry);
        tap_file_entry_init(&again);
        status = tap_file_get(file, i, &entry, &err);
        if (status == TAP_E_LIMIT) /* many copies of one unaligned storage */
            continue;
        ORACLE(status == TAP_OK && entry.name && entry.text);
        oracle_sink = (unsigned char)(strlen(entry.name) + strlen(entry.text));
        if (entry.value_type == TAP_VALUE_TENSOR)
            oracle_touch(&entry.tensor);
        ORACLE(tap_file_get(file, i, &again, &err) == TAP_OK && again.tensor.ndim == entry.tensor.ndim);
        ORACLE(entry.value_type != TAP_VALUE_TENSOR || tap_tensor_count(&entry.tensor) == 0 || format->unaligned ||
               again.tensor.data == entry.tensor.data);
    }
    tap_file_entry none;
    tap_file_entry_init(&none);
    ORACLE(tap_file_get(file, tap_file_count(file), &none, &err) == TAP_E_NOTFOUND);
    tap_file_close(file);
}

#endif
