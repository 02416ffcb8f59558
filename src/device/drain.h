/* drain.h - the room that tapped values of one context pass through, and the thread that takes them out of it.
 *
 *     launch (gate and tap kernels, in the caller's stream) -> headers and payload in host memory -> take, in a thread of ours
 *
 * Headers and payload lie in a memfd that is registered with the driver in pieces. The thread calls no function of the driver: it
 * polls flags, hands values over in the order in which gates reserved them, and moves the tails, so that a gate may wait for it
 * whatever the driver is busy with. A value whose kernels never end holds up those behind it; nothing else waits without a bound. */
#ifndef TAP_DEVICE_DRAIN_H
#define TAP_DEVICE_DRAIN_H

#include "device/leaf.h"
#include "device/program.h"

typedef struct tap_drain tap_drain;

/* What a payload takes of the room. */
static inline uint64_t tap__drain_room_of(uint64_t bytes)
{
    return (bytes + TAP_K_ALIGN - 1) / TAP_K_ALIGN * TAP_K_ALIGN;
}

/* A value that came. payload: header->payload_bytes of it, valid during the call; no driver call, no lock that a launch needs. */
typedef void (*tap_drain_take)(void *user, const tap_k_header *header, const char *payload);

typedef struct tap_drain_options {
    uint64_t headers;       /* a power of two */
    uint64_t payload_bytes; /* a multiple of TAP_K_ALIGN */
    tap_full_policy full;
    int stall_ms;           /* TAP_FULL_BLOCK: how long a gate waits while nothing is taken */
    tap_drain_take take;
    void *user;
} tap_drain_options;

typedef struct tap_drain_counts {
    uint64_t taken;      /* headers */
    uint64_t stats_only; /* of them, those that had no room for their bytes */
    uint64_t lost;       /* taps for which there was no room at all */
} tap_drain_counts;

/* In the context that is current, to which the drain belongs from then on. */
tap_status tap__drain_open(const tap_drain_options *options, tap_drain **out, tap_error *err);
/* Waits for what was launched, at most `timeout_ms`, and frees it. The same context is current. After a failure to wait memory that a
 * kernel may still write is left alone. */
tap_status tap__drain_close(tap_drain *drain, int timeout_ms, tap_error *err);

/* Where a group's kernels keep what belongs to it between gate and taps. One for each stream of eager launches, and for each group of a
 * graph: kernels of one slot never run beside each other. Lives as long as the drain. */
typedef struct tap_drain_slot tap_drain_slot;
tap_status tap__drain_slot(tap_drain *drain, tap_drain_slot **out, tap_error *err);

/* One leaf: `tap` has the view (tap__leaf_view), what and tap set; the rest is filled here. Legal while the stream captures, which
 * repeats it with each replay. E_LIMIT: larger than half the room. */
tap_status tap__drain_launch(tap_drain *drain, tap_drain_slot *slot, tap_cu_stream stream, tap_k_tap *tap, tap_error *err);
/* Writes the control words in stream order: what kernels launched later in this stream find. */
tap_status tap__drain_control(tap_drain *drain, tap_cu_stream stream, bool on, uint64_t serial, int64_t step, tap_error *err);
/* A graph with taps is about to be launched: the thread looks more often for a while. */
void tap__drain_nudge(tap_drain *drain);
/* Returns when everything that kernels reserved so far was taken, for work that has ended on the device: the caller has waited for
 * its streams. */
tap_status tap__drain_wait(tap_drain *drain, int timeout_ms, tap_error *err);
/* As of the newest wait or close, except `taken`. */
tap_drain_counts tap__drain_count(const tap_drain *drain);

#endif
