/* load.c - a program that only records, for tests that do something to it from outside, and the check of what it left.
 *     stress record DIR TRUTH [key=value ...]   threads, seed, ring, count (per thread, 0: for ever), step (saves per
 *         step), file (ring in a file), writer, exit (close | _exit | abort | segv), durability, reserve, policy, stall,
 *         max, sleep (us between saves), layout, async, segment, last, mode
 *     stress check DIR TRUTH [lossy | dead | last]   lossy: the disk was full, what is missing must be listed. dead: it
 *         took not even news of the loss: that the end is missing will do. last: old steps were deleted by that rule
 *     stress returned TRUTH                     names of the saves that had returned */
#include "stress/stress.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS_MAX = 16 };

static struct load {
    tap_options options;
    tap_recorder *rec;
    truth *t;
    uint64_t threads, seed, count, step_every, sleep_us;
    const char *how;
    atomic_int stop, failures;
} load = {.threads = 4, .seed = 1, .step_every = 200, .how = "close"};

/* Mostly small, some large, a few up to three times the ring. */
static uint32_t load_elements(uint64_t thread, uint64_t index)
{
    uint64_t dice = load.seed * 31 + thread * 7919 + index * 104729, ring = load.options.ring_bytes;
    uint64_t pick = dice_roll(&dice, 1000);
    uint64_t most = pick < 700 ? 4096 : pick < 970 ? 65536 * 3 : pick < 996 ? ring / 2 : ring * 3;
    return (uint32_t)(dice_roll(&dice, most) / 4);
}

static void *work(void *argument)
{
    uint64_t thread = (uint64_t)(uintptr_t)argument;
    for (uint64_t i = 0; (!load.count || i < load.count) && !load.stop; i++) {
        truth_record like = {.elements = load_elements(thread, i), .thread = (uint16_t)thread, .step = TRUTH_ANY_STEP};
        uint32_t number = value_save(load.rec, load.t, &like, false, NULL);
        load.failures += load.t->records[number].status != TAP_OK;
        if (thread == 0 && i % load.step_every == load.step_every - 1) {
            atomic_fetch_add(&load.t->ranks[0].marks, 1);
            tap_step(load.rec);
        }
        if (load.sleep_us)
            usleep((useconds_t)load.sleep_us);
    }
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
    load.stop = 1;
}

static bool take_key(const char *key, char *value)
{
    uint64_t number = strtoull(value, NULL, 0);
    tap_options *o = &load.options;
    if (!strcmp(key, "threads")) load.threads = number < THREADS_MAX ? number : THREADS_MAX;
    else if (!strcmp(key, "seed")) load.seed = number;
    else if (!strcmp(key, "ring")) o->ring_bytes = number;
    else if (!strcmp(key, "count")) load.count = number;
    else if (!strcmp(key, "step")) load.step_every = number;
    else if (!strcmp(key, "sleep")) load.sleep_us = number;
    else if (!strcmp(key, "exit")) load.how = value;
    else if (!strcmp(key, "writer")) o->writer = value;
    else if (!strcmp(key, "layout")) o->layout = value;
    else if (!strcmp(key, "file")) o->ring = number ? TAP_RING_FILE : TAP_RING_MEMORY;
    else if (!strcmp(key, "durability")) o->durability = (tap_durability)number;
    else if (!strcmp(key, "reserve")) o->reserve_bytes = number;
    else if (!strcmp(key, "policy")) o->full = (tap_full_policy)number;
    else if (!strcmp(key, "stall")) o->stall_ms = (int)number;
    else if (!strcmp(key, "max")) o->max_bytes = number;
    else if (!strcmp(key, "segment")) o->segment_bytes = number;
    else if (!strcmp(key, "last")) o->last = (int64_t)number;
    else if (!strcmp(key, "async")) o->asynchronous = number != 0;
    else if (!strcmp(key, "mode")) o->mode = (tap_open_mode)number;
    else return false;
    return true;
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

static int record(int argc, char **argv)
{
    load.t = truth_map(argv[3], true);
    tap_options_init(&load.options);
    load.options.dir = argv[2];
    load.options.ring_bytes = 4 << 20;
    for (int i = 4; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (value)
            *value++ = 0;
        if (!value || !take_key(argv[i], value))
            return 2;
    }
    if (!load.t)
        return 2;
    tap_log_set(say, NULL);
    tap_error err;
    if (tap_recorder_open(&load.options, &load.rec, &err) != TAP_OK) {
        fprintf(stderr, "stress: %s\n", err.message);
        return 3;
    }
    signal(SIGTERM, on_signal);
    puts("ready");
    fflush(stdout);
    pthread_t ids[THREADS_MAX];
    for (uint64_t t = 0; t < load.threads; t++)
        pthread_create(&ids[t], NULL, work, (void *)(uintptr_t)t);
    for (uint64_t t = 0; t < load.threads; t++)
        pthread_join(ids[t], NULL);
    die(load.how);
    tap_status status = tap_recorder_close(load.rec, &err);
    printf("failures %d close %s %s\n", load.failures, tap_status_name(status), status ? err.message : "");
    return 0;
}

static int check(const char *dir, const char *path, const char *mode)
{
    static findings found;
    truth *t = truth_map(path, false);
    if (!t)
        return 2;
    plan p = {.ranks = 1};
    check_policy policy = {.last = !strcmp(mode, "last")};
    policy.may_lose = !strcmp(mode, "dead") || !strcmp(mode, "lossy");
    check_run(&p, t, 0, &dir, 1, policy, &found);
    for (uint32_t i = 0; i < found.count && i < FINDINGS_KEPT; i++)
        printf("%s: %s\n", FINDING_TEXTS[found.items[i].kind], found.items[i].text);
    printf("returned %llu: whole %llu, without bytes %llu, missing %llu; problems %u\n", (unsigned long long)found.saves,
           (unsigned long long)found.whole, (unsigned long long)found.partial, (unsigned long long)found.missing,
           found.count);
    return found.count ? 1 : 0;
}

static int returned(const char *path)
{
    truth *t = truth_map(path, false);
    for (uint32_t i = 0; t && i < atomic_load(&t->next); i++)
        if (atomic_load(&t->records[i].state) == TRUTH_RETURNED)
            printf("v%u\n", i);
    return t ? 0 : 2;
}

int load_main(int argc, char **argv)
{
    if (!strcmp(argv[1], "record") && argc > 3)
        return record(argc, argv);
    if (!strcmp(argv[1], "check") && argc > 3)
        return check(argv[2], argv[3], argc > 4 ? argv[4] : "");
    if (!strcmp(argv[1], "returned"))
        return returned(argv[2]);
    return 2;
}
