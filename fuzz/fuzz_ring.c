/* fuzz_ring.c - a ring whose program writes over it while the writer reads: descriptors, entries, head, tail, checkpoint
 * and configuration change before the writer looks and between two of its looks. It never crashes, never hangs, and makes
 * nothing outside of the recording's directory.
 *
 * The first byte of an input picks the layout (bits 0 and 1); its bit 7 lets another thread write the first strike, and what
 * was there, again and again meanwhile. The rest are strikes of 12 bytes: at which look (u8; 0: before the first),
 * where (u8 kind, u16 word) and what (u64; kind bit 7: added to what is there). Looks are the writer's calls of the functions
 * that CMakeLists.txt wraps. */
#include "base/dir.h"
#include "file_oracle.h"
#include "record/drain/writer.h"
#include "record/ring/ring.h"

#include <dirent.h>
#include <ftw.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

enum { LAYOUTS = 4, DATA_BYTES = 1 << 20, BIG_BYTES = 40000, STRIKE_BYTES = 12, MOST_STRIKES = 24 };

typedef struct stage {
    tap_ring ring;
    uint8_t *whole;      /* the ring as it was filled */
    uint64_t entries[64]; /* where they lie in the data */
    int entry_count;
} stage;

static stage stages[LAYOUTS];
static char base[] = "/dev/shm/tap-ring-XXXXXX";

/* ---------------------------------------------------------------------------------------------------------- strikes */

typedef struct strike {
    uint8_t look, kind;
    uint16_t word;
    uint64_t value;
} strike;

static const stage *struck; /* NULL: nothing is hit */
static strike strikes[MOST_STRIKES];
static size_t strike_count;
static unsigned looks;

static volatile uint64_t *place(const stage *s, const strike *it)
{
    uint8_t *header = (uint8_t *)s->ring.header;
    size_t config = offsetof(tap_ring_header, config), head = offsetof(tap_ring_header, head);
    switch (it->kind & 3) {
    case 0: return (uint64_t *)(void *)(header + head) + it->word % ((sizeof(tap_ring_header) - head) / 8);
    case 1: return (uint64_t *)(void *)s->ring.descs + it->word % (64 * sizeof(tap_ring_desc) / 8);
    case 2: return (uint64_t *)(void *)(s->ring.data + s->entries[it->word / 64 % (unsigned)s->entry_count]) + it->word % 64;
    default: return (uint64_t *)(void *)(header + config) + it->word % (sizeof(tap_ring_config) / 8);
    }
}

static void hit(const strike *it)
{
    volatile uint64_t *at = place(struck, it);
    __atomic_store_n(at, it->kind & 128 ? __atomic_load_n(at, __ATOMIC_RELAXED) + it->value : it->value, __ATOMIC_RELAXED);
}

static void look(void)
{
    if (!struck)
        return;
    for (size_t i = 0; i < strike_count; i++)
        if (strikes[i].look == looks)
            hit(&strikes[i]);
    looks++;
}

#define WRAP(type, name, parameters, arguments)                                                                      \
    type __real_##name parameters;                                                                                   \
    type __wrap_##name parameters;                                                                                   \
    type __wrap_##name parameters                                                                                    \
    {                                                                                                                \
        look();                                                                                                      \
        return __real_##name arguments;                                                                              \
    }

typedef struct tap_index tap_index;
typedef struct tap_segment tap_segment;
WRAP(bool, tap__meta_read, (tap_meta * meta, const void *block, size_t len), (meta, block, len))
WRAP(void, tap__entry_seal, (tap_entry * entry, const void *meta), (entry, meta))
WRAP(int, tap__segment_write, (tap_segment * segment, const void *bytes, uint64_t len, uint64_t offset),
     (segment, bytes, len, offset))
WRAP(tap_status, tap__index_add, (tap_index * index, const tap_entry *entry, uint32_t segment, uint64_t offset, tap_error *err),
     (index, entry, segment, offset, err))
WRAP(int64_t, tap_tensor_bytes, (const tap_tensor *tensor), (tensor))
WRAP(uint64_t, tap__ring_head_seq, (tap_ring * ring), (ring))
WRAP(void, tap__tally_account, (tap_tally * tally, uint64_t seq, uint64_t accounted), (tally, seq, accounted))

/* Nobody is waited for. */
void __wrap_tap__ring_sleep(tap_ring *ring, uint32_t seen, int timeout_ms);
void __wrap_tap__ring_sleep(tap_ring *ring, uint32_t seen, int timeout_ms)
{
    (void)ring, (void)seen, (void)timeout_ms;
    look();
}

static _Atomic bool flicker_on;

/* The first strike and what was there, in turn, as fast as it goes. */
static void *flicker(void *user)
{
    volatile uint64_t *at = place(user, &strikes[0]);
    uint64_t was = *at, value = strikes[0].kind & 128 ? was + strikes[0].value : strikes[0].value;
    while (atomic_load_explicit(&flicker_on, memory_order_relaxed)) {
        __atomic_store_n(at, value, __ATOMIC_RELAXED);
        __atomic_store_n(at, was, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* ---------------------------------------------------------------------------------------------------------- the ring */

static void put(stage *s, tap_entry_type type, const char *name, uint64_t payload, unsigned slot, bool commit)
{
    static const char FILES[] = "a.npy";
    int64_t shape[1] = {(int64_t)payload};
    tap_meta meta = {.shape = shape, .ndim = payload ? 1 : 0};
    meta.text[TAP_META_NAME] = name;
    meta.len[TAP_META_NAME] = (uint32_t)strlen(name);
    meta.text[TAP_META_FILE] = FILES;
    meta.len[TAP_META_FILE] = sizeof FILES - 1;
    uint32_t meta_bytes = tap__meta_size(&meta);
    bool big = type == TAP_ENTRY_BIG;
    uint64_t at;
    tap_ring_range range;
    ORACLE(tap__ring_reserve(&s->ring, sizeof(tap_entry) + meta_bytes, big ? 0 : payload, big, &range, &at));
    range.desc->slot = slot;
    tap_entry *entry = (tap_entry *)(void *)range.data;
    *entry = (tap_entry){.magic = TAP_ENTRY_MAGIC, .version = 1, .type = (uint8_t)type, .dtype = TAP_U8,
                         .ndim = payload ? 1 : 0, .seq = range.seq, .meta_bytes = meta_bytes,
                         .payload_offset = payload ? at : 0, .payload_bytes = payload,
                         .length = big ? at + tap__round_up(payload, TAP_PAGE) : range.bytes};
    tap__meta_write(&meta, entry + 1);
    tap__entry_seal(entry, entry + 1);
    s->entries[s->entry_count++] = range.pos & s->ring.mask;
    if (commit)
        tap__ring_commit(&range);
}

static void fill(stage *s)
{
    tap_ring_range piece;
    for (int i = 0; i < 3; i++) {
        put(s, TAP_ENTRY_DATA, "x", 64, 0, true);
        put(s, TAP_ENTRY_DATA, "layer.0.weight", 5000, 0, true);
        put(s, TAP_ENTRY_LOST, "y", 0, 0, true);
        put(s, TAP_ENTRY_BIG, "big", BIG_BYTES, 1, true);
        put(s, TAP_ENTRY_DATA, "between", 0, 0, true);
        ORACLE(tap__ring_reserve_piece(&s->ring, BIG_BYTES, 1, 0, &piece));
        tap__ring_commit(&piece);
        put(s, TAP_ENTRY_TRAILER, "big", 0, 1, true);
        put(s, TAP_ENTRY_STEP, "", 0, 0, true);
    }
    put(s, TAP_ENTRY_DATA, "of a thread that died", 300, 0, false);
    put(s, TAP_ENTRY_DATA, "last", 128, 0, true);
}

static void make_stage(stage *s, const char *layout)
{
    tap_ring_config *config = calloc(1, sizeof *config);
    if (!config)
        abort();
    snprintf(config->layout, sizeof config->layout, "%s", layout);
    snprintf(config->who, sizeof config->who, "rank0");
    config->segment_bytes = 1 << 16;
    config->world_size = 1;
    config->asynchronous = 1;
    config->keep = TAP_KEEP_TENSOR | TAP_KEEP_STATS;
    config->last = strcmp(layout, "native") == 0 ? 2 : 0;
    ORACLE(tap__ring_create(&s->ring, NULL, NULL, DATA_BYTES, config, NULL) == TAP_OK);
    free(config);
    fill(s);
    s->whole = malloc(s->ring.map_bytes + DATA_BYTES);
    if (!s->whole)
        abort();
    memcpy(s->whole, s->ring.header, s->ring.map_bytes + DATA_BYTES);
}

/* ------------------------------------------------------------------------------------------------------ the directory */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st, (void)kind, (void)where;
    return remove(path);
}

static void clean_up(void)
{
    nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void start(void)
{
    static const char *const NAMES[LAYOUTS] = {"native", "native", "msprobe", "troubleshooter"};
    if (!mkdtemp(base))
        abort();
    atexit(clean_up);
    for (int i = 0; i < LAYOUTS; i++)
        make_stage(&stages[i], NAMES[i]);
}

static void expect_nothing_outside(void)
{
    DIR *list = opendir(base);
    if (!list)
        abort();
    for (struct dirent *item; (item = readdir(list));)
        ORACLE(strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0 || strcmp(item->d_name, "run") == 0);
    closedir(list);
}

static void record(const stage *s, bool flickers)
{
    char run[64], rank[80];
    snprintf(run, sizeof run, "%s/run", base);
    snprintf(rank, sizeof rank, "%s/rank0", run);
    if (mkdir(run, 0700) != 0 || mkdir(rank, 0700) != 0)
        abort();
    tap_dir *root;
    ORACLE(tap__dir_open(run, false, &root, NULL) == TAP_OK);
    memcpy(s->ring.header, s->whole, s->ring.map_bytes + DATA_BYTES);
    pthread_t thread;
    struck = s;
    looks = 0;
    look();
    atomic_store(&flicker_on, true);
    flickers = flickers && strike_count && pthread_create(&thread, NULL, flicker, (void *)(uintptr_t)s) == 0;
    tap__writer_run((tap_ring *)(uintptr_t)&s->ring, root, TAP_WRITER_RECOVER, NULL);
    atomic_store(&flicker_on, false);
    if (flickers)
        pthread_join(thread, NULL);
    struck = NULL;
    tap__dir_close(root);
    expect_nothing_outside();
    nftw(run, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static bool started;
    if (!started)
        start();
    started = true;
    if (len == 0)
        return 0;
    strike_count = 0;
    for (size_t at = 1; at + STRIKE_BYTES <= len && strike_count < MOST_STRIKES; at += STRIKE_BYTES) {
        strike *it = &strikes[strike_count++];
        it->look = bytes[at];
        it->kind = bytes[at + 1];
        memcpy(&it->word, bytes + at + 2, sizeof it->word);
        memcpy(&it->value, bytes + at + 4, sizeof it->value);
    }
    record(&stages[bytes[0] & 3], bytes[0] & 128);
    return 0;
}
