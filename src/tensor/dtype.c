/* dtype.c - the table of element types as data: tensortap.h holds the rows. */
#include "tensortap/tensortap.h"

#include <string.h>

#define X(id, value, bytes, kind, name, numpy, torch, storage, safetensors, mindspore, code, bits)                   \
    [value] = {TAP_##id, bytes, (bits) == 4 ? 2 : 1, #kind[0], name, numpy, torch, storage, safetensors, mindspore,  \
               code, bits},
static const tap_dtype_info ROWS[TAP_DTYPE_END] = {TAP_DTYPE_MAP(X)};
#undef X

const tap_dtype_info *tap_dtype_describe(tap_dtype dtype)
{
    return dtype > TAP_DTYPE_NONE && dtype < TAP_DTYPE_END ? &ROWS[dtype] : NULL;
}

static bool equal(const char *a, const char *b)
{
    return a && strcmp(a, b) == 0;
}

tap_dtype tap_dtype_find(const char *name)
{
    if (!name)
        return TAP_DTYPE_NONE;
    if (strncmp(name, "torch.", 6) == 0)
        name += 6;
    for (int i = 1; i < TAP_DTYPE_END; i++) {
        const tap_dtype_info *row = &ROWS[i];
        if (equal(row->name, name) || equal(row->numpy, name) || equal(row->torch, name) ||
            equal(row->torch_storage, name) || equal(row->safetensors, name) || equal(row->mindspore, name))
            return row->dtype;
    }
    return TAP_DTYPE_NONE;
}

tap_dtype tap_dtype_from_dlpack(uint8_t code, uint8_t bits, uint16_t lanes)
{
    for (int i = 1; i < TAP_DTYPE_END; i++)
        if (ROWS[i].dlpack_code == code && ROWS[i].dlpack_bits == bits && ROWS[i].values == lanes)
            return ROWS[i].dtype;
    return TAP_DTYPE_NONE;
}
