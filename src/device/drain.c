/* drain.c - the room that tapped values pass through, and the thread that takes them out of it. */
#include "device/drain.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    SLOTS = 64,
    TAILS_BYTES = 4096,              /* before the headers, which start on a page */
    REGISTER_BYTES = 64 << 20,       /* at a time: while memory is registered no thread can launch */
    BUSY_NS = 50000, IDLE_NS = 1000000, ASLEEP_NS = 100000000, /* between two looks */
    BUSY_FOR_NS = 20000000, IDLE_FOR_NS = 1000000000           /* since something came or was launched */
};

struct tap_drain_slot {
    char *device; /* tap_k_group, `arrived`, partial sums */
};

enum { SLOT_ARRIVED = 128, SLOT_PARTIAL = 256 };
#define SLOT_BYTES (SLOT_PARTIAL + (size_t)TAP_LEAF_MAX_BLOCKS * sizeof(tap_k_sums))
#define DEVICE_BYTES (4096 + SLOTS * SLOT_BYTES)

struct tap_drain {
    tap_drain_options options;
    tap_program program;
    tap_k_room room;
    char *device;             /* words, then slots */
    char *host;               /* tails, headers, payload */
    size_t host_bytes, registered;
    tap_drain_slot slots[SLOTS];
    atomic_uint slots_used;
    tap_drain_counts counted; /* stats_only and lost, as last read */
    _Atomic uint64_t taken, nudged_ns;
    atomic_bool ends;
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t nudge;
};

static tap_k_tails *tails_of(const tap_drain *drain)
{
    return (tap_k_tails *)(void *)drain->host;
}

/* ----------------------------------------------------------------------------------------------------- taking values */

static bool take_next(tap_drain *drain, uint64_t seq)
{
    const tap_k_header *header = &drain->room.headers[seq & (drain->room.header_count - 1)];
    if (__atomic_load_n(&header->flag, __ATOMIC_ACQUIRE) != seq + 1)
        return false;
    drain->options.take(drain->options.user, header, drain->room.payload + header->payload_at % drain->room.payload_bytes);
    tap_k_tails *tails = tails_of(drain);
    uint64_t end = header->payload_at + tap__drain_room_of(header->payload_bytes);
    __atomic_store_n(&tails->at, end, __ATOMIC_RELEASE);
    __atomic_store_n(&tails->seq, seq + 1, __ATOMIC_RELEASE);
    atomic_store(&drain->taken, seq + 1);
    return true;
}

static void sleep_until_due(tap_drain *drain, uint64_t last_ns)
{
    uint64_t nudged = atomic_load(&drain->nudged_ns), now = tap__monotonic_ns();
    uint64_t since = now - (nudged > last_ns ? nudged : last_ns);
    uint64_t nap = since < BUSY_FOR_NS ? BUSY_NS : since < IDLE_FOR_NS ? IDLE_NS : ASLEEP_NS;
    uint64_t due = now + nap;
    struct timespec until = {(time_t)(due / 1000000000u), (long)(due % 1000000000u)};
    pthread_mutex_lock(&drain->lock);
    if (!atomic_load(&drain->ends) && atomic_load(&drain->nudged_ns) == nudged)
        pthread_cond_timedwait(&drain->nudge, &drain->lock, &until);
    pthread_mutex_unlock(&drain->lock);
}

static void *drain_thread(void *arg)
{
    tap_drain *drain = arg;
    uint64_t last_ns = 0;
    for (uint64_t seq = 0;;) {
        while (take_next(drain, seq)) {
            seq++;
            last_ns = tap__monotonic_ns();
        }
        if (atomic_load(&drain->ends))
            return NULL;
        sleep_until_due(drain, last_ns);
    }
}

static tap_status start_thread(tap_drain *drain, tap_error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the program's threads */
    int failed = pthread_create(&drain->thread, NULL, drain_thread, drain);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    drain->has_thread = failed == 0;
    errno = failed;
    return failed ? tap_fail_errno(err, TAP_E_NOMEM, "CUDA: no thread could be started for a device") : TAP_OK;
}

void tap__drain_nudge(tap_drain *drain)
{
    uint64_t now = tap__monotonic_ns(), last = atomic_exchange(&drain->nudged_ns, now);
    if (now - last < BUSY_FOR_NS / 2)
        return; /* it is awake */
    pthread_mutex_lock(&drain->lock);
    pthread_cond_signal(&drain->nudge);
    pthread_mutex_unlock(&drain->lock);
}

/* ------------------------------------------------------------------------------------------------------ opening it */

static tap_status map_host(tap_drain *drain, tap_error *err)
{
    size_t headers = drain->options.headers * sizeof(tap_k_header);
    drain->host_bytes = (TAILS_BYTES + headers + drain->options.payload_bytes + 4095) & ~(size_t)4095;
    int fd = memfd_create("tensortap-device", MFD_CLOEXEC);
    if (fd < 0)
        return tap_fail_errno(err, TAP_E_NOMEM, "CUDA: no memory for the room of a device");
    int failed = tap__allocate(fd, drain->host_bytes); /* all of it, so that no later touch can fail */
    void *at = failed ? MAP_FAILED : mmap(NULL, drain->host_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    close(fd);
    if (at == MAP_FAILED) {
        errno = failed ? failed : errno;
        return tap_fail_errno(err, TAP_E_NOMEM, "CUDA: no memory for the room of a device");
    }
    drain->host = at;
    drain->room.tails = tails_of(drain);
    drain->room.headers = (tap_k_header *)(void *)(drain->host + TAILS_BYTES);
    drain->room.header_count = drain->options.headers;
    drain->room.payload = drain->host + TAILS_BYTES + headers;
    drain->room.payload_bytes = drain->options.payload_bytes;
    return TAP_OK;
}

static tap_status register_host(tap_drain *drain, tap_error *err)
{
    const tap_driver *driver = tap__driver();
    while (drain->registered < drain->host_bytes) {
        size_t left = drain->host_bytes - drain->registered, bytes = left < REGISTER_BYTES ? left : REGISTER_BYTES;
        TAP_TRY(tap__driver_check(driver->host_register(drain->host + drain->registered, bytes, TAP_CU_REGISTER_MAPPED),
                                  "cuMemHostRegister", err));
        drain->registered += bytes;
    }
    return TAP_OK;
}

static tap_status start(tap_drain *drain, tap_error *err)
{
    TAP_TRY(tap__program_load(&drain->program, err));
    TAP_TRY(map_host(drain, err));
    TAP_TRY(register_host(drain, err));
    const tap_driver *driver = tap__driver();
    TAP_TRY(tap__driver_check(driver->alloc((void **)&drain->device, DEVICE_BYTES), "cuMemAlloc", err));
    TAP_TRY(tap__driver_check(driver->fill(drain->device, 0, DEVICE_BYTES), "cuMemsetD8", err));
    drain->room.words = (tap_k_words *)(void *)drain->device;
    for (unsigned i = 0; i < SLOTS; i++)
        drain->slots[i].device = drain->device + 4096 + i * SLOT_BYTES;
    return start_thread(drain, err);
}

static void end_thread(tap_drain *drain)
{
    if (!drain->has_thread)
        return;
    pthread_mutex_lock(&drain->lock);
    atomic_store(&drain->ends, true);
    pthread_cond_signal(&drain->nudge);
    pthread_mutex_unlock(&drain->lock);
    pthread_join(drain->thread, NULL);
}

/* No kernel runs any more. */
static void give_memory_back(tap_drain *drain)
{
    const tap_driver *driver = tap__driver();
    for (size_t at = 0; at < drain->registered; at += REGISTER_BYTES)
        driver->host_unregister(drain->host + at);
    if (drain->device)
        driver->release(drain->device);
    tap__program_unload(&drain->program);
    if (drain->host)
        munmap(drain->host, drain->host_bytes);
}

static void drain_free(tap_drain *drain)
{
    pthread_cond_destroy(&drain->nudge);
    pthread_mutex_destroy(&drain->lock);
    tap__free(drain);
}

static void make_nudge(pthread_cond_t *nudge)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(nudge, &attributes);
    pthread_condattr_destroy(&attributes);
}

tap_status tap__drain_open(const tap_drain_options *options, tap_drain **out, tap_error *err)
{
    *out = NULL;
    tap_drain *drain = tap__calloc(1, sizeof *drain);
    if (!drain)
        return tap_fail_nomem(err);
    drain->options = *options;
    pthread_mutex_init(&drain->lock, NULL);
    make_nudge(&drain->nudge);
    int mode = tap_cuda_capture_mode(TAP_CU_MODE_RELAXED);
    tap_status status = start(drain, err);
    if (status != TAP_OK) {
        give_memory_back(drain);
        drain_free(drain);
    }
    tap_cuda_capture_mode(mode);
    if (status == TAP_OK)
        *out = drain;
    return status;
}

/* ------------------------------------------------------------------------------------------------------- launching */

tap_status tap__drain_slot(tap_drain *drain, tap_drain_slot **out, tap_error *err)
{
    unsigned at = atomic_fetch_add(&drain->slots_used, 1);
    if (at >= SLOTS) {
        atomic_fetch_sub(&drain->slots_used, 1);
        return tap_fail(err, TAP_E_LIMIT, "CUDA: taps in more than %d streams and groups of graphs", (int)SLOTS);
    }
    *out = &drain->slots[at];
    return TAP_OK;
}

tap_status tap__drain_launch(tap_drain *drain, tap_drain_slot *slot, tap_cu_stream stream, tap_k_tap *tap, tap_error *err)
{
    uint64_t bytes = tap->what & TAP_K_COPY ? tap__drain_room_of(tap->bytes) : 0;
    if (bytes > drain->options.payload_bytes / 2)
        return tap_fail(err, TAP_E_LIMIT, "CUDA: a value of %llu bytes, and the room has %llu; make it larger",
                        (unsigned long long)tap->bytes, (unsigned long long)drain->options.payload_bytes);
    tap_k_group *group = (tap_k_group *)(void *)slot->device;
    tap_k_gate gate = {.room = drain->room, .group = group, .headers = 1, .payload = bytes,
                       .full = (tap_k_word)drain->options.full, .stall_ns = (uint64_t)drain->options.stall_ms * 1000000u};
    tap->room = drain->room;
    tap->group = group;
    tap->arrived = (unsigned *)(void *)(slot->device + SLOT_ARRIVED);
    tap->partial = (tap_k_sums *)(void *)(slot->device + SLOT_PARTIAL);
    tap->index = tap->offset = 0;
    TAP_TRY(tap__program_gate(&drain->program, stream, &gate, err));
    TAP_TRY(tap__program_leaf(&drain->program, stream, tap, tap__leaf_blocks(tap->bytes), tap__leaf_threads(tap->bytes), err));
    tap__drain_nudge(drain);
    return TAP_OK;
}

tap_status tap__drain_control(tap_drain *drain, tap_cu_stream stream, bool on, uint64_t serial, int64_t step, tap_error *err)
{
    const tap_driver *driver = tap__driver();
    tap_k_words *words = drain->room.words;
    tap_cu_result result = driver->write_value(stream, &words->serial, serial, 0);
    if (result == 0)
        result = driver->write_value(stream, (tap_k_word *)&words->step, (uint64_t)step, 0);
    if (result == 0)
        result = driver->write_value(stream, &words->on, on, 0);
    return tap__driver_check(result, "cuStreamWriteValue64", err);
}

/* --------------------------------------------------------------------------------------------------------- waiting */

static tap_status read_words(tap_drain *drain, tap_k_words *words, tap_error *err)
{
    int mode = tap_cuda_capture_mode(TAP_CU_MODE_RELAXED);
    tap_cu_result result = tap__driver()->copy_down(words, drain->device, sizeof *words);
    tap_cuda_capture_mode(mode);
    return tap__driver_check(result, "cuMemcpyDtoH", err);
}

tap_status tap__drain_wait(tap_drain *drain, int timeout_ms, tap_error *err)
{
    tap_k_words words;
    TAP_TRY(read_words(drain, &words, err));
    drain->counted.stats_only = words.stats_only;
    drain->counted.lost = words.lost;
    uint64_t began = tap__monotonic_ns();
    while (atomic_load(&drain->taken) < words.head_seq) {
        if (timeout_ms >= 0 && tap__monotonic_ns() - began > (uint64_t)timeout_ms * 1000000u)
            return tap_fail(err, TAP_E_TIMEOUT, "CUDA: %llu values did not come out of the device in %d ms; did a kernel fail?",
                            (unsigned long long)(words.head_seq - atomic_load(&drain->taken)), timeout_ms);
        tap__drain_nudge(drain);
        nanosleep(&(struct timespec){0, BUSY_NS}, NULL);
    }
    return TAP_OK;
}

tap_drain_counts tap__drain_count(const tap_drain *drain)
{
    tap_drain_counts counts = drain->counted;
    counts.taken = atomic_load(&drain->taken);
    return counts;
}

tap_status tap__drain_close(tap_drain *drain, int timeout_ms, tap_error *err)
{
    tap_status status = tap__drain_wait(drain, timeout_ms, err);
    end_thread(drain);
    int mode = tap_cuda_capture_mode(TAP_CU_MODE_RELAXED);
    if (status == TAP_OK) /* else a kernel may still write to it */
        give_memory_back(drain);
    tap_cuda_capture_mode(mode);
    drain_free(drain);
    return status;
}
