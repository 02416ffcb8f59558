/* room.h - what kernels and the host both see: the room that tapped values pass through, and what a kernel is told. The same
 * bytes on both sides; compiled as C for the host and as CUDA for the device.
 *
 *     gate kernel: reserves headers and payload for a group of taps, in stream order
 *     tap kernel:  one a leaf: statistics, hash and snapshot in one pass; its last block writes the header, then the flag
 *     host:        sees the flag, takes header and payload, moves the tails
 *
 * Headers and payload lie in host memory that the device can write. Heads lie on the device and only kernels move them;
 * tails are host words that kernels only read: atomics do not cross the bus. */
#ifndef TAP_DEVICE_ROOM_H
#define TAP_DEVICE_ROOM_H

typedef unsigned long long tap_k_word;
typedef long long tap_k_number;

enum {
    TAP_K_UNIT = 16,        /* bytes that a thread takes at a time; positions of payloads are multiples of TAP_K_ALIGN */
    TAP_K_ALIGN = 64,
    TAP_K_MAX_THREADS = 256,
    TAP_K_MAX_NDIM = 64
};

enum { TAP_K_STATS = 1, TAP_K_HASH = 2, TAP_K_COPY = 4 }; /* tap_k_tap.what */
enum { TAP_K_BLOCK = 0, TAP_K_STATS_ONLY = 1, TAP_K_DROP = 2 }; /* tap_k_gate.full, as tap_full_policy */
/* tap_k_group.state: nothing is to be done; header and payload; the header alone; no room for either, counted */
enum { TAP_K_OFF = 0, TAP_K_WHOLE = 1, TAP_K_HEADER_ONLY = 2, TAP_K_LOST = 3 };

/* high + low */
typedef struct tap_k_pair {
    double high, low;
} tap_k_pair;

/* What tap_sums of src/tensor/kernels holds, as a device can add it up. Integers use the last four words. */
typedef struct tap_k_sums {
    tap_k_pair sum, square;         /* of finite values */
    tap_k_pair big_sum, big_square; /* values above 2^500, times 2^-600 */
    tap_k_pair small_square;        /* values below 2^-400, times 2^600 */
    tap_k_word min, max;            /* a double's bits, or the integer */
    tap_k_word nan, pos_inf, neg_inf, zero;
    tap_k_word hash;                /* the sum of src/tensor/hash.h */
    tap_k_word int_sum[2], int_square[2]; /* 128 bits, low word first */
} tap_k_sums;

/* 256 bytes in host memory. flag is written last, after a fence: seq + 1. */
typedef struct tap_k_header {
    tap_k_sums sums;
    tap_k_word seq;
    tap_k_word tap;     /* tap_k_tap.tap */
    tap_k_word serial;  /* of the recorder, from the control words */
    tap_k_number step;
    tap_k_word replay;  /* of the group, from 1 */
    tap_k_word payload_at;
    tap_k_word payload_bytes; /* 0: the header alone */
    tap_k_word state;
    tap_k_word unused[2];
    tap_k_word flag;
} tap_k_header;

/* On the device; only kernels write it, and the host in stream order the three control words. */
typedef struct tap_k_words {
    unsigned lock, unused;
    tap_k_word head_seq, head_at;
    tap_k_word seen_seq, seen_at; /* the tails as last read: reading them costs a trip over the bus */
    tap_k_word given_up;          /* tail_seq at which a gate gave up waiting, + 1; 0: none did */
    tap_k_word stats_only, lost;  /* taps */
    tap_k_word on, serial;        /* control words */
    tap_k_number step;
} tap_k_words;

/* Host memory; only the host writes it. */
typedef struct tap_k_tails {
    tap_k_word seq, at;
} tap_k_tails;

typedef struct tap_k_room {
    tap_k_words *words;
    const volatile tap_k_tails *tails;
    tap_k_header *headers;
    tap_k_word header_count;  /* a power of two */
    char *payload;
    tap_k_word payload_bytes; /* a multiple of TAP_K_ALIGN */
} tap_k_room;

/* Of one gate and the taps behind it, on the device. */
typedef struct tap_k_group {
    tap_k_word seq, at, state, replay, serial;
    tap_k_number step;
} tap_k_group;

typedef struct tap_k_gate {
    tap_k_room room;
    tap_k_group *group;
    tap_k_word headers, payload; /* what the group needs; payload is at most half the room */
    tap_k_word full;
    tap_k_word stall_ns;         /* BLOCK: how long the tail may stand still */
} tap_k_gate;

typedef struct tap_k_tap {
    tap_k_room room;
    const tap_k_group *group;
    tap_k_sums *partial;      /* one a block, unless there is one block */
    unsigned *arrived;        /* blocks that are done; 0 between launches */
    tap_k_word tap;           /* whose value it is: goes into the header */
    tap_k_word index, offset; /* its header and payload in the group */
    const char *data;
    tap_k_word bytes;         /* row-major */
    unsigned dtype, item, what, ndim; /* ndim 0: contiguous */
    tap_k_number shape[TAP_K_MAX_NDIM], stride[TAP_K_MAX_NDIM]; /* stride in bytes */
} tap_k_tap;

#endif
