/* ring.c - the shared memory ring: mapping, reserving, waiting. */
#include "record/ring/ring.h"

#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"
#include "record/ring/locks.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define POS_BITS 36
#define POS_MASK ((1ull << POS_BITS) - 1)
#define SEQ_MASK ((1ull << (64 - POS_BITS)) - 1)

/* The thread sanitizer cannot see the writer's process, through which a range passes from the thread that committed it
 * to the one that reserves its place again. Both ends of that hand-over are told here instead. */
#if defined(__SANITIZE_THREAD__)
void __tsan_acquire(void *address);
void __tsan_release(void *address);
static char handed_over;
#define HAND_OVER_TAKE() __tsan_acquire(&handed_over)
#define HAND_OVER_GIVE() __tsan_release(&handed_over)
#else
#define HAND_OVER_TAKE() ((void)0)
#define HAND_OVER_GIVE() ((void)0)
#endif

/* ------------------------------------------------------------------------------------------------------- mapping */

static tap_status ring_map(tap_ring *ring, const tap_ring_header *shape, tap_error *err)
{
    ring->map_bytes = (size_t)shape->data_offset;
    uint64_t data_bytes = shape->data_bytes;
    off_t data_offset = (off_t)shape->data_offset;
    void *base = mmap(NULL, ring->map_bytes + 2 * data_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                      -1, 0);
    if (base == MAP_FAILED)
        return tap_fail_errno(err, TAP_E_NOMEM, "cannot map a ring of %llu bytes", (unsigned long long)data_bytes);
    uint8_t *at = base;
    int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_FIXED;
    if (mmap(at, ring->map_bytes, prot, flags, ring->fd, 0) == MAP_FAILED ||
        mmap(at + ring->map_bytes, data_bytes, prot, flags, ring->fd, data_offset) == MAP_FAILED ||
        mmap(at + ring->map_bytes + data_bytes, data_bytes, prot, flags, ring->fd, data_offset) == MAP_FAILED) {
        tap_status status = tap_fail_errno(err, TAP_E_IO, "cannot map the ring");
        munmap(base, ring->map_bytes + 2 * data_bytes);
        return status;
    }
    ring->header = base;
    ring->descs = (tap_ring_desc *)(void *)(at + shape->desc_offset);
    ring->data = at + ring->map_bytes;
    ring->mask = data_bytes - 1;
    ring->desc_mask = shape->desc_count - 1;
    return TAP_OK;
}

static uint64_t power_of_two_below(uint64_t value)
{
    return 1ull << (63 - __builtin_clzll(value));
}

static tap_ring_header ring_shape(uint64_t data_bytes)
{
    tap_ring_header shape = {.magic = TAP_RING_MAGIC, .version = TAP_RING_VERSION};
    shape.data_bytes = power_of_two_below(data_bytes < TAP_RING_MIN_BYTES ? TAP_RING_MIN_BYTES : data_bytes);
    /* small records take 512 bytes and up: descriptors for a quarter of the most that could fit */
    uint64_t descs = shape.data_bytes / 2048;
    shape.desc_count = (uint32_t)(descs < 1024 ? 1024 : descs > 65536 ? 65536 : descs);
    shape.desc_offset = tap__round_up(sizeof(tap_ring_header), TAP_PAGE);
    shape.data_offset = tap__round_up(shape.desc_offset + shape.desc_count * sizeof(tap_ring_desc), TAP_PAGE);
    shape.total_bytes = shape.data_offset + shape.data_bytes;
    return shape;
}

static void make_tally(tap_ring *ring)
{
    char *name = ring->header->config.tally;
    ring->tally_fd = -1;
    ring->tally = *name ? tap__tally_create(name, &ring->tally_fd) : NULL;
    if (!ring->tally) {
        *name = 0;
        ring->tally = &ring->header->tally;
        ring->tally->magic = TAP_TALLY_MAGIC;
        return;
    }
    tap__tally_hold(ring->tally_fd);
}

bool tap__ring_open_tally(tap_ring *ring, int fd)
{
    tap_tally *tally = tap__tally_map(fd);
    if (!tally)
        return false;
    tap__tally_hold(fd);
    ring->tally = tally;
    ring->tally_fd = fd;
    return true;
}

tap_status tap__ring_create(tap_ring *ring, tap_dir *dir, const char *name, uint64_t data_bytes, const tap_ring_config *config,
                            tap_error *err)
{
    memset(ring, 0, sizeof *ring);
    tap_ring_header *shape = tap__alloc(sizeof *shape); /* too large for the stack of a foreign thread */
    if (!shape)
        return tap_fail_nomem(err);
    *shape = ring_shape(data_bytes);
    shape->config = *config;
    atomic_init(&shape->writer_pid, -1);
    ring->fd = name ? tap__dir_file(dir, name, O_RDWR | O_CREAT | O_EXCL)
                    : tap__fd_away(memfd_create("tensortap-ring", MFD_CLOEXEC));
    tap_status status = TAP_OK;
    if (ring->fd < 0)
        status = tap_fail_errno(err, TAP_E_IO, "cannot create the ring %s", name ? name : "in memory");
    int failed = 0;
    if (status == TAP_OK && (failed = tap__allocate(ring->fd, shape->total_bytes)) != 0) {
        errno = failed;
        status = tap_fail_errno(err, TAP_E_NOMEM, "cannot allocate a ring of %llu bytes; choose a smaller ring_bytes",
                                (unsigned long long)shape->data_bytes);
    }
    if (status == TAP_OK)
        status = ring_map(ring, shape, err);
    if (status == TAP_OK) {
#ifdef MADV_POPULATE_WRITE
        /* the pages exist already; this fills the page tables, so that the first round is as fast as the rest */
        madvise(ring->data, shape->data_bytes, MADV_POPULATE_WRITE);
#endif
        uint64_t magic = shape->magic; /* last: a file without it was never a ring */
        shape->magic = 0;
        memcpy(ring->header, shape, sizeof *shape);
        make_tally(ring);
        atomic_thread_fence(memory_order_release);
        ring->header->magic = magic;
    } else if (ring->fd >= 0) {
        close(ring->fd);
        if (name)
            tap__dir_unlink(dir, name);
    }
    tap__free(shape);
    return status;
}

tap_status tap__ring_open(tap_ring *ring, int fd, tap_error *err)
{
    memset(ring, 0, sizeof *ring);
    ring->fd = fd;
    struct stat st;
    tap_ring_header *found = tap__alloc(sizeof *found);
    tap_status status = TAP_OK;
    if (!found)
        status = tap_fail_nomem(err);
    else if (fstat(fd, &st) != 0)
        status = tap_fail_errno(err, TAP_E_IO, "cannot look at the ring");
    else if (st.st_size < (off_t)sizeof *found || tap__pread_all(fd, found, sizeof *found, 0) != (ssize_t)sizeof *found)
        status = tap_fail(err, TAP_E_FORMAT, "not a ring: too short");
    if (status == TAP_OK) {
        tap_ring_header shape = ring_shape(found->data_bytes);
        if (found->magic != shape.magic || found->version != shape.version || found->data_bytes != shape.data_bytes ||
            found->desc_count != shape.desc_count || found->desc_offset != shape.desc_offset ||
            found->data_offset != shape.data_offset || (uint64_t)st.st_size < shape.total_bytes)
            status = tap_fail(err, TAP_E_FORMAT, "not a ring of this version of tensortap");
    }
    if (status == TAP_OK)
        status = ring_map(ring, found, err);
    if (status == TAP_OK)
        ring->tally = &ring->header->tally;
    ring->tally_fd = -1;
    tap__free(found);
    if (status != TAP_OK)
        close(fd);
    return status;
}

bool tap__ring_read_tally(tap_dir *dir, const char *name, tap_tally *out)
{
    struct stat st;
    off_t at = offsetof(tap_ring_header, tally);
    tap_locks_found ours = TAP_LOCKS_NONE;
    if (tap__dir_stat(dir, name, &st) == 0)
        ours = tap__locks_read(&st, out, sizeof *out, at);
    if (ours != TAP_LOCKS_NONE)
        return ours == TAP_LOCKS_READ && out->magic == TAP_TALLY_MAGIC;
    int fd = tap__dir_file(dir, name, O_RDONLY);
    if (fd < 0)
        return false;
    bool good = tap__pread_all(fd, out, sizeof *out, at) == (ssize_t)sizeof *out && out->magic == TAP_TALLY_MAGIC;
    close(fd);
    return good;
}

void tap__ring_close(tap_ring *ring)
{
    if (!ring->header)
        return;
    if (ring->tally_fd >= 0) {
        tap__tally_unmap(ring->tally);
        tap__locks_remove(ring->tally_fd);
        close(ring->tally_fd);
    }
    munmap(ring->header, ring->map_bytes + 2 * (ring->mask + 1));
    tap__locks_remove(ring->fd);
    close(ring->fd);
    memset(ring, 0, sizeof *ring);
}

/* ----------------------------------------------------------------------------------------------------- reserving */

typedef struct head_state {
    uint64_t word;
    uint64_t seq, pos;         /* full width */
    uint64_t tail_seq, tail_pos;
} head_state;

/* The tail is read first: it never passes the head, so head - tail read in this order is never negative. */
static head_state head_load(tap_ring *ring)
{
    head_state s;
    tap_ring_header *h = ring->header;
    s.tail_seq = atomic_load_explicit(&h->tail_seq, memory_order_acquire);
    s.tail_pos = atomic_load_explicit(&h->tail_pos, memory_order_acquire);
    s.word = atomic_load_explicit(&h->head, memory_order_acquire);
    s.seq = s.tail_seq + (((s.word >> POS_BITS) - s.tail_seq) & SEQ_MASK);
    s.pos = s.tail_pos + (((s.word & POS_MASK) - s.tail_pos / TAP_ENTRY_ALIGN) & POS_MASK) * TAP_ENTRY_ALIGN;
    return s;
}

uint64_t tap__ring_head_seq(tap_ring *ring)
{
    return head_load(ring).seq;
}

uint64_t tap__ring_used(tap_ring *ring)
{
    head_state s = head_load(ring);
    return s.pos - s.tail_pos;
}

uint64_t tap__ring_max_payload(const tap_ring *ring)
{
    return (ring->mask + 1) / 4;
}

/* Room is kept for entries without payload, so that statistics still pass when bytes do not. */
static bool head_has_room(const tap_ring *ring, const head_state *s, uint64_t bytes, bool with_payload)
{
    uint64_t size = ring->mask + 1, descs = ring->desc_mask + 1;
    uint64_t spare = with_payload ? size / 16 : 0, spare_descs = with_payload ? descs / 16 : 0;
    return s->pos - s->tail_pos + bytes + spare <= size && s->seq - s->tail_seq + 1 + spare_descs <= descs;
}

bool tap__ring_can_hold(const tap_ring *ring, uint64_t head, uint64_t payload)
{
    uint64_t size = ring->mask + 1;
    if (head > size || payload > size)
        return false;
    return tap__round_up(head, TAP_PAGE) + TAP_PAGE + tap__round_up(payload, TAP_ENTRY_ALIGN) + (payload ? size / 16 : 0) <= size;
}

static bool head_move(tap_ring *ring, head_state *s, uint64_t bytes, tap_ring_range *out)
{
    uint64_t next = ((s->seq + 1) & SEQ_MASK) << POS_BITS | ((s->pos + bytes) / TAP_ENTRY_ALIGN & POS_MASK);
    if (!atomic_compare_exchange_weak_explicit(&ring->header->head, &s->word, next, memory_order_acq_rel,
                                               memory_order_acquire))
        return false;
    HAND_OVER_TAKE();
    tap_ring_desc *desc = tap__ring_desc(ring, s->seq);
    desc->pos = s->pos;
    desc->bytes = bytes;
    desc->piece = 0;
    *out = (tap_ring_range){s->seq, s->pos, bytes, tap__ring_at(ring, s->pos), desc};
    return true;
}

bool tap__ring_reserve(tap_ring *ring, uint64_t head, uint64_t payload, bool page, tap_ring_range *out,
                       uint64_t *payload_at)
{
    uint64_t align = page || payload >= TAP_PAGE_ALIGN_FROM ? TAP_PAGE : TAP_ENTRY_ALIGN;
    for (;;) {
        head_state s = head_load(ring);
        uint64_t at = tap__round_up(s.pos + head, align) - s.pos;
        uint64_t bytes = tap__round_up(at + payload, TAP_ENTRY_ALIGN);
        if (!head_has_room(ring, &s, bytes, payload != 0))
            return false;
        if (!head_move(ring, &s, bytes, out))
            continue;
        *payload_at = at;
        atomic_store_explicit(&out->desc->word, out->seq << 2 | TAP_RING_RESERVED, memory_order_release);
        return true;
    }
}

bool tap__ring_reserve_piece(tap_ring *ring, uint64_t bytes, uint32_t slot, uint64_t offset, tap_ring_range *out)
{
    /* a whole number of pages, so that the log behind it keeps its place within a page */
    uint64_t whole = tap__round_up(bytes, TAP_PAGE) + TAP_PAGE;
    for (;;) {
        head_state s = head_load(ring);
        if (!head_has_room(ring, &s, whole, true))
            return false;
        if (!head_move(ring, &s, whole, out))
            continue;
        tap_ring_desc *desc = out->desc;
        desc->piece = 1;
        desc->slot = slot;
        desc->piece_pos = tap__round_up(out->pos, TAP_PAGE);
        desc->piece_bytes = bytes;
        desc->piece_offset = offset;
        out->data = tap__ring_at(ring, desc->piece_pos);
        atomic_store_explicit(&desc->word, out->seq << 2 | TAP_RING_RESERVED, memory_order_release);
        return true;
    }
}

void tap__ring_commit(tap_ring_range *range)
{
    HAND_OVER_GIVE();
    atomic_store_explicit(&range->desc->word, range->seq << 2 | TAP_RING_COMMITTED, memory_order_release);
}

int tap__ring_take_slot(tap_ring *ring)
{
    uint64_t used = atomic_load(&ring->header->big_slots);
    while (~used) {
        int slot = __builtin_ctzll(~used);
        if (atomic_compare_exchange_weak(&ring->header->big_slots, &used, used | 1ull << slot))
            return slot;
    }
    return -1;
}

void tap__ring_give_slot(tap_ring *ring, int slot)
{
    atomic_fetch_and(&ring->header->big_slots, ~(1ull << slot));
}

/* ------------------------------------------------------------------------------------------------------- waiting */

static void futex_wait(_Atomic uint32_t *word, uint32_t seen, int timeout_ms)
{
    struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void tap__ring_wake_writer(tap_ring *ring)
{
    atomic_fetch_add(&ring->header->wake_futex, 1);
    futex_wake(&ring->header->wake_futex);
}

void tap__ring_sleep(tap_ring *ring, uint32_t seen, int timeout_ms)
{
    atomic_store(&ring->header->writer_asleep, 1);
    futex_wait(&ring->header->wake_futex, seen, timeout_ms);
    atomic_store(&ring->header->writer_asleep, 0);
}

void tap__ring_wait_tail(tap_ring *ring, uint32_t seen, int timeout_ms)
{
    atomic_fetch_add(&ring->header->tail_waiters, 1);
    futex_wait(&ring->header->tail_futex, seen, timeout_ms);
    atomic_fetch_sub(&ring->header->tail_waiters, 1);
}

void tap__ring_report(tap_ring *ring, const char *message)
{
    tap_ring_header *h = ring->header;
    snprintf(h->error_text, sizeof h->error_text, "%.*s", (int)sizeof h->error_text - 1, message);
    atomic_fetch_add_explicit(&h->error_count, 1, memory_order_release);
}

void tap__ring_publish_tail(tap_ring *ring, uint64_t seq, uint64_t pos)
{
    tap_ring_header *h = ring->header;
    atomic_store_explicit(&h->tail_pos, pos, memory_order_release);
    atomic_store_explicit(&h->tail_seq, seq, memory_order_release);
    atomic_fetch_add(&h->tail_futex, 1);
    if (atomic_load(&h->tail_waiters))
        futex_wake(&h->tail_futex);
}

/* ------------------------------------------------------------------------------------------------------ liveness */

static int ring_lock(const tap_ring *ring, tap_ring_party party, int command, short type, struct flock *lock)
{
    *lock = (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)party, .l_len = 1};
    return fcntl(ring->fd, command, lock);
}

/* A file system without locks keeps nobody out. */
bool tap__ring_take_lock(const tap_ring *ring, tap_ring_party party)
{
    struct flock lock;
    tap__locks_add(ring->fd);
    return ring_lock(ring, party, F_SETLK, F_WRLCK, &lock) == 0 || (errno != EACCES && errno != EAGAIN);
}

void tap__ring_give_lock(const tap_ring *ring, tap_ring_party party)
{
    struct flock lock;
    ring_lock(ring, party, F_SETLK, F_UNLCK, &lock);
}

bool tap__ring_is_locked(const tap_ring *ring, tap_ring_party party)
{
    struct flock lock;
    return ring_lock(ring, party, F_GETLK, F_WRLCK, &lock) != 0 || lock.l_type != F_UNLCK;
}

void tap__ring_hold_again(const tap_ring *ring, bool writer)
{
    if (tap__locks_has(ring->fd)) {
        tap__ring_take_lock(ring, TAP_RING_PRODUCER);
        if (writer)
            tap__ring_take_lock(ring, TAP_RING_WRITER);
    }
    if (ring->tally_fd >= 0 && tap__locks_has(ring->tally_fd))
        tap__tally_hold(ring->tally_fd);
}

uint64_t tap__process_start(int pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t len = read(fd, text, sizeof text - 1);
    close(fd);
    if (len <= 0)
        return 0;
    text[len] = 0;
    char *at = strrchr(text, ')'); /* the command's name may hold anything */
    char state = 0;
    unsigned long long start = 0;
    if (!at || sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                      &state, &start) != 2)
        return 0;
    return state == 'Z' || state == 'X' ? 0 : start; /* a zombie records nothing any more */
}
