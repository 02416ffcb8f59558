/* entry.h - one entry as it lies in the ring and, byte for byte the same, in a segment file. docs/format.md specifies
 * it; this is the only place that reads or writes it. Everything is little-endian and 8-byte aligned.
 *
 *     tap_entry (256 bytes) | meta block | zeros | payload | zeros up to a multiple of 64
 *
 * Every entry stands alone: it carries its own name and shape, so that losing a file loses only what was in it. */
#ifndef TAP_RECORD_ENTRY_H
#define TAP_RECORD_ENTRY_H

#include "tensortap/tensortap.h"

#include <assert.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files and ring are little-endian");

#define TAP_ENTRY_MAGIC 0x45504154u /* "TAPE" */
#define TAP_ENTRY_ALIGN 64u
#define TAP_PAGE 4096u
#define TAP_PAGE_ALIGN_FROM (64u << 10) /* payloads this large start on a page */

/* align: a power of two */
static inline uint64_t tap__round_up(uint64_t value, uint64_t align)
{
    return (value + align - 1) & ~(align - 1);
}

/* A reader skips types it does not know, by length. */
typedef enum tap_entry_type {
    TAP_ENTRY_DATA = 1,    /* a saved leaf; payload_bytes 0 when no bytes are kept */
    TAP_ENTRY_STEP = 2,    /* step `step` ended */
    TAP_ENTRY_DECLARE = 3, /* this name is going to be recorded */
    TAP_ENTRY_LOST = 4,    /* `count` saves of this name in this step were lost or left out; `reason` why */
    TAP_ENTRY_SKIP = 5,    /* nothing: space given up, and `count` sequence numbers (0: only filling) */
    TAP_ENTRY_BIG = 6,     /* as DATA, but statistics and hash come in a TRAILER; without one it is torn */
    TAP_ENTRY_TRAILER = 7, /* statistics and hash of the BIG entry whose seq is `ref` */
    TAP_ENTRY_END = 8      /* the recording ended in order; nothing follows */
} tap_entry_type;

/* tap_entry.reason, of entries without payload and of LOST */
typedef enum tap_reason {
    TAP_REASON_NONE = 0,
    TAP_REASON_KEEP = 1,       /* rule: keep has no TENSOR */
    TAP_REASON_MAX_BYTES = 2,  /* rule */
    TAP_REASON_FILTER = 3,     /* rule: names, steps, every */
    TAP_REASON_FROZEN = 4,     /* rule: freeze_on_nan */
    TAP_REASON_RING_FULL = 5,  /* loss */
    TAP_REASON_DISK_FULL = 6,  /* loss; also the free-space reserve */
    TAP_REASON_DISK_ERROR = 7, /* loss */
    TAP_REASON_KILLED = 8,     /* loss: killed while writing */
    TAP_REASON_NO_MEMORY = 9,  /* loss */
    TAP_REASON_BAD_VALUE = 10, /* loss: the tensor could not be read */
    TAP_REASON_NO_WRITER = 11, /* loss */
    TAP_REASON_LAST_N = 12,    /* rule: older than the last N steps */
    TAP_REASON_BAD_NAME = 13   /* loss: the layout has no file for a name like this */
} tap_reason;
bool tap__reason_is_rule(tap_reason reason);
const char *tap__reason_text(tap_reason reason); /* in the current language */

enum { /* tap_entry.has */
    TAP_HAS_STATS = 1,
    TAP_HAS_HASH = 2,
    TAP_HAS_HEALTH = 4, /* of the statistics only the five counts */
    TAP_HAS_CRC = 8     /* the payload is not here, its checksum is (layouts of other tools) */
};

typedef struct tap_entry {
    uint32_t magic;          /*   0 */
    uint8_t version;         /*   4 1 */
    uint8_t type;            /*   5 tap_entry_type */
    uint8_t kind;            /*   6 tap_kind */
    uint8_t value_type;      /*   7 tap_value_type */
    uint8_t dtype;           /*   8 tap_dtype */
    uint8_t ndim;            /*   9 */
    uint8_t state;           /*  10 tap_record_state */
    uint8_t reason;          /*  11 tap_reason */
    uint16_t flags;          /*  12 TAP_SAVE_* */
    uint16_t has;            /*  14 TAP_HAS_* */
    uint64_t length;         /*  16 bytes from this entry to the next, a multiple of 64 */
    uint64_t seq;            /*  24 one more than the entry before, plus `absent` */
    int64_t step;            /*  32 */
    uint32_t call;           /*  40 */
    uint32_t meta_bytes;     /*  44 of the meta block, a multiple of 8 */
    uint64_t replay;         /*  48 */
    uint64_t time_ns;        /*  56 wall clock, since 1970 */
    uint64_t payload_offset; /*  64 from the start of the entry */
    uint64_t payload_bytes;  /*  72 */
    uint64_t hash;           /*  80 of the payload: tap_hash_bytes */
    uint64_t count;          /*  88 values; LOST: saves */
    uint64_t nan;            /*  96 */
    uint64_t pos_inf;        /* 104 */
    uint64_t neg_inf;        /* 112 */
    uint64_t zero;           /* 120 */
    tap_number min;          /* 128 */
    tap_number max;          /* 136 */
    double mean;             /* 144 */
    double norm;             /* 152 */
    uint64_t ref;            /* 160 TRAILER: seq of the BIG entry. LOST: bytes lost */
    int32_t line;            /* 168 source line */
    int32_t tid;             /* 172 thread that saved it */
    int64_t graph_id;        /* 176 */
    int64_t stamp_us;        /* 184 */
    uint64_t crc;            /* 192 the layout's checksum of the row-major bytes */
    uint64_t absent;         /* 200 numbers before seq that are accounted for elsewhere: pieces of large tensors, the journal */
    uint64_t reserved[5];    /* 208 zero */
    uint64_t header_hash;    /* 248 tap_hash_bytes of bytes 0..247, then of the meta block, xored */
} tap_entry;
_Static_assert(sizeof(tap_entry) == 256, "tap_entry is 256 bytes");

/* The meta block: items of {u32 tag, u32 len, bytes, zeros to a multiple of 8}. Unknown tags are skipped. */
typedef enum tap_meta_tag {
    TAP_META_NAME = 1,
    TAP_META_SHAPE = 2,      /* ndim int64 */
    TAP_META_PATH = 3,       /* structured: see tap__path_* below */
    TAP_META_SOURCE = 4,
    TAP_META_MODULE = 5,
    TAP_META_GRAPH = 6,
    TAP_META_NODE = 7,
    TAP_META_DEVICE = 8,
    TAP_META_PLACEMENTS = 9,
    TAP_META_TYPE_NAME = 10,
    TAP_META_FILE = 11,      /* compat layouts: the file that holds it, relative to the run directory */
    TAP_META_SUFFIX = 12,
    TAP_META_ARGUMENT = 13,
    TAP_META_END = 14
} tap_meta_tag;

/* A path inside a nested value, structured so that {"0": x} and [x] differ: elements of one kind character
 * ('i' list index, 't' tuple index, 'k' dict key), the text, and 0x1F between elements. Shown as "key2.0".
 * Writes at most cap bytes (with NUL) of the shown form; returns its full length. */
size_t tap__path_show(const char *path, size_t len, char *out, size_t cap);

/* What the writer of an entry knows beyond the fixed part. Strings may be NULL: left out. */
typedef struct tap_meta {
    const char *text[TAP_META_END]; /* by tag; SHAPE unused */
    uint32_t len[TAP_META_END];
    const int64_t *shape;
    int32_t ndim;
} tap_meta;

/* Bytes the meta block takes. */
uint32_t tap__meta_size(const tap_meta *meta);
/* Writes it; dst has tap__meta_size bytes. */
void tap__meta_write(const tap_meta *meta, void *dst);
/* Finds the items of a block; false when it is malformed. text pointers go into block and are NOT terminated. */
bool tap__meta_read(tap_meta *meta, const void *block, size_t len);

/* Sets header_hash from the fixed part and the meta block. */
void tap__entry_seal(tap_entry *entry, const void *meta);

/* Looks at the bytes at the place of an entry, `avail` of them to the end of file: TAP_OK when header and meta block
 * are whole and honest (payload not looked at; it may reach beyond avail: *payload_cut), TAP_E_TRUNCATED when avail is
 * too little, TAP_E_CORRUPT when they are not an entry. */
tap_status tap__entry_check(const void *bytes, uint64_t avail, const tap_entry **out, bool *payload_cut);

/* How many saves does it account for? Announcing a value is none, nor is what its owner did not live to commit: that
 * save did not return. */
static inline uint64_t tap__entry_accounts(const tap_entry *entry)
{
    bool value = (entry->type == TAP_ENTRY_DATA || entry->type == TAP_ENTRY_BIG) &&
                 !(entry->flags & (TAP_SAVE_SLOT | TAP_SAVE_SLOT_GONE));
    return entry->type == TAP_ENTRY_LOST ? entry->count : value && entry->state != TAP_RECORD_TORN;
}

/* A decoded entry: the record and the memory its strings live in. Reused from entry to entry. */
typedef struct tap_decoded {
    tap_record record;
    int64_t shape[TAP_MAX_NDIM];
    char *strings;
    size_t cap;
} tap_decoded;
/* Fills decoded->record from a checked entry; rank, attempt, child, file and offset are the caller's. */
tap_status tap__entry_decode(const tap_entry *entry, tap_decoded *decoded, tap_error *err);
void tap__decoded_free(tap_decoded *decoded);

#endif
