/* pickle.h - reads the pickles torch.save writes, and nothing else: tensors, parameters, lists, tuples, dicts, numbers,
 * strings, None, bool, sizes, dtypes and devices. Nothing is ever called: each global that may appear is a row of a
 * table, every other is refused by name. */
#ifndef TAP_FORMAT_PICKLE_H
#define TAP_FORMAT_PICKLE_H

#include "base/arena.h"

typedef enum tap_pickle_kind {
    TAP_PICKLE_NONE,
    TAP_PICKLE_BOOL,    /* integer */
    TAP_PICKLE_INT,     /* integer */
    TAP_PICKLE_FLOAT,   /* number; an int beyond 64 bits too, rounded */
    TAP_PICKLE_COMPLEX, /* number, imag */
    TAP_PICKLE_STR,     /* text, len */
    TAP_PICKLE_LIST,    /* items, len */
    TAP_PICKLE_TUPLE,
    TAP_PICKLE_DICT,    /* items: key, value, key, value; len counts both */
    TAP_PICKLE_DTYPE,   /* dtype */
    TAP_PICKLE_TENSOR,  /* items: storage, size, stride; integer: offset in elements; dtype */
    TAP_PICKLE_META,    /* items: none, size, stride; dtype */
    TAP_PICKLE_STORAGE, /* text: key; integer: elements (bytes when dtype is none) */
    TAP_PICKLE_STORAGE_TYPE,
    TAP_PICKLE_GLOBAL,
    TAP_PICKLE_MARK
} tap_pickle_kind;

/* Lives in the arena; text points into the pickle. The same node may be reached twice, a list may hold itself. */
typedef struct tap_pickle_node {
    uint8_t kind, dtype;
    union {
        int64_t integer;
        double number;
    };
    union {
        size_t len;
        double imag;
    };
    union {
        const char *text;
        struct tap_pickle_node **items;
        const struct tap_pickle_global *global;
    };
} tap_pickle_node;

/* path is used in messages. */
tap_status tap__pickle_read(const uint8_t *bytes, size_t len, const char *path, tap_arena *arena,
                            tap_pickle_node **out, tap_error *err);

#endif
