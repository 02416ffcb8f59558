/* ring.h - the shared memory between a recording process and its writer: a stream of entries, written by many threads
 * without a lock, read by one writer, kept until its bytes are in the files.
 *
 *     header | descriptors | data          (the data is mapped twice in a row, so that nothing ever wraps)
 *
 * One 64-bit word, `head`, holds the next sequence number and the next position; moving it by compare-and-swap
 * reserves a descriptor and a range of data at once. The reserving thread then fills the range and marks the
 * descriptor committed. The writer takes descriptors in order, so a range that is never committed is noticed, and its
 * size is known from its neighbours even when its owner died before saying it.
 *
 * Positions count bytes of the stream from 0 and never wrap in practice; a position's place in the data is its
 * remainder. Entries in a segment file keep their position's remainder by page, so the writer writes ring memory as it
 * is, with O_DIRECT where that helps. */
#ifndef TAP_RECORD_RING_H
#define TAP_RECORD_RING_H

#include "base/dir.h"
#include "record/ring/entry.h"
#include "record/ring/tally.h"

#include <stdatomic.h>

#define TAP_RING_MAGIC 0x31474E4952504154ull /* "TAPRING1" */
#define TAP_RING_VERSION 2u
#define TAP_RING_MIN_BYTES (1u << 20)
#define TAP_RING_BIG_SLOTS 64

typedef enum tap_ring_state { TAP_RING_RESERVED = 1, TAP_RING_COMMITTED = 2 } tap_ring_state;

typedef struct tap_ring_desc {
    _Atomic uint64_t word;  /* seq << 2 | state; an older seq: not yet written in this round */
    uint64_t pos, bytes;    /* the reserved range */
    uint32_t piece;         /* 1: part of a large tensor's payload, goes to its extent, not into the log */
    uint32_t slot;          /* of the large tensor: BIG, TRAILER and pieces */
    uint64_t piece_pos, piece_bytes, piece_offset;
    uint64_t unused;
} tap_ring_desc;
_Static_assert(sizeof(tap_ring_desc) == 64, "a descriptor is one cache line");

/* A large tensor on its way through the ring, as the writer sees it. */
typedef struct tap_ring_big {
    uint64_t seq;
    uint64_t offset;    /* of its payload in the segment */
    uint64_t bytes;
    uint32_t segment;
    uint32_t discard;   /* a tap_reason, not 0: pieces are dropped, the trailer says so */
} tap_ring_big;

/* What a restarted writer needs to go on exactly where the last one stopped. Two copies, one valid. */
typedef struct tap_ring_checkpoint {
    uint64_t tail_seq, tail_pos;
    uint64_t base;            /* file offset of a position = position + base (mod 2^64), in the current segment */
    uint32_t segment, first_segment;
    uint64_t segment_end;     /* bytes of the current segment in use */
    uint64_t records, bytes, torn, stats_only;
    uint64_t accounted;       /* saves that are in the files, or listed there as lost */
    uint64_t absent;          /* sequence numbers since the last entry that leave none in the log */
    uint64_t written;         /* bytes written to all segments */
    uint64_t on_disk;         /* of those, not deleted again */
    tap_ring_big big[TAP_RING_BIG_SLOTS];
} tap_ring_checkpoint;

typedef struct tap_ring_config {
    char dir[4096];          /* absolute */
    char dir_shown[4096];    /* as the user wrote it */
    char layout[32];
    char framework[32];
    int32_t rank, attempt, child, world_size, device_index;
    int32_t pid;             /* of the producer */
    char who[64];            /* layouts of other tools: the journals' directory in .tensortap */
    char tally[TAP_TALLY_NAME]; /* the page that the counts are in; "": in the header */
    uint64_t pid_start;      /* its start time, so that a reused pid is not taken for it */
    uint8_t distributed, checksum, asynchronous, file_ring, several_nodes;
    uint32_t keep;
    uint32_t durability;
    uint64_t segment_bytes, max_bytes, reserve_bytes;
    int64_t last, first_step;
} tap_ring_config;

typedef struct tap_ring_header {
    uint64_t magic;
    uint32_t version, desc_count;
    uint64_t desc_offset, data_offset, data_bytes, total_bytes;
    tap_ring_config config;

    _Alignas(64) _Atomic uint64_t head;      /* seq (28 bits) << 36 | position / 64 (36 bits) */
    _Alignas(64) _Atomic uint64_t tail_seq;  /* published by the writer, after the bytes are written */
    _Atomic uint64_t tail_pos;
    _Atomic uint64_t progress;               /* moves whenever the writer gets something done */
    _Atomic uint32_t tail_futex;             /* changes with the tail; producers wait on it */
    _Atomic uint32_t tail_waiters;
    _Alignas(64) _Atomic uint32_t wake_futex; /* producers change it to wake the writer */
    _Atomic uint32_t writer_asleep;
    _Atomic uint64_t flush_want, flush_done; /* sequence numbers */
    _Atomic uint32_t closed;                 /* the producer is done */
    _Atomic uint32_t finished;               /* the writer is done: files are final */
    _Atomic int32_t writer_pid;              /* 0: a thread, -1: none yet */
    _Atomic uint32_t starts;                 /* writers that came so far */
    _Atomic int32_t sync_errno;              /* the disk could not be made to keep what it took; stays */
    _Atomic uint32_t degraded;               /* a tap_reason, not 0: producers leave payloads out */
    _Atomic uint64_t written_bytes;
    _Alignas(64) _Atomic uint64_t big_slots;              /* bit set: slot in use by a producer */
    _Atomic uint32_t checkpoint_valid;       /* which of the two */
    tap_ring_checkpoint checkpoint[2];
    _Atomic uint32_t error_count;            /* the writer's problems; the text of the newest is below */
    char error_text[512];
    tap_tally tally;                         /* where there is no page for it */
} tap_ring_header;

typedef struct tap_ring {
    tap_ring_header *header;
    tap_ring_desc *descs;
    uint8_t *data;       /* data_bytes, mapped twice */
    uint64_t mask;       /* data_bytes - 1 */
    uint64_t desc_mask;  /* both are ours: the header may be written over by a damaged program */
    size_t map_bytes;    /* header and descriptors */
    tap_tally *tally;
    int tally_fd;        /* -1: the tally is in the header */
    int fd;
} tap_ring;

/* Makes a ring of data_bytes (rounded down to a power of two) in memory, or in a new file of that name below dir when
 * name is not NULL; all of it is allocated, so that no later touch can fail. config is copied in. The counts get the page
 * config->tally, unless that is empty or cannot be had: the ring's own configuration then has no name. */
tap_status tap__ring_create(tap_ring *ring, tap_dir *dir, const char *name, uint64_t data_bytes, const tap_ring_config *config,
                            tap_error *err);
/* Maps the ring open at fd, which it then owns. Refuses what is not a ring. */
tap_status tap__ring_open(tap_ring *ring, int fd, tap_error *err);
/* After it was opened: maps the page of its counts, open at fd, which it then owns. False: that is another's. */
bool tap__ring_open_tally(tap_ring *ring, int fd);
void tap__ring_close(tap_ring *ring);
/* The counts in a ring file, whoever works with it. */
bool tap__ring_read_tally(tap_dir *dir, const char *name, tap_tally *out);

/* A reserved range: fill data .. data + bytes, then commit. */
typedef struct tap_ring_range {
    uint64_t seq, pos, bytes;
    uint8_t *data;
    tap_ring_desc *desc;
} tap_ring_range;

/* Reserves room for an entry of `head` bytes (header and meta) and `payload` bytes behind it; *payload_at is the
 * payload's offset in the range: 64-byte aligned, or on a page from 64 KiB on or when `page` is set (payload 0: where
 * one would start). Ranges with a payload leave the last sixteenth of the ring to those without. False: no room. */
bool tap__ring_reserve(tap_ring *ring, uint64_t head, uint64_t payload, bool page, tap_ring_range *out,
                       uint64_t *payload_at);
/* The same for a piece of a large tensor; the range's data is page-aligned, of `bytes` bytes. */
bool tap__ring_reserve_piece(tap_ring *ring, uint64_t bytes, uint32_t slot, uint64_t offset, tap_ring_range *out);
void tap__ring_commit(tap_ring_range *range);
/* Could such an entry ever be reserved, were the ring empty? */
bool tap__ring_can_hold(const tap_ring *ring, uint64_t head, uint64_t payload);
/* The largest payload that fits one entry; more streams through in pieces. */
uint64_t tap__ring_max_payload(const tap_ring *ring);

/* Sequence number after the newest reservation. */
uint64_t tap__ring_head_seq(tap_ring *ring);
uint64_t tap__ring_used(tap_ring *ring);

/* Slots for large tensors, -1: all in use. Taken before the BIG entry is reserved, given back after the TRAILER was or
 * could not be: so in the order of the ring the next user comes after the last one, whatever the writer does. */
int tap__ring_take_slot(tap_ring *ring);
void tap__ring_give_slot(tap_ring *ring, int slot);

void tap__ring_wake_writer(tap_ring *ring);
/* Waits until the tail moves or timeout_ms passed. */
void tap__ring_wait_tail(tap_ring *ring, uint32_t seen, int timeout_ms);

/* The writer's side. */
static inline uint8_t *tap__ring_at(const tap_ring *ring, uint64_t pos)
{
    return ring->data + (pos & ring->mask);
}
static inline tap_ring_desc *tap__ring_desc(const tap_ring *ring, uint64_t seq)
{
    return &ring->descs[seq & ring->desc_mask];
}
static inline bool tap__ring_is(const tap_ring_desc *desc, uint64_t seq, tap_ring_state state)
{
    return atomic_load_explicit(&((tap_ring_desc *)(uintptr_t)desc)->word, memory_order_acquire) ==
           (seq << 2 | (uint64_t)state);
}
void tap__ring_publish_tail(tap_ring *ring, uint64_t seq, uint64_t pos);
void tap__ring_sleep(tap_ring *ring, uint32_t seen, int timeout_ms);
/* Says what went wrong to the producer, which tells the user once. */
void tap__ring_report(tap_ring *ring, const char *message);

/* Who works on a ring says so by a lock on one byte of its file. Such a lock belongs to a process: it ends with it, forked
 * children do not inherit it, and neither asking nor taking needs a descriptor, /proc or a number of a process. So
 * both can tell that the other is gone when the program has no descriptors left, and across PID namespaces. */
typedef enum tap_ring_party { TAP_RING_WRITER = 0, TAP_RING_PRODUCER = 1 } tap_ring_party;
/* False: another process is that party already. */
bool tap__ring_take_lock(const tap_ring *ring, tap_ring_party party);
void tap__ring_give_lock(const tap_ring *ring, tap_ring_party party);
/* Is another process that party? True also where it cannot be told. */
bool tap__ring_is_locked(const tap_ring *ring, tap_ring_party party);
/* The producer's, and the writer's where that is a thread of it: the program may have opened and closed the file, as
 * who copies a directory does, and so lost them (locks.h). */
void tap__ring_hold_again(const tap_ring *ring, bool writer);

/* Start time of a process in clock ticks since boot; 0 when it is not there. */
uint64_t tap__process_start(int pid);

#endif
