/* fault_stress.c - records from many threads until it is killed, told to stop, or has saved enough.
 *     fault_stress DIR COUNTERS [key=value ...]
 * threads, seed, ring, count (per thread, 0: for ever), step (saves per step), file (ring in a file), writer, exit
 * (close | _exit | abort | segv), durability, reserve, policy, stall, max, sleep (us between saves), layout, async,
 * segment (bytes of one), last (steps kept). */
#include "fault/pattern.h"
#include "tensortap/tensortap.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static tap_recorder *recorder;
static pattern_counters *counters;
static uint64_t seed = 1, count, ring = 4 << 20, step_every = 200, sleep_us;
static atomic_int stop, failures;

static void *work(void *argument)
{
    uint64_t thread = (uint64_t)(uintptr_t)argument;
    uint32_t *data = malloc(ring * 3 + 16);
    if (!data)
        return NULL;
    for (uint64_t i = 0; (!count || i < count) && !stop; i++) {
        char name[64];
        size_t n = pattern_count(seed, thread, i, ring);
        int64_t shape[1] = {(int64_t)n};
        for (size_t k = 0; k < n; k++)
            data[k] = pattern_value(seed, thread, i, k);
        snprintf(name, sizeof name, "t%llu/%llu", (unsigned long long)thread, (unsigned long long)i);
        tap_tensor tensor = {data, TAP_U32, 1, shape, NULL};
        atomic_store(&counters->thread[thread].started, i + 1);
        tap_status status = tap_save(recorder, name, &tensor, NULL);
        atomic_store(&counters->thread[thread].returned, i + 1);
        if (status != TAP_OK)
            failures++;
        memset(data, 0xA5, n * 4); /* what was saved must not follow later changes */
        if (thread == 0 && i % step_every == step_every - 1)
            tap_step(recorder);
        if (sleep_us)
            usleep((useconds_t)sleep_us);
    }
    free(data);
    return NULL;
}

static void say(void *user, tap_log_level level, const char *message)
{
    (void)user;
    fprintf(stderr, "tensortap: %d: %s\n", (int)level, message);
}

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

static void die(const char *how)
{
    if (strcmp(how, "_exit") == 0)
        _exit(0);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "segv") == 0)
        raise(SIGSEGV);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    int fd = open(argv[2], O_RDWR | O_CREAT, 0640);
    if (fd < 0 || ftruncate(fd, sizeof *counters) != 0)
        return 2;
    counters = mmap(NULL, sizeof *counters, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (counters == MAP_FAILED)
        return 2;
    close(fd);
    tap_options options;
    tap_options_init(&options);
    options.dir = argv[1];
    uint64_t threads = 4;
    const char *how = "close";
    for (int i = 3; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value)
            return 2;
        *value++ = 0;
        uint64_t number = strtoull(value, NULL, 0);
        const char *key = argv[i];
        if (!strcmp(key, "threads")) threads = number;
        else if (!strcmp(key, "seed")) seed = number;
        else if (!strcmp(key, "ring")) ring = number;
        else if (!strcmp(key, "count")) count = number;
        else if (!strcmp(key, "step")) step_every = number;
        else if (!strcmp(key, "sleep")) sleep_us = number;
        else if (!strcmp(key, "exit")) how = value;
        else if (!strcmp(key, "writer")) options.writer = value;
        else if (!strcmp(key, "layout")) options.layout = value;
        else if (!strcmp(key, "file")) options.ring = number ? TAP_RING_FILE : TAP_RING_MEMORY;
        else if (!strcmp(key, "durability")) options.durability = (tap_durability)number;
        else if (!strcmp(key, "reserve")) options.reserve_bytes = number;
        else if (!strcmp(key, "policy")) options.full = (tap_full_policy)number;
        else if (!strcmp(key, "stall")) options.stall_ms = (int)number;
        else if (!strcmp(key, "max")) options.max_bytes = number;
        else if (!strcmp(key, "segment")) options.segment_bytes = number;
        else if (!strcmp(key, "last")) options.last = (int64_t)number;
        else if (!strcmp(key, "async")) options.asynchronous = number != 0;
        else if (!strcmp(key, "mode")) options.mode = (tap_open_mode)number;
        else return 2;
    }
    options.ring_bytes = ring;
    tap_set_log(say, NULL);
    tap_error err;
    if (tap_recorder_open(&options, &recorder, &err) != TAP_OK) {
        fprintf(stderr, "fault_stress: %s\n", err.message);
        return 3;
    }
    signal(SIGTERM, on_signal);
    atomic_store(&counters->ready, 1);
    puts("ready");
    fflush(stdout);
    pthread_t ids[PATTERN_THREADS];
    for (uint64_t t = 0; t < threads; t++)
        pthread_create(&ids[t], NULL, work, (void *)(uintptr_t)t);
    for (uint64_t t = 0; t < threads; t++)
        pthread_join(ids[t], NULL);
    die(how);
    tap_status status = tap_recorder_close(recorder, &err);
    printf("failures %d close %s %s\n", failures, tap_status_name(status), status ? err.message : "");
    return 0;
}
