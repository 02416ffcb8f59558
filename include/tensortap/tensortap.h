/* tensortap.h - record the tensors of a running model, and read them back.
 *
 * Tensors, recording, reading and tensor files; tensortap_engine.h has graphs and the engine. In one breath:
 *
 *     tap_options opt;
 *     tap_options_init(&opt);
 *     opt.dir = "run";
 *     tap_recorder *rec;
 *     tap_error err;
 *     if (tap_recorder_open(&opt, &rec, &err)) { puts(err.message); return 1; }
 *     float x[3] = {1, 2, 3};
 *     int64_t shape[1] = {3};
 *     tap_tensor t = {.data = x, .dtype = TAP_F32, .ndim = 1, .shape = shape};
 *     tap_save(rec, "x", &t, 0);          // returns when the value is safe from kill -9 of this process
 *     tap_step(rec);
 *     tap_recorder_close(rec, &err);
 *
 *     tap_run *run;                       // any recording: ours or one of the layouts we know
 *     tap_run_open("run", &run, &err);
 *
 * Rules that hold everywhere: the library never aborts, exits or prints. A function that can fail returns
 * tap_status and, where it takes one, fills a tap_error with a message that says what to do. Text for people goes
 * to the log callback. All strings are UTF-8. All functions are thread-safe on one tap_recorder; a tap_run and its
 * cursors belong to one thread at a time.
 *
 * NULL: where a pointer is needed it is TAP_E_INVALID. What closes, frees or releases, and whatever is asked of a
 * recorder (so that a program may have none), does nothing with NULL. A tap_error may always be NULL.
 *
 * Structs that may grow, given or filled, start with their size. Their _init sets it, once before the first use, and
 * the usual values; it is inline, so that it tells the size that the caller was compiled with. A size of 0, or larger
 * than the library knows, is TAP_E_INVALID; of a smaller one the library reads and fills that much. Where the library
 * makes the struct, it sets the size. All other structs stay as they are.
 *
 * Sums of bits are `unsigned`, since C++ does not add enums; their enums are called _bits. */
#ifndef TENSORTAP_TENSORTAP_H
#define TENSORTAP_TENSORTAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TAP_VERSION_MAJOR 0
#define TAP_VERSION_MINOR 1
#define TAP_VERSION_PATCH 0

#if defined(__GNUC__)
#define TAP_API __attribute__((visibility("default")))
#define TAP_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define TAP_API
#define TAP_PRINTF(fmt, args)
#endif

/* The _init of a struct in which zero means "usual", and of one that the library fills. */
#define TAP_INIT(type)                                                                                               \
    static inline void type##_init(type *it)                                                                         \
    {                                                                                                                \
        memset(it, 0, sizeof *it);                                                                                   \
        it->size = sizeof *it;                                                                                       \
    }
/* The _init of one with other usual values, which the library knows. */
#define TAP_INIT_USUAL(type)                                                                                         \
    TAP_API void type##_init_sized(type *it, size_t size);                                                           \
    static inline void type##_init(type *it)                                                                         \
    {                                                                                                                \
        type##_init_sized(it, sizeof *it);                                                                           \
    }

/* "0.1.0" */
TAP_API const char *tap_version(void);

/* ---------------------------------------------------------------------------------------------- status and errors */

/* Every way a call can end. X(name, value, text, hint): values are stable, they appear in files and scripts. */
#define TAP_STATUS_MAP(X)                                                                                            \
    X(OK, 0, "ok", "")                                                                                               \
    X(E_NOMEM, 1, "out of memory", "free memory or make the ring smaller")                                           \
    X(E_IO, 2, "input/output error", "check the path, its permissions and the disk")                                 \
    X(E_NOSPACE, 3, "no space left", "free space or record to another disk")                                         \
    X(E_INVALID, 4, "invalid argument", "see the documentation of the call")                                         \
    X(E_FORMAT, 5, "not a file of this format", "check that the path names the right file")                          \
    X(E_TRUNCATED, 6, "file ends too early", "the writer was killed; run: tensortap verify DIR")                     \
    X(E_CORRUPT, 7, "checksum does not match", "the disk or a later program changed the file")                       \
    X(E_UNSUPPORTED, 8, "not supported", "see the message for what is")                                              \
    X(E_LIMIT, 9, "a safety limit was reached", "the file is damaged or hostile; see the message")                   \
    X(E_EXISTS, 10, "already there", "choose append, replace or another directory")                                  \
    X(E_NOTFOUND, 11, "not found", "run: tensortap ls DIR to see what is there")                                     \
    X(E_BUSY, 12, "in use by another process", "wait for it to end or choose another directory")                     \
    X(E_LOST, 13, "a value was not kept", "run: tensortap verify DIR")                                               \
    X(E_CLOSED, 14, "the recorder is closed", "open it again")                                                       \
    X(E_TIMEOUT, 15, "took too long", "is the disk working? run: tensortap verify DIR")                              \
    X(E_INTERNAL, 16, "internal error", "please report it with the message")                                         \
    X(END, 100, "no more", "")

typedef enum tap_status {
#define X(name, value, text, hint) TAP_##name = value,
    TAP_STATUS_MAP(X)
#undef X
} tap_status;

/* Owned by the caller; never freed. message is complete: what was tried, on what, why not, what to do. */
typedef struct tap_error {
    tap_status status;
    int sys_errno;      /* 0 when no system call failed */
    const char *file;   /* where in the library, for developers */
    int line;
    char message[1000];
} tap_error;

TAP_API const char *tap_status_name(tap_status status); /* "E_IO" */
TAP_API const char *tap_status_text(tap_status status); /* "input/output error", in the current language */
TAP_API const char *tap_status_hint(tap_status status);

/* ---------------------------------------------------------------------------------------- log, memory and language */

typedef enum tap_log_level { TAP_LOG_DEBUG, TAP_LOG_INFO, TAP_LOG_WARNING, TAP_LOG_ERROR } tap_log_level;

/* Called from any thread, never with a lock held that tap_save needs. NULL (the default) discards. */
typedef void (*tap_log_fn)(void *user, tap_log_level level, const char *message);
TAP_API void tap_log_set(tap_log_fn fn, void *user);

/* All memory of the library comes from here. Set before anything else is called; NULL restores malloc and free. */
typedef struct tap_allocator {
    void *(*resize)(void *user, void *old, size_t size); /* realloc's contract; size 0 frees and returns NULL */
    void *user;
} tap_allocator;
TAP_API void tap_allocator_set(const tap_allocator *allocator);

/* "en" or "zh"; NULL: from TENSORTAP_LANG, else LC_ALL, LC_MESSAGES, LANG. */
TAP_API void tap_language_set(const char *language);
/* The text in the current language; text itself where there is no translation. Never freed. */
TAP_API const char *tap_text(const char *text);

/* -------------------------------------------------------------------------------------------------------- tensors */

/* The one table of element types.
 * X(id, value, bytes, class, name, numpy, torch, storage, safetensors, mindspore, dlpack code, dlpack bits)
 * class: B bool, U unsigned, I signed, F float, C complex. NULL: that system has no such type.
 * Values are stored in files: never renumber. F4E2M1X2 is one byte holding two values, low half first. */
#define TAP_DTYPE_MAP(X)                                                                                             \
    X(BOOL, 1, 1, B, "bool", "|b1", "bool", "BoolStorage", "BOOL", "Bool", 6, 8)                                     \
    X(U8, 2, 1, U, "uint8", "|u1", "uint8", "ByteStorage", "U8", "UInt8", 1, 8)                                      \
    X(U16, 3, 2, U, "uint16", "<u2", "uint16", NULL, "U16", "UInt16", 1, 16)                                         \
    X(U32, 4, 4, U, "uint32", "<u4", "uint32", NULL, "U32", "UInt32", 1, 32)                                         \
    X(U64, 5, 8, U, "uint64", "<u8", "uint64", NULL, "U64", "UInt64", 1, 64)                                         \
    X(I8, 6, 1, I, "int8", "|i1", "int8", "CharStorage", "I8", "Int8", 0, 8)                                         \
    X(I16, 7, 2, I, "int16", "<i2", "int16", "ShortStorage", "I16", "Int16", 0, 16)                                  \
    X(I32, 8, 4, I, "int32", "<i4", "int32", "IntStorage", "I32", "Int32", 0, 32)                                    \
    X(I64, 9, 8, I, "int64", "<i8", "int64", "LongStorage", "I64", "Int64", 0, 64)                                   \
    X(F16, 10, 2, F, "float16", "<f2", "float16", "HalfStorage", "F16", "Float16", 2, 16)                            \
    X(BF16, 11, 2, F, "bfloat16", NULL, "bfloat16", "BFloat16Storage", "BF16", "BFloat16", 4, 16)                    \
    X(F32, 12, 4, F, "float32", "<f4", "float32", "FloatStorage", "F32", "Float32", 2, 32)                           \
    X(F64, 13, 8, F, "float64", "<f8", "float64", "DoubleStorage", "F64", "Float64", 2, 64)                          \
    X(C32, 14, 4, C, "complex32", NULL, "complex32", NULL, NULL, NULL, 5, 32)                                        \
    X(C64, 15, 8, C, "complex64", "<c8", "complex64", "ComplexFloatStorage", "C64", "Complex64", 5, 64)              \
    X(C128, 16, 16, C, "complex128", "<c16", "complex128", "ComplexDoubleStorage", NULL, "Complex128", 5, 128)       \
    X(F8E4M3FN, 17, 1, F, "float8_e4m3fn", NULL, "float8_e4m3fn", NULL, "F8_E4M3", "Float8E4M3FN", 10, 8)            \
    X(F8E5M2, 18, 1, F, "float8_e5m2", NULL, "float8_e5m2", NULL, "F8_E5M2", "Float8E5M2", 12, 8)                    \
    X(F8E4M3FNUZ, 19, 1, F, "float8_e4m3fnuz", NULL, "float8_e4m3fnuz", NULL, "F8_E4M3FNUZ", NULL, 11, 8)            \
    X(F8E5M2FNUZ, 20, 1, F, "float8_e5m2fnuz", NULL, "float8_e5m2fnuz", NULL, "F8_E5M2FNUZ", NULL, 13, 8)            \
    X(F8E8M0FNU, 21, 1, F, "float8_e8m0fnu", NULL, "float8_e8m0fnu", NULL, "F8_E8M0", NULL, 14, 8)                   \
    X(F4E2M1X2, 22, 1, F, "float4_e2m1fn_x2", NULL, "float4_e2m1fn_x2", NULL, "F4", NULL, 17, 4)

typedef enum tap_dtype {
    TAP_DTYPE_NONE = 0,
#define X(id, value, ...) TAP_##id = value,
    TAP_DTYPE_MAP(X)
#undef X
        TAP_DTYPE_END
} tap_dtype;

typedef struct tap_dtype_info {
    tap_dtype dtype;
    uint8_t bytes;            /* of one element */
    uint8_t values;           /* in one element: 1, or 2 for the packed type */
    char kind;                /* 'B', 'U', 'I', 'F', 'C' */
    const char *name;         /* ours; also parsed by tap_dtype_find */
    const char *numpy, *torch, *torch_storage, *safetensors, *mindspore;
    uint8_t dlpack_code, dlpack_bits;
} tap_dtype_info;

/* NULL for a value that is not in the table. */
TAP_API const tap_dtype_info *tap_dtype_describe(tap_dtype dtype);
/* By our name or any system's ("float32", "<f4", "torch.float32", "F32", "Float32"); TAP_DTYPE_NONE if unknown. */
TAP_API tap_dtype tap_dtype_find(const char *name);
TAP_API tap_dtype tap_dtype_from_dlpack(uint8_t code, uint8_t bits, uint16_t lanes);

#define TAP_MAX_NDIM 64

/* A view: points at memory it does not own. strides count elements, may be zero or negative; NULL is row-major.
 * data is the address of element [0, 0, ...]. The same on every thread; nothing is allocated. */
typedef struct tap_tensor {
    void *data;
    tap_dtype dtype;
    int32_t ndim;
    const int64_t *shape;
    const int64_t *strides;
} tap_tensor;

/* Number of elements; -1 if a dimension is negative or the byte size does not fit int64. */
TAP_API int64_t tap_tensor_count(const tap_tensor *tensor);
TAP_API int64_t tap_tensor_bytes(const tap_tensor *tensor);
TAP_API bool tap_tensor_is_contiguous(const tap_tensor *tensor);

/* min, max: over values that are not NaN (infinities count), NaN when there is none; integers and bool exactly.
 * mean, norm (L2): over the finite values, accumulated in float64; 0 when there is none.
 * complex: of the magnitude; a part that is NaN makes the value a NaN, else a part that is infinite makes it +Inf. */
typedef union tap_number {
    double f;   /* float and complex dtypes */
    int64_t i;  /* signed dtypes */
    uint64_t u; /* unsigned dtypes and bool */
} tap_number;

typedef struct tap_stats {
    uint64_t count; /* values looked at */
    uint64_t nan, pos_inf, neg_inf, zero;
    tap_number min, max;
    double mean, norm;
} tap_stats;

/* As IEEE arithmetic over all values would give it: NaN or infinite once a value is. */
TAP_API double tap_stats_ieee_mean(const tap_stats *stats);
TAP_API double tap_stats_ieee_norm(const tap_stats *stats);

typedef enum tap_scan_bits {
    TAP_SCAN_STATS = 1,
    TAP_SCAN_HASH = 2,
    TAP_SCAN_HEALTH = 4 /* only the five counts */
} tap_scan_bits;

/* One pass over the tensor: what is asked for in `what` (tap_scan_bits), and the row-major bytes into dst when it is not NULL. */
TAP_API tap_status tap_tensor_scan(const tap_tensor *tensor, unsigned what, void *dst, tap_stats *stats,
                                   uint64_t *hash, tap_error *err);
/* The hash of row-major bytes: docs/format.md has the formula. */
TAP_API uint64_t tap_hash_bytes(const void *bytes, size_t len);
/* Row-major bytes of src converted to another dtype (floats and complex widen or round to nearest even). */
TAP_API tap_status tap_tensor_convert(const tap_tensor *src, tap_dtype to, void *dst, tap_error *err);
/* Value number `index` (row-major) as float64; complex gives the magnitude. */
TAP_API double tap_tensor_value(const tap_tensor *tensor, int64_t index);

typedef void (*tap_write_fn)(void *user, const char *text, size_t len);

typedef struct tap_print_options {
    size_t size;
    int precision;  /* numpy's default 8 */
    int threshold;  /* more values than this are summarised with ... (1000) */
    int edge_items; /* kept at each edge then (3) */
    int line_width; /* 75 */
} tap_print_options;
TAP_INIT_USUAL(tap_print_options)
/* As numpy's str(array) does; types numpy lacks as their float32 values. */
TAP_API tap_status tap_tensor_print(const tap_tensor *tensor, const tap_print_options *options, tap_write_fn write,
                                    void *user, tap_error *err);
/* Counts of finite values in `bins` equal parts of [lo, hi]; values outside are not counted. */
TAP_API tap_status tap_tensor_histogram(const tap_tensor *tensor, double lo, double hi, uint64_t *counts, int bins,
                                        tap_error *err);

/* Which instruction set the kernels use: "avx512", "avx2", "neon" or "plain". TENSORTAP_ISA or this call choose a
 * lower one, for tests; returns false when the machine or the build lacks it. NULL restores the best. */
TAP_API const char *tap_isa_name(void);
TAP_API bool tap_isa_set(const char *name);

/* --------------------------------------------------------------------------------------------------------- values */

/* What a saved leaf was before it became bytes. */
typedef enum tap_value_type {
    TAP_VALUE_TENSOR = 0,
    TAP_VALUE_NONE = 1,
    TAP_VALUE_BOOL = 2,
    TAP_VALUE_INT = 3,
    TAP_VALUE_FLOAT = 4,
    TAP_VALUE_COMPLEX = 5,
    TAP_VALUE_STR = 6,
    TAP_VALUE_BYTES = 7,
    TAP_VALUE_LIST = 8,   /* in a record: an empty list */
    TAP_VALUE_TUPLE = 9,  /* in a record: an empty tuple */
    TAP_VALUE_DICT = 10,  /* in a record: an empty dict */
    TAP_VALUE_META = 11,  /* a tensor without data (meta, fake): shape and dtype only */
    TAP_VALUE_SKIP = 12,  /* a place in a container that is left out: never in a record */
    TAP_VALUE_LOST = 13   /* a leaf that the caller could not read; bytes says why: never in a record, verify lists it */
} tap_value_type;

/* A nested value; nothing in it is owned. */
typedef struct tap_value {
    tap_value_type type;
    tap_tensor tensor;              /* TENSOR, META */
    int64_t i;                      /* BOOL, INT */
    double f, imag;                 /* FLOAT, COMPLEX */
    const char *bytes;              /* STR, BYTES; LOST: the reason, NUL-terminated */
    size_t len;                     /* of bytes; number of items of LIST, TUPLE, DICT */
    const struct tap_value *items;
    const char *const *keys;        /* DICT */
    bool requires_grad;
    const char *type_name;          /* for layouts that print one ("torch.Tensor", "torch.Size"); NULL is usual */
} tap_value;

/* ------------------------------------------------------------------------------------------------------ recording */

typedef enum tap_kind {
    TAP_KIND_ANY = -1,      /* in a query */
    TAP_KIND_FORWARD = 0,
    TAP_KIND_GRAD = 1,
    TAP_KIND_INPUT = 2,     /* of an operator */
    TAP_KIND_OUTPUT = 3,    /* of an operator */
    TAP_KIND_PARAM = 4
} tap_kind;
TAP_API const char *tap_kind_name(tap_kind kind); /* "forward" ... */

typedef enum tap_open_mode {
    TAP_OPEN_NEW = 0,     /* refuse a directory that holds a recording, except the restart of the same job */
    TAP_OPEN_APPEND = 1,  /* a new attempt inside it */
    TAP_OPEN_REPLACE = 2  /* delete this rank's part of it first */
} tap_open_mode;

typedef enum tap_keep_bits {
    TAP_KEEP_STATS = 1,
    TAP_KEEP_TENSOR = 2,
    TAP_KEEP_HEALTH = 4, /* alone: only counts of NaN, infinities and zeros */
    TAP_KEEP_HASH = 8    /* the hash too when the tensor itself is not kept (with it, always) */
} tap_keep_bits;

typedef enum tap_full_policy {
    TAP_FULL_BLOCK = 0, /* wait while the writer makes progress, then as STATS */
    TAP_FULL_STATS = 1, /* keep the statistics, not the bytes; when even that has no room, as DROP */
    TAP_FULL_DROP = 2   /* keep nothing, count it */
} tap_full_policy;

typedef enum tap_durability {
    TAP_DURABLE_PROCESS = 0, /* survives the death of this process: the default */
    TAP_DURABLE_FLUSH = 1,   /* tap_recorder_flush, tap_step and close also wait for the disk (fdatasync) */
    TAP_DURABLE_SAVE = 2     /* every save waits for the disk */
} tap_durability;

typedef enum tap_ring_kind {
    TAP_RING_AUTO = 0,   /* memory; a file where no process can outlive this one */
    TAP_RING_MEMORY = 1,
    TAP_RING_FILE = 2    /* in the run directory; `tensortap recover DIR` drains it if the writer died too */
} tap_ring_kind;

typedef enum tap_checksum {
    TAP_CHECKSUM_NONE = 0,
    TAP_CHECKSUM_CRC32 = 1, /* beside the statistics */
    TAP_CHECKSUM_XOR = 2    /* of all 8-byte words, in place of the statistics */
} tap_checksum;

typedef struct tap_options {
    size_t size;
    const char *dir;        /* created when missing */
    const char *layout;     /* "native" (default), "msprobe", "msprobe_modules", "troubleshooter", "torch_npu", "torchair",
                               "mindspore" */
    tap_open_mode mode;
    unsigned keep;          /* tap_keep_bits; default STATS | TENSOR */
    const char *names;      /* globs, "|" between: "attn.*|loss"; a leading "!" excludes. NULL: all */
    const char *steps;      /* "0|10-20|100-". NULL: all */
    const char *ranks;      /* the same grammar. NULL: all */
    int64_t every;          /* keep every N-th step; 0 or 1: all */
    int64_t last;           /* keep only the last N steps in which something was recorded; 0: all */
    bool freeze_on_nan;     /* stop recording at the end of the step in which a NaN or infinity is seen */
    uint64_t max_bytes;     /* of this process's part on disk, then statistics only; 0: no limit */
    uint64_t reserve_bytes; /* free space to leave on the disk; default 256 MiB, at most 5 % of the disk */
    uint64_t ring_bytes;    /* 0: min(256 MiB, memory limit / 32 / local world size); at least 1 MiB */
    tap_ring_kind ring;
    tap_full_policy full;
    int stall_ms;           /* block: how long nothing may move before degrading; default 30000 */
    tap_durability durability;
    uint64_t segment_bytes; /* start a new segment file after this much; default 1 GiB */
    int rank;               /* -1: RANK, else RANK_ID, else 0 */
    int world_size;         /* -1: WORLD_SIZE, else RANK_SIZE, else 1 */
    int device_index;       /* in layouts' names; -1: LOCAL_RANK, else 0 */
    bool distributed;       /* a process group exists (msprobe: rank<R>/ rather than proc<pid>/) */
    const char *writer;     /* the tensortap command; NULL: found beside the library, then PATH; "thread": none */
    bool asynchronous;      /* compat layouts: a save may return before its file is in place */
    tap_checksum checksum;  /* msprobe's "md5" */
    const char *framework;  /* msprobe: "pytorch" (default) or "mindspore" */
    int64_t first_step;     /* number of the first step; default 0 */
} tap_options;
TAP_INIT_USUAL(tap_options)

typedef struct tap_recorder tap_recorder;

/* Opens a recorder; *out is NULL on failure. tap_recorder_close frees it. */
TAP_API tap_status tap_recorder_open(const tap_options *options, tap_recorder **out, tap_error *err);

typedef enum tap_save_bits {
    TAP_SAVE_REQUIRES_GRAD = 1,
    TAP_SAVE_RECOMPUTED = 2,   /* activation checkpointing ran the forward again; its calls are counted apart */
    TAP_SAVE_SLOT = 4,         /* announces a value that comes later (a gradient); verify lists it until it came */
    TAP_SAVE_SLOT_GONE = 8,    /* the announced value will never come (its hook is gone) */
    TAP_SAVE_OVERWRITE = 16    /* torch_npu: keep the newest under the first name */
} tap_save_bits;

/* Under which number a save was counted, for a gradient that comes later and belongs to it. */
typedef struct tap_saved {
    bool wanted;  /* false: a filter said no, and the rest is not set */
    int64_t step;
    uint32_t call;
} tap_saved;

/* Everything about a save beyond name and value. Zero means "usual" in every member. */
typedef struct tap_save_info {
    size_t size;
    tap_kind kind;
    unsigned flags;           /* tap_save_bits */
    bool has_step, has_call;  /* use step and call below, not the recorder's own counting */
    int64_t step;
    uint32_t call;
    uint64_t replay;          /* of a captured graph, from 1 */
    const char *source;       /* file */
    int line;
    const char *module;       /* module path */
    const char *graph, *node; /* when it came from a graph; torchair: node is "<name>-<target>" */
    const char *device;       /* "cuda:0"; NULL: cpu */
    const char *placements;   /* of a sharded tensor */
    const char *suffix;       /* troubleshooter: "backward". msprobe_modules: "construct" or "stack", the file beside */
    int64_t graph_id;         /* torchair: graph_<n> */
    const char *argument;     /* torchair: "0", "0.1", "keyword" */
    int64_t stamp_us;         /* torchair: one UTC time for all files of a node call; 0: now */
    tap_saved *saved;         /* filled by the save, unless NULL */
    const char *path;         /* the value is the part at this place of a nested one (a gradient of one leaf): "k<key>",
                               * "i<index>" of a list or "t<index>" of a tuple, 0x1F between them */
} tap_save_info;
TAP_INIT(tap_save_info)
/* The same as an initialiser: tap_save_info info = TAP_SAVE_INFO(.kind = TAP_KIND_GRAD, .line = 12); */
#define TAP_SAVE_INFO(...) {.size = sizeof(tap_save_info), __VA_ARGS__}

/* Saves one tensor; info may be NULL (or 0), a tensor that is NULL is saved as "nothing". With rec NULL it does nothing and costs 2 ns (bench/record); what a filter
 * leaves out is counted and costs little more.
 * Anything but TAP_OK was counted and logged once; training goes on. TAP_E_LOST: kept less than asked for. */
TAP_API tap_status tap_save(tap_recorder *rec, const char *name, const tap_tensor *tensor, const tap_save_info *info);
/* Saves a nested value: one record a leaf, one call number for all. */
TAP_API tap_status tap_save_value(tap_recorder *rec, const char *name, const tap_value *value,
                                  const tap_save_info *info);
/* Would a save of this name be kept now? For callers to whom making the tensor is costly. */
TAP_API bool tap_recorder_wants(tap_recorder *rec, const char *name);
/* Announces that `name` is going to be recorded; verify reports it when no value ever comes. */
TAP_API tap_status tap_recorder_declare(tap_recorder *rec, const char *name, const tap_save_info *info);

/* Ends the current step; call counts start again. */
TAP_API tap_status tap_step(tap_recorder *rec);
TAP_API tap_status tap_recorder_set_step(tap_recorder *rec, int64_t step);
TAP_API int64_t tap_recorder_get_step(const tap_recorder *rec);
/* Returns when everything saved before is in its files; timeout_ms < 0: as long as the writer makes progress. */
TAP_API tap_status tap_recorder_flush(tap_recorder *rec, int timeout_ms, tap_error *err);
/* Flushes, ends the recording and frees rec. After it returned all files are final. No other thread may use rec any more;
 * one that is left open is ended at exit, without being freed. */
TAP_API tap_status tap_recorder_close(tap_recorder *rec, tap_error *err);
/* Pause and resume: a paused recorder does nothing in tap_save. */
TAP_API void tap_recorder_enable(tap_recorder *rec, bool enabled);

typedef struct tap_counts {
    size_t size;
    uint64_t saved, saved_bytes;        /* records taken, their payload */
    uint64_t filtered;                  /* a filter, every, freeze or max_bytes said no: a rule, not a loss */
    uint64_t stats_only;                /* bytes not kept because ring or disk were full */
    uint64_t dropped;                   /* nothing kept */
    uint64_t ring_bytes, ring_used;
    uint64_t written_bytes;             /* by the writer, so far */
    int32_t writer_pid;                 /* 0: a thread, -1: none yet */
} tap_counts;
TAP_INIT(tap_counts)
TAP_API tap_status tap_recorder_counts(tap_recorder *rec, tap_counts *out);
/* The last failure of a call that takes no tap_error. */
TAP_API void tap_recorder_error(tap_recorder *rec, tap_error *out);

/* -------------------------------------------------------------------------------------------------------- reading */

typedef enum tap_record_state {
    TAP_RECORD_WHOLE = 0,       /* everything asked for is there */
    TAP_RECORD_STATS_ONLY = 1,  /* the bytes were given up: ring or disk full */
    TAP_RECORD_RULE = 2,        /* the bytes were left out by a rule (keep, max_bytes) */
    TAP_RECORD_TORN = 3,        /* killed while writing */
    TAP_RECORD_SLOT = 4,        /* announced, never came */
    TAP_RECORD_DECLARED = 5     /* a site that never ran */
} tap_record_state;

/* One saved leaf. Pointers are valid until the next call on the same cursor. */
typedef struct tap_record {
    size_t size;
    uint64_t seq;               /* order of saving within rank and attempt */
    int32_t attempt, rank;
    int32_t child;              /* pid of a forked child that saved it, else 0 */
    int64_t step;
    const char *name;
    const char *path;           /* inside a nested value: "key2.0"; "" for a plain tensor */
    uint32_t call;
    tap_kind kind;
    tap_value_type value_type;
    tap_dtype dtype;
    int32_t ndim;
    const int64_t *shape;
    unsigned flags;             /* tap_save_bits */
    uint64_t replay;
    uint64_t time_ns;           /* since 1970, UTC */
    bool has_stats, has_hash;
    tap_stats stats;
    uint64_t hash;
    uint64_t payload_bytes;     /* 0: no bytes kept */
    tap_record_state state;
    const char *source, *module, *graph, *node, *device, *placements, *type_name; /* "" when not known */
    int32_t line;
    const char *file;           /* relative to the run directory */
    uint64_t offset;            /* of the payload in it */
} tap_record;
TAP_INIT(tap_record)

typedef struct tap_run tap_run;
typedef struct tap_cursor tap_cursor;

/* Opens any recording, finished or growing: a run directory or one file or directory of a layout we know. */
TAP_API tap_status tap_run_open(const char *path, tap_run **out, tap_error *err);
TAP_API void tap_run_close(tap_run *run);
TAP_API const char *tap_run_layout(const tap_run *run);

typedef struct tap_query {
    size_t size;
    const char *name;      /* globs as in tap_options.names, or NULL */
    const char *steps;     /* ranges, or NULL */
    const char *ranks;     /* ranges, or NULL */
    tap_kind kind;         /* default TAP_KIND_ANY */
    int attempt;           /* -1: the newest of each rank; -2: all */
    bool incomplete;       /* also SLOT, TORN and DECLARED records */
} tap_query;
TAP_INIT_USUAL(tap_query)

/* Records in order of rank, attempt and seq. The cursor sees what was there when it was made. */
TAP_API tap_status tap_run_query(tap_run *run, const tap_query *query, tap_cursor **out, tap_error *err);
TAP_API tap_status tap_cursor_next(tap_cursor *cursor, tap_record *out, tap_error *err); /* TAP_END at the end */
TAP_API void tap_cursor_close(tap_cursor *cursor);
/* Number of records a query gives. */
TAP_API tap_status tap_run_count(tap_run *run, const tap_query *query, uint64_t *out, tap_error *err);
/* Looks again at a growing recording; *more: new records came; *live: some writer is still at work. */
TAP_API tap_status tap_run_refresh(tap_run *run, bool *more, bool *live, tap_error *err);

/* A tensor mapped from its file without a copy (or read, where a layout's file cannot be mapped). The mapping is
 * private: writing to it changes only this copy, never the recording. Nothing in the struct points into itself: it may be
 * copied, and one of the copies is released. */
typedef struct tap_mapping {
    size_t size;
    tap_tensor tensor;
    void *held;            /* what the tensor points to */
} tap_mapping;
TAP_INIT(tap_mapping)
TAP_API tap_status tap_record_map(tap_run *run, const tap_record *record, tap_mapping *out, tap_error *err);
TAP_API void tap_mapping_release(tap_mapping *mapping);

/* How one rank's attempt (or child) ended and what it counted. */
typedef struct tap_attempt {
    size_t size;
    int32_t rank, attempt, child, pid;
    const char *host;
    const char *ended;       /* "closed", "killed", "live", "unknown" */
    uint64_t started_ns, ended_ns;
    uint64_t records, bytes;
    uint64_t filtered, stats_only, dropped, torn;
    const char *files;       /* relative to the run directory */
} tap_attempt;
TAP_INIT(tap_attempt)
TAP_API int tap_run_attempt_count(const tap_run *run);
TAP_API tap_status tap_run_attempt(const tap_run *run, int index, tap_attempt *out);

typedef enum tap_problem_kind {
    TAP_PROBLEM_DROPPED = 0,    /* a save of which nothing was kept */
    TAP_PROBLEM_STATS_ONLY = 1,
    TAP_PROBLEM_TORN = 2,       /* producer killed while writing */
    TAP_PROBLEM_SLOT = 3,       /* gradient never came */
    TAP_PROBLEM_NEVER_RAN = 4,  /* declared, never saved */
    TAP_PROBLEM_CORRUPT = 5,    /* bytes on disk do not match their hash */
    TAP_PROBLEM_MISSING = 6,    /* a file or a range of records is not there */
    TAP_PROBLEM_UNFINISHED = 7, /* not closed: the writer died, run tensortap recover */
    TAP_PROBLEM_RULE = 8        /* left out by a filter or limit: not a loss, listed on request */
} tap_problem_kind;
TAP_API const char *tap_problem_name(tap_problem_kind kind);
TAP_API bool tap_problem_is_loss(tap_problem_kind kind);

/* Made by the library. */
typedef struct tap_problem {
    size_t size;
    tap_problem_kind kind;
    int32_t rank, attempt;
    int64_t step;             /* -1: not of one step */
    const char *name;         /* "" when not known */
    const char *path;
    uint64_t count;           /* how many saves */
    const char *file;         /* "" when not of one file */
    const char *reason;       /* for people */
} tap_problem;
typedef void (*tap_problem_fn)(void *user, const tap_problem *problem);
/* done of total bytes; return false to stop. */
typedef bool (*tap_progress_fn)(void *user, uint64_t done, uint64_t total);

typedef struct tap_verify_options {
    size_t size;
    bool quick;               /* do not read payloads */
    bool rules;               /* also report what rules left out */
    tap_problem_fn on_problem;
    tap_progress_fn on_progress;
    void *user;
} tap_verify_options;
TAP_INIT(tap_verify_options)

typedef struct tap_verify_result {
    size_t size;
    uint64_t records, bytes, lost, rules, not_named; /* not_named: dropped saves of which only the number is known */
} tap_verify_result;
TAP_INIT(tap_verify_result)
/* Options and result may be NULL. TAP_OK when nothing was lost, TAP_E_LOST when something was, else why it could not be told. */
TAP_API tap_status tap_run_verify(tap_run *run, const tap_verify_options *options, tap_verify_result *result,
                                  tap_error *err);

/* Builds the index of every finished attempt anew from its segments. */
TAP_API tap_status tap_run_index(const char *dir, tap_progress_fn progress, void *user, uint64_t *records,
                                 tap_error *err);
/* Drains ring files that were left behind and finishes the attempts they belong to. */
TAP_API tap_status tap_run_recover(const char *dir, uint64_t *records, tap_error *err);
/* Returns when no writer works on dir any more; TAP_E_TIMEOUT after timeout_ms (< 0: never). */
TAP_API tap_status tap_run_wait(const char *dir, int timeout_ms, tap_error *err);

/* ---------------------------------------------------------------------------------------------------------- files */

/* A tensor file: npy, torch zip archive (.pt, .bin), safetensors or MindSpore print file, told by content. */
typedef struct tap_file tap_file;
typedef struct tap_file_entry {
    size_t size;
    const char *name;          /* npy: ""; pt: path inside the object ("key.0"); print file: the text before it */
    tap_value_type value_type;
    tap_tensor tensor;         /* data is mapped; valid until tap_file_close (print file: until the next get) */
    double number, imag;       /* value types that are not tensors */
    int64_t integer;
    const char *text;          /* TAP_VALUE_STR */
    uint64_t offset;           /* of the data in the file */
} tap_file_entry;
TAP_INIT(tap_file_entry)
TAP_API tap_status tap_file_open(const char *path, tap_file **out, tap_error *err);
TAP_API const char *tap_file_format(const tap_file *file); /* "npy", "pt", "safetensors", "print" */
TAP_API size_t tap_file_count(const tap_file *file);
TAP_API tap_status tap_file_get(tap_file *file, size_t index, tap_file_entry *out, tap_error *err);
TAP_API void tap_file_close(tap_file *file);

/* Writes under a temporary name and renames. format: "npy", "pt", "safetensors". names: safetensors only.
 * npy and safetensors hold types they lack as float32 or complex64 when `convert`, else fail with TAP_E_UNSUPPORTED.
 * More than one tensor: pt writes a list; npy refuses. */
TAP_API tap_status tap_file_write(const char *path, const char *format, const tap_tensor *tensors,
                                  const char *const *names, size_t count, bool convert, tap_error *err);

/* Appends a text and a tensor to a MindSpore print file, which is made when it is not there. One call is one message: a
 * reader sees all of a small one or nothing. */
TAP_API tap_status tap_print_file_append(const char *path, const char *text, const tap_tensor *tensor, tap_error *err);

/* ----------------------------------------------------------------------------------------------------------- CUDA */

/* Does a CUDA graph capture what is launched on this stream (a CUstream or cudaStream_t; NULL: the legacy one)? Copying
 * from it or waiting for it would end the capture. No where there is no driver. */
TAP_API bool tap_cuda_is_capturing(void *stream);
/* cuThreadExchangeStreamCaptureMode: 2 lets this thread copy and wait beside captures of other threads. Returns what it was;
 * mode itself where there is no driver. */
TAP_API int tap_cuda_capture_mode(int mode);

/* ------------------------------------------------------------------------------------------ the process's recorder */

/* The one process-wide slot that language bindings and framework taps share. Neither call opens or closes. */
TAP_API tap_recorder *tap_recorder_get_default(void);
TAP_API void tap_recorder_set_default(tap_recorder *rec);

#ifdef __cplusplus
}
#endif
#endif
